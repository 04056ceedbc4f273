package offload

import (
	"math"
	"testing"
	"time"
)

// waiting is a core whose node waits for slots, and knows one peer that claims to have some.
func waiting(t *testing.T, claims Load) *Core {
	t.Helper()
	c, err := New(Config{Borrow: true, Lend: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Peers(0, []PeerID{"liar"})
	c.Says("liar")
	c.Answered(0, "liar", Answer{Load: claims})
	c.Local(0, Local{Devices: []Device{{Slots: 4, Used: 4, Speed: 1}}, Waiting: 2, Pending: 2, Clients: 6}, nil)
	return c
}

// Tickets that no honest lender gives are refused.
func TestTicketsThatAreLies(t *testing.T) {
	for _, lie := range []Ticket{
		{}, {ID: "a"}, {ID: "a", Slots: 3, Speed: 1}, {ID: "a", Slots: -1, Speed: 1}, {ID: "a", Slots: math.MinInt, Speed: 1}, {Slots: 1, Speed: 1},
		{ID: "a", Slots: 1, Speed: 0}, {ID: "a", Slots: 1, Speed: math.NaN()}, {ID: "a", Slots: 1, Speed: math.Inf(1)}, {ID: "a", Slots: 1, Speed: -1},
		{ID: "a", Slots: 1, Speed: 1, Device: -1},
	} {
		c := waiting(t, Load{Free: 8})
		if effects := c.Tick(time.Second); len(effects) != 1 || effects[0] != (Ask{Peer: "liar"}) {
			t.Fatalf("the peer was not asked: %v", effects)
		}
		if q := c.Says("liar"); q.Slots != 2 {
			t.Fatalf("%d slots are asked for, for two clients", q.Slots)
		}
		for _, e := range c.Answered(time.Second, "liar", Answer{Load: Load{Free: 8}, Ticket: lie}) {
			t.Errorf("%+v is believed: %+v", lie, e)
		}
	}
}

// A ticket is not taken that was not asked for, nor one twice.
func TestTicketsThatNobodyAskedFor(t *testing.T) {
	c := waiting(t, Load{Free: 8})
	good := Ticket{ID: "a", Slots: 1, Speed: 1}
	if got := c.Answered(0, "liar", Answer{Ticket: good}); len(got) != 0 {
		t.Errorf("a ticket that was not asked for is used: %v", got)
	}
	if got := c.Answered(0, "stranger", Answer{Ticket: good}); len(got) != 0 {
		t.Errorf("a ticket of a stranger is used: %v", got)
	}
	for range 2 {
		for at := time.Second; at < time.Minute; at += time.Second {
			c.Answered(at, "liar", Answer{Load: Load{Free: math.MaxInt}})
			if c.Says("liar").Slots > 0 {
				c.Answered(at, "liar", Answer{Load: Load{Free: 8}, Ticket: good})
			}
		}
	}
	if n := len(c.borrowed); n > 1 {
		t.Errorf("one ticket is held %d times", n)
	}
}

// A peer that claims free slots and gives none is asked less and less.
func TestEmptyPromises(t *testing.T) {
	c := waiting(t, Load{Free: 8})
	asked := 0
	for at := time.Second; at < 5*time.Minute; at += 100 * time.Millisecond {
		for _, e := range c.Tick(at) {
			if _, ok := e.(Ask); ok {
				asked++
			}
		}
		c.Says("liar")
		for _, e := range c.Answered(at, "liar", Answer{Load: Load{Free: 8}}) {
			if _, ok := e.(Ask); ok {
				asked++
			}
		}
	}
	if asked == 0 || asked > 20 {
		t.Errorf("it was asked %d times in five minutes", asked)
	}
}

// keen is a core with a client that would move to a device of speed 1, and knows one peer that claims to have some.
func keen(t *testing.T, claims Load) *Core {
	t.Helper()
	c, err := New(Config{Borrow: true, Lend: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Peers(0, []PeerID{"liar"})
	c.Says("liar")
	c.Answered(0, "liar", Answer{Load: claims})
	c.Local(0, Local{Devices: []Device{{Slots: 4, Used: 1, Speed: 0.5}}, Clients: 1, Gains: []Gain{{Speed: 1, Stay: time.Second}}}, nil)
	return c
}

// Devices of speeds that there are not are worth nothing, nor are those that are slower than was asked for.
func TestSpeedsThatAreLies(t *testing.T) {
	for _, speed := range []float64{0, -1, math.NaN(), math.Inf(1), 2e6, 0.9} {
		c := keen(t, Load{Free: 4, Idle: 1, Fastest: speed, Unused: speed})
		if effects := c.Tick(time.Second); len(effects) > 0 || c.Keen("liar") {
			t.Errorf("an unused device of speed %g is asked for: %v", speed, effects)
		}
	}
	for _, lie := range []Ticket{{ID: "a", Slots: 1, Speed: 0.99}, {ID: "a", Slots: 2, Speed: 1}, {ID: "a", Slots: 1, Speed: 2e6}, {ID: "a", Slots: 1, Speed: math.NaN()}} {
		c := keen(t, Load{Free: 4, Idle: 1, Fastest: 2, Unused: 2})
		if q := c.Says("liar"); q.Slots != 1 || !q.Apart || q.Speed != 1 || !c.Keen("liar") {
			t.Fatalf("%+v is asked", q)
		}
		for _, e := range c.Answered(time.Second, "liar", Answer{Load: Load{Free: 4, Idle: 1, Fastest: 2, Unused: 2}, Ticket: lie}) {
			t.Errorf("%+v is believed: %+v", lie, e)
		}
	}
}

// A peer that lends a fast device again and again, and wants it back at once, is left alone more and more.
func TestFastDevicesThatAreTakenBack(t *testing.T) {
	is := Load{Free: 4, Idle: 1, Fastest: 2, Unused: 2}
	c := keen(t, is)
	home, took, id := c.local, 0, 0
	for at := 100 * time.Millisecond; at < 5*time.Minute; at += 100 * time.Millisecond {
		a := Answer{Load: is}
		if q := c.Says("liar"); q.Slots > 0 {
			id++
			a.Ticket = Ticket{ID: TicketID(rune('a' + id)), Slots: 1, Speed: 2}
		} else {
			a.Recalls = q.Holds
		}
		for _, e := range c.Answered(at, "liar", a) {
			switch e := e.(type) {
			case Use:
				took++
				c.Local(at, Local{Devices: home.Devices, Clients: 1}, map[TicketID]Clients{e.Ticket.ID: {There: 1}})
			case Leave:
				c.Left(at, e.Ticket)
				c.Local(at, home, nil)
			}
		}
	}
	if took < 3 || took > 20 {
		t.Errorf("its device was borrowed %d times in five minutes", took)
	}
}

// A borrower that wants everything gets no more than Most, and what it claims to hold means nothing.
func TestGreed(t *testing.T) {
	c, err := New(Config{Lend: true, Most: 6})
	if err != nil {
		t.Fatal(err)
	}
	c.Local(0, Local{Devices: []Device{{Number: 0, Slots: 8, Speed: 1}, {Number: 1, Slots: 8, Speed: 1}}}, nil)
	var holds []TicketID
	for i := range 20 {
		id := TicketID(rune('a' + i))
		a, _ := c.Asked(time.Duration(i)*time.Millisecond, "greedy", Question{Slots: math.MaxInt32, Holds: holds}, id)
		if a.Ticket.ID != "" {
			holds = append(holds, a.Ticket.ID)
		}
	}
	if n := c.lentSlots("greedy"); n != 6 {
		t.Errorf("%d slots were lent to one, of 6 that it may have", n)
	}
	a, _ := c.Asked(time.Second, "other", Question{Slots: 4, Holds: holds}, "z")
	if len(a.Recalls) != len(holds) || a.Ticket.Slots == 0 {
		t.Errorf("tickets of another are taken for its own: %+v", a)
	}
	c.Tick(DefaultTerm + time.Minute)
	if len(c.lent) != 0 {
		t.Error("tickets are kept by silence")
	}
}
