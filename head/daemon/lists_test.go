package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"muster/head"
	"muster/wire/api"
)

// TestLists: a user who asks for many long answers delays only his own requests.
func TestLists(t *testing.T) {
	l, ending := newLists(), make(chan struct{})
	enter := func(ctx context.Context, user string) (func(), error) { return l.enter(ctx, user, ending) }
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var leave []func()
	for range maxListsEach {
		done, err := enter(context.Background(), "alice")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	if _, err := enter(over, "alice"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	done, err := enter(context.Background(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	done()
	waits := make(chan func())
	go func() {
		done, err := enter(context.Background(), "alice")
		if err != nil {
			t.Error(err)
		}
		waits <- done
	}()
	leave[0]()
	(<-waits)()
	leave[1]()
	if len(l.users) != 0 || len(l.all) != 0 {
		t.Errorf("%d users and %d turns are left", len(l.users), len(l.all))
	}
	for i := range maxLists {
		if _, err := enter(context.Background(), string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
	}
	close(ending)
	if _, err := enter(context.Background(), "late"); !errors.Is(err, errEnding) {
		t.Errorf("got %v", err)
	}
}

// TestListsHaveTurns: the requests with long answers are those that wait.
func TestListsHaveTurns(t *testing.T) {
	for _, r := range routes() {
		switch r.path {
		case "/v1/jobs", "/v1/jobs/{id}", "/v1/history", "/v1/priorities", "/v1/nodes", "/v1/nodes/{name}", "/v1/usage", "/v1/whatif":
			if r.method == "GET" && !r.long {
				t.Errorf("%s has no turns", r.path)
			}
		default:
			if r.long {
				t.Errorf("%s has turns", r.path)
			}
		}
	}
}

// TestTasksAreListedOnce: tasks that became jobs of their own while a list was made are in it once.
func TestTasksAreListedOnce(t *testing.T) {
	two, seven := uint32(2), uint32(7)
	jobs := once([]api.Job{
		{ID: 11, ArrayJob: 10, ArrayTasks: "1-5", ArrayCount: 5}, {ID: 12, ArrayJob: 10, ArrayTask: &two}, {ID: 13, ArrayJob: 10, ArrayTasks: "3-5", ArrayCount: 3},
		{ID: 17, ArrayJob: 10, ArrayTask: &seven}, {ID: 20}, {ID: 31, ArrayJob: 30, ArrayTask: &two},
	})
	var got []uint64
	for _, j := range jobs {
		got = append(got, j.ID)
	}
	if !slices.Equal(got, []uint64{11, 17, 20, 31}) {
		t.Errorf("got %v", got)
	}
}

func TestRef(t *testing.T) {
	for text, want := range map[string]head.Ref{"17": {Job: 17, Task: -1}, "17_3": {Job: 17, Task: 3}, "17_[3-5,8]": {Job: 17, Task: -1, Tasks: "3-5,8"}} {
		if got, err := ref(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "017", "17_", "17_[", "17_[]", "17_[x]", "17_[1-9999999]", "17_[3", "_3", "17_-1"} {
		if got, err := ref(text); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
