package catalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
)

// TestLargerRanksGoFirst: of jobs that ask for the same, every policy starts the
// one with the largest rank, though it has planned otherwise before.
func TestLargerRanksGoFirst(t *testing.T) {
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			p, err := catalog.New(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			s := policy.NewState(&model.Cluster{Nodes: []model.Node{{Name: "n", Cores: 2, Memory: 10}}}, p)
			var ids []policy.JobID
			for i := range 6 {
				id, err := s.Submit(&model.Job{ID: fmt.Sprint(i), Run: time.Minute, Request: model.Request{Nodes: 1, CoresPerNode: 2}})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			now := time.Duration(0)
			first := s.Step(now).Starts[0].Job
			want := []policy.JobID{first}
			for _, i := range []int{3, 5, 1, 0, 4, 2} { // the order of the ranks 9, 8, 7 and so on
				if ids[i] == first {
					continue
				}
				if err := s.Rank(ids[i], int64(10-len(want))); err != nil {
					t.Fatal(err)
				}
				want = append(want, ids[i])
			}
			running, next := first, 1
			for next < len(want) {
				now += time.Minute
				if running >= 0 {
					s.End(running)
					running = -1
				}
				for _, st := range s.Step(now).Starts {
					if st.Err != nil || st.Job != want[next] {
						t.Fatalf("started job %d (%v), want %v", st.Job, st.Err, want[next:])
					}
					running, next = st.Job, next+1
				}
				if now > 20*time.Minute {
					t.Fatalf("nothing starts: job %d waits, because %s", want[next], s.Why(want[next]))
				}
			}
			if s.Rank(first, 3) == nil || s.Rank(99, 3) == nil || s.Rank(-1, 3) == nil {
				t.Error("a job that is over, or none at all, was given a rank")
			}
		})
	}
}

// TestSmallerTurnsGoFirst: a job with a smaller turn goes before jobs that the policy has known for
// longer. Some policies keep an order of their own: conservative keeps a start that it has promised,
// mosaic orders by what fits, and the queues of mccs are those of its papers.
func TestSmallerTurnsGoFirst(t *testing.T) {
	for _, e := range catalog.Entries {
		if e.Name == "conservative" || e.Name == "mosaic" || strings.HasPrefix(e.Name, "mccs-") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			p, err := catalog.New(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			s := policy.NewState(&model.Cluster{Nodes: []model.Node{{Name: "n", Cores: 2, Memory: 10}}}, p)
			submit := func(turn int64) {
				if _, err := s.Submit(&model.Job{ID: fmt.Sprint(turn), Turn: turn, Run: time.Minute, Request: model.Request{Nodes: 1, CoresPerNode: 2}}); err != nil {
					t.Fatal(err)
				}
			}
			late := []int64{4, 2, 5, 3}
			submit(1)
			submit(6)
			var got []string
			running := policy.JobID(-1)
			for now := time.Duration(0); len(got) < 6; now += time.Minute {
				if running >= 0 {
					s.End(running)
					running = -1
				}
				for _, st := range s.Step(now).Starts {
					got, running = append(got, s.View().Job(st.Job).ID), st.Job
				}
				for ; len(late) > 0; late = late[1:] { // while the first runs
					submit(late[0])
				}
				if now > 20*time.Minute {
					t.Fatalf("nothing starts behind %v", got)
				}
			}
			if fmt.Sprint(got) != "[1 2 3 4 5 6]" {
				t.Errorf("got %v", got)
			}
		})
	}
}
