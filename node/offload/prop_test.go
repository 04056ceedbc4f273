package offload

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Twenty nodes with random loads that change, messages that are late or lost, and nodes that are
// restarted: what check says holds after each step.
func TestAnything(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		dice := rand.New(rand.NewPCG(seed, 2))
		slots := make([]int, 20)
		for i := range slots {
			slots[i] = dice.IntN(3) * 4
		}
		w := newWorld(t, seed, slots)
		w.delay, w.loss = Time(dice.Int64N(int64(3*time.Second))), dice.Float64()*0.3
		t.Logf("seed %d: delay %v, loss %.2f", seed, w.delay, w.loss)
		w.run(2*time.Minute, func() {
			m := w.nodes[w.dice.IntN(len(w.nodes))]
			switch w.dice.IntN(60) {
			case 0:
				m.programs = w.dice.IntN(16)
			case 1:
				m.stuck = w.dice.IntN(4)
			case 2:
				m.down = true
			case 6:
				m.wishes = w.dice.IntN(4)
			case 7:
				m.gains = w.dice.IntN(4)
			case 3, 4:
				if m.down {
					m.down = false
					w.boot(m, seed+uint64(w.drawn))
				}
			case 5:
				if ids := m.tickets(); len(ids) > 0 { // its device is lost
					w.put(m.loans[ids[0]], 0)
					delete(m.loans, ids[0])
					w.perform(m, m.core.Failed(w.now, ids[0]))
				}
			}
		})
		if w.uses == 0 {
			t.Errorf("seed %d: nobody borrowed anything", seed)
		}
	}
}

// With loads that do not change everything comes to rest: no program waits while slots are
// lent, and nobody borrows or gives back any more.
func TestComesToRest(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		dice := rand.New(rand.NewPCG(seed, 3))
		slots := make([]int, 20)
		for i := range slots {
			slots[i] = dice.IntN(3) * 4
		}
		w := newWorld(t, seed, slots)
		for _, m := range w.nodes {
			m.programs = dice.IntN(14)
		}
		w.delay = Time(dice.Int64N(int64(time.Second)))
		w.run(2*time.Minute, nil)
		if waiting, lends := w.waits(); waiting > 0 && lends > 0 {
			t.Errorf("seed %d: %d programs wait while %d slots are to be had", seed, waiting, lends)
		}
		if w.lastChange > time.Minute {
			t.Errorf("seed %d: tickets still came or went at %v: %d were used, %d left", seed, w.lastChange, w.uses, w.leaves)
		}
	}
}

// Nineteen nodes that wait see one that is idle, all at once: it lends no more than it has, and
// those that come in vain do not keep coming.
func TestNoHerdOnOneLender(t *testing.T) {
	slots := make([]int, 20)
	for i := range slots {
		slots[i] = 4
	}
	w := newWorld(t, 1, slots)
	for _, m := range w.nodes[1:] {
		m.programs = 8
	}
	w.run(time.Minute, func() {
		if n := w.guests(0); n > slots[0] {
			t.Errorf("%d guests on %d slots", n, slots[0])
		}
	})
	if w.guests(0) != slots[0] {
		t.Errorf("%d guests on %d slots: the idle node is not used", w.guests(0), slots[0])
	}
	// Each knows that the node has nothing to lend once it has asked or been told.
	if w.asks > 3*19 {
		t.Errorf("19 nodes asked %d times for slots of one", w.asks)
	}
}

// Ten nodes that wait and ten that are idle, all with the same picture: within a few seconds
// everybody is served, so that they do not all go to the same.
func TestSpread(t *testing.T) {
	slots := make([]int, 20)
	for i := range slots {
		slots[i] = 4
	}
	w := newWorld(t, 7, slots)
	for i := range 10 {
		w.nodes[i].programs = 8
	}
	w.run(15*time.Second, nil)
	if waiting, _ := w.waits(); waiting > 0 {
		t.Errorf("%d programs wait after 15 s", waiting)
	}
	if w.asks > 80 {
		t.Errorf("ten nodes asked %d times", w.asks)
	}
}

// A program that can run nowhere else makes its node borrow in vain, but less and less often.
func TestInVain(t *testing.T) {
	w := newWorld(t, 1, []int{4, 4})
	w.nodes[0].programs = 6
	w.run(time.Second, nil)
	// From now on what waits cannot go, although the node believes that it can.
	m := w.nodes[0]
	for range 6000 {
		w.now += step
		for _, n := range w.nodes {
			w.perform(n, n.core.Local(w.now, stuck(n, n == m), nil))
			for id, l := range n.loans {
				if l.leaving {
					delete(n.loans, id)
					w.perform(n, n.core.Left(w.now, id))
				}
			}
		}
		w.ask(m, name(1))
		for len(w.mail) > 0 {
			next := w.mail[0]
			w.mail = w.mail[1:]
			next.deliver()
		}
	}
	if w.uses > 30 {
		t.Errorf("in five minutes the node borrowed %d times for a program that could not go", w.uses)
	}
}

// stuck is a node that is full, with two clients that wait, or one that is idle.
func stuck(n *member, full bool) Local {
	if !full {
		return Local{Devices: n.devices(0, [2]int{})}
	}
	return Local{Devices: n.devices(n.slots, [2]int{}), Waiting: 2, Pending: 2}
}

