package daemon

import (
	"context"
	"errors"
	"testing"
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
