package daemon

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"muster/wire/api"
	"muster/wire/dial"
)

// jobState is everything that the operations below can see of a waiting job.
type jobState struct{ held, cancelled bool }

// operation is one request about a job, between two instants; one that was not answered
// may have taken effect at any time after it was sent, or never.
type operation struct {
	kind        string
	sent, heard int64
	answered    bool
	refused     bool
	shown       jobState // of get
	client      int
}

// apply says what an operation does to a state, and whether its answer fits that state.
func (o *operation) apply(s jobState) (jobState, bool) {
	switch o.kind {
	case "get":
		return s, !o.answered || !o.refused && o.shown == s
	case "cancel", "hold", "release":
		if s.cancelled {
			return s, !o.answered || o.refused
		}
		switch o.kind {
		case "cancel":
			s.cancelled = true
		case "hold":
			s.held = true
		case "release":
			s.held = false
		}
		return s, !o.answered || !o.refused
	}
	panic(o.kind)
}

// linearizable searches for an order of operations, each between its instants, in which all answers
// are right.
func linearizable(history []operation) bool {
	type place struct {
		done  string // which operations, as a set of bits
		state jobState
	}
	seen := map[place]bool{}
	done := make([]byte, (len(history)+7)/8)
	var search func(state jobState) bool
	search = func(state jobState) bool {
		p := place{string(done), state}
		if seen[p] {
			return false
		}
		seen[p] = true
		// The next one must have been sent before any other outstanding one was answered.
		limit, left := int64(1)<<62, false
		for i := range history {
			if o := &history[i]; done[i/8]&(1<<(i%8)) == 0 && o.answered {
				limit, left = min(limit, o.heard), true
			}
		}
		if !left {
			return true // the others never took effect
		}
		for i := range history {
			o := &history[i]
			if done[i/8]&(1<<(i%8)) != 0 || o.sent > limit {
				continue
			}
			next, ok := o.apply(state)
			if !ok {
				continue
			}
			done[i/8] |= 1 << (i % 8)
			if search(next) {
				return true
			}
			done[i/8] &^= 1 << (i % 8)
		}
		return false
	}
	return search(jobState{})
}

// The checker itself accepts what is possible and nothing else.
func TestLinearizable(t *testing.T) {
	op := func(kind string, sent, heard int64, shown jobState) operation {
		return operation{kind: kind, sent: sent, heard: heard, answered: heard > 0, shown: shown}
	}
	held := jobState{held: true}
	for _, c := range []struct {
		name    string
		history []operation
		want    bool
	}{
		{"in order", []operation{op("hold", 1, 2, jobState{}), op("get", 3, 4, held)}, true},
		{"forgotten", []operation{op("hold", 1, 2, jobState{}), op("get", 3, 4, jobState{})}, false},
		{"at the same time", []operation{op("hold", 1, 4, jobState{}), op("get", 2, 3, jobState{})}, true},
		{"seen and unseen", []operation{op("hold", 1, 9, jobState{}), op("get", 2, 3, held), op("get", 4, 5, jobState{})}, false},
		{"not answered, seen", []operation{op("hold", 1, 0, jobState{}), op("get", 2, 3, jobState{}), op("get", 4, 5, held)}, true},
		{"not answered, undone", []operation{op("hold", 1, 0, jobState{}), op("get", 2, 3, held), op("get", 4, 5, jobState{})}, false},
		{"cancelled twice", []operation{op("cancel", 1, 2, jobState{}), op("cancel", 3, 4, jobState{})}, false},
	} {
		if got := linearizable(c.history); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Concurrent clients see jobs as if one request followed another, even if heads are killed
// meanwhile.
func TestRequestsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	const seed, lives, clients, jobs, each = 5, 3, 4, 6, 40
	state, socket := t.TempDir(), fmt.Sprintf("@muster-head-linear-%d", os.Getpid())
	var clock atomic.Int64
	var mu sync.Mutex
	histories := make([][]operation, jobs)
	for life := range lives {
		process := startChild(t, state, socket)
		h, base, err := dial.Client(dial.Config{Head: "unix:" + socket})
		if err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			for i := range jobs {
				if got, err := submitOnce(h, base, fmt.Sprint(i)); err != nil || got != uint64(i+1) {
					t.Fatal(got, err)
				}
			}
		}
		var all sync.WaitGroup
		var count atomic.Int64
		for client := range clients {
			random := rand.New(rand.NewPCG(seed, uint64(life*clients+client)))
			all.Go(func() {
				for range each {
					job := random.IntN(jobs)
					o := operation{kind: []string{"get", "get", "get", "hold", "hold", "release", "release", "get", "get", "cancel"}[random.IntN(10)], client: client}
					if o.kind == "cancel" && random.IntN(6) > 0 {
						o.kind = "get"
					}
					o.sent = clock.Add(1)
					o.perform(h, base, job+1)
					o.heard = clock.Add(1)
					mu.Lock()
					histories[job] = append(histories[job], o)
					mu.Unlock()
					if !o.answered {
						return // killed
					}
					if count.Add(1) == clients*each*2/3 {
						_ = process.Process.Kill() // while other requests are in progress
					}
				}
			})
		}
		all.Wait()
		_ = process.Wait()
		h.CloseIdleConnections()
	}
	answered := 0
	for job, history := range histories {
		slices.SortFunc(history, func(a, b operation) int { return int(a.sent - b.sent) })
		for i := range history {
			if history[i].answered {
				answered++
			}
		}
		if !linearizable(history) {
			t.Errorf("seed %d: no order explains what clients saw of job %d:", seed, job+1)
			for _, o := range history {
				t.Logf("%+v", o)
			}
		}
	}
	t.Logf("%d operations were answered", answered)
}

// perform sends an operation's request.
func (o *operation) perform(h *http.Client, base string, job int) {
	method, path := "POST", fmt.Sprintf("%s/v1/jobs/%d", base, job)
	switch o.kind {
	case "get":
		method = "GET"
	case "cancel":
		method = "DELETE"
	default:
		path += "/" + o.kind
	}
	r, err := http.NewRequest(method, path, nil)
	if err != nil {
		panic(err)
	}
	answer, err := h.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	var j api.Job
	if err := json.NewDecoder(answer.Body).Decode(&j); err != nil || answer.StatusCode >= 500 {
		return
	}
	o.answered, o.refused = true, answer.StatusCode != http.StatusOK
	o.shown = jobState{held: j.Held, cancelled: j.State == api.Cancelled}
}