// When clients of the lender wait, it gets back what it lent, as much as it needs.
func TestLenderGetsItsSlotsBack(t *testing.T) {
	w := newWorld(t, 3, []int{4, 4})
	w.nodes[0].programs = 8
	w.run(5*time.Second, nil)
	if w.guests(1) != 4 {
		t.Fatalf("%d guests: 4 programs wait elsewhere", w.guests(1))
	}
	w.nodes[1].programs = 2
	w.run(5*time.Second, nil)
	if _, waits := w.place(w.nodes[1]); waits > 0 || w.guests(1) > 2 {
		t.Errorf("%d programs of the lender wait beside %d guests", waits, w.guests(1))
	}
	// Now both have more than they can serve, or as much: nobody borrows.
	w.nodes[1].programs = 4
	w.run(20*time.Second, nil)
	if w.guests(0)+w.guests(1) != 0 {
		t.Error("two nodes that are both full lend to each other")
	}
}

// A node without devices borrows at once, keeps the last ticket while it has clients, and no
// longer.
func TestWithoutDevices(t *testing.T) {
	w := newWorld(t, 5, []int{0, 4})
	w.run(2*time.Second, nil)
	w.nodes[0].programs = 3
	w.run(2*time.Second, nil)
	if w.guests(1) != 3 {
		t.Fatalf("%d guests of a node without devices that has 3 programs", w.guests(1))
	}
	w.nodes[0].programs = 0
	w.run(10*time.Second, nil)
	if len(w.nodes[0].loans) != 0 || len(w.nodes[1].core.lent) != 0 {
		t.Error("a ticket is kept that nobody needs")
	}
}

// A program that would use more devices gets those that nobody uses, one by one, and each only once; it
// leaves them when a program of the lender waits, and those that are half used alone.
func TestWishes(t *testing.T) {
	w := newWorld(t, 2, []int{4, 4, 4, 4})
	w.nodes[0].programs, w.nodes[0].wishes = 1, 10
	w.nodes[3].programs = 1 // its first device is in use
	w.run(30*time.Second, nil)
	taken := map[[2]int]int{}
	for _, l := range w.nodes[0].loans {
		taken[[2]int{l.lender, l.device}] += l.slots
	}
	want := [][2]int{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 1}}
	for _, at := range want {
		if taken[at] != 1 {
			t.Errorf("of device %d of node %d %d slots were borrowed", at[1], at[0], taken[at])
		}
	}
	if len(taken) != len(want) {
		t.Errorf("slots were borrowed of %v", taken)
	}
	w.nodes[1].programs = 8
	w.run(10*time.Second, nil)
	if n := w.guests(1); n > 0 {
		t.Errorf("%d guests stay while programs of the lender wait", n)
	}
	w.nodes[0].wishes = 0
	w.run(10*time.Second, nil)
	if len(w.nodes[0].loans) > 0 {
		t.Error("what nobody wishes for any more was not given back")
	}
}

// What is granted is not lent: of a device that is granted as a whole nothing, and none that is granted in
// part to clients that want one for themselves. Tickets of before are wanted back.
func TestGrantedDevices(t *testing.T) {
	c, err := New(Config{Lend: true})
	if err != nil {
		t.Fatal(err)
	}
	is := func(granted bool, slots int) {
		c.Local(0, Local{Devices: []Device{{Slots: slots, Granted: granted, Speed: 2}}}, nil)
	}
	fast, some := Question{Slots: 1, Apart: true, Speed: 2}, Question{Slots: 1}
	is(false, 4)
	if a, _ := c.Asked(0, "a", fast, "1"); a.Ticket.ID != "1" || a.Load.Unused != 0 {
		t.Fatalf("%+v", a)
	}
	is(true, 4)
	fast.Holds = []TicketID{"1"}
	if a, _ := c.Asked(0, "a", Question{Holds: fast.Holds}, ""); len(a.Recalls) != 1 {
		t.Errorf("some of the device is granted: %+v", a)
	}
	if a, _ := c.Asked(0, "b", Question{Slots: 1, Apart: true}, "2"); a.Ticket.ID != "" || a.Load.Idle != 0 {
		t.Errorf("a device that is granted in part counts as unused: %+v", a)
	}
	if a, _ := c.Asked(0, "b", some, "3"); a.Ticket.ID != "3" {
		t.Errorf("the rest of the device is not lent: %+v", a)
	}
	is(true, 0)
	if a, _ := c.Asked(0, "b", Question{Slots: 1, Holds: []TicketID{"3"}}, "4"); a.Ticket.ID != "" || len(a.Recalls) != 1 || a.Load.Fastest != 2 {
		t.Errorf("all of the device is granted: %+v", a)
	}
	c.Withdraw("a", "3") // it is another's
	if len(c.View(0).Lent) != 2 {
		t.Error("a ticket is withdrawn of a node that does not have it")
	}
	c.Withdraw("b", "3")
	if a, _ := c.Asked(0, "b", Question{Holds: []TicketID{"3"}}, ""); len(c.View(0).Lent) != 1 || len(a.Recalls) != 1 {
		t.Errorf("a ticket that was withdrawn counts: %+v", a)
	}
}
