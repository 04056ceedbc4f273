package agent

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"muster/model"
	wire "muster/wire/agent"
	"muster/wire/status"
)

// The agent measures each time that it looks, also if it looked late the time before.
func TestGaugeMeasuresEachTime(t *testing.T) {
	var g gauge
	for n, late := range []time.Duration{0, 100, 0, 200, 10, 0, 300, 0} {
		now := time.Unix(1000, 0).Add(time.Duration(n)*askTime + late*time.Millisecond)
		if _, ok := g.measure(now, &status.Node{Pid: 1}); !ok {
			t.Errorf("look %d, %d ms late, does not count", n, late)
		}
	}
}

// Tasks that end together wait for their programs to leave the daemon, and ask it together, less and less often.
func TestTasksThatEndAskTogether(t *testing.T) {
	h, d := newHead(t), &daemon{}
	const tasks = 8
	var asked atomic.Int64
	h.run(func(c *Config) {
		c.Grants, c.Status = d, func(context.Context) (*status.Node, error) {
			asked.Add(1)
			n := &status.Node{Pid: 1}
			for job := range tasks {
				n.Clients = append(n.Clients, status.Client{Grant: fmt.Sprintf("%d.1.0", job+1)})
				n.Granted = append(n.Granted, status.Granted{Grant: fmt.Sprintf("%d.1.0", job+1), Measured: model.Measured{Kernels: 5}})
			}
			return n, nil
		}
	})
	for job := range tasks {
		s := h.job(uint64(job+1), "true")
		s.Grant = testGrant()
		s.Grant.ID, s.Grant.User = fmt.Sprintf("%d.1.0", job+1), s.Spec.User
		h.send(wire.Lend{Loan: s.Grant.Loan("n1")})
		h.send(s)
	}
	profiled, ended := map[wire.Task]bool{}, 0
	for ended < tasks {
		switch m := h.next().(type) {
		case wire.Profiles:
			for _, p := range m.Tasks {
				profiled[p.Task] = p.Measured.Kernels == 5
			}
		case wire.Report:
			if m.State == wire.Ended {
				if ended++; !profiled[m.Task] {
					t.Errorf("%v has ended before the head knows what it did", m.Task)
				}
			}
		}
	}
	if n := asked.Load(); n > 100 {
		t.Errorf("the daemon was asked %d times", n)
	}
}

// What is measured is how much was done between two pictures, in numbers so coarse that a node which does
// nothing says the same again.
func TestGauge(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	node := func(busy, waiting float64, in, out uint64) *status.Node {
		return &status.Node{Pid: 1, SwapIn: in, SwapOut: out, Devices: []status.Device{
			{State: "up", Memory: 1 << 30, Used: 5<<20 + 1, Guaranteed: 4 << 20, BusyTime: busy}, {State: "up", Memory: 1 << 30, Borrowed: true, BusyTime: busy},
		}, Clients: []status.Client{{State: "assigned"}, {State: "waiting"}, {State: "ready", Waiting: waiting}}}
	}
	var g gauge
	first, ok := g.measure(at(0), node(100, 0.5, 1<<40, 0))
	want := wire.Load{Use: []int{0}, Used: []int{5}, Guaranteed: []int{4}, Assigned: 1, Waiting: 1}
	if !ok || !reflect.DeepEqual(first, want) {
		t.Errorf("at first %+v", first)
	}
	if _, ok := g.measure(at(wire.LoadPeriod/3), node(100.5, 0.5, 1<<40, 0)); ok {
		t.Error("a third of the period counts")
	}
	next, ok := g.measure(at(2*time.Second), node(101, 7, 1<<40+2469<<10, 3))
	want.Use[0], want.Longest, want.SwapIn, want.SwapOut = 50, 5*time.Second, 1_300_000, 2
	if !ok || !reflect.DeepEqual(next, want) {
		t.Errorf("then %+v", next)
	}
	still, ok := g.measure(at(3*time.Second), node(101, 9, 1<<40+2469<<10, 3))
	want.Use[0], want.SwapIn, want.SwapOut = 0, 0, 0
	if !ok || !reflect.DeepEqual(still, want) {
		t.Errorf("while nothing runs %+v", still)
	}
	other := node(7, 9, 5, 5)
	other.Pid = 2
	if anew, ok := g.measure(at(4*time.Second), other); !ok || !reflect.DeepEqual(anew, want) {
		t.Errorf("of another daemon %+v", anew)
	}
}
