package node

import (
	"testing"
	"time"

	"muster/wire/control"
)

// A client that has work on a device all the time counts as one, however rarely it reports; one that
// has stopped counts less and less.
func TestRecentUse(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		var r recent
		for now := every; now <= 5*time.Second; now += every {
			r = r.add(now, 2, every)
		}
		if r.busy < 0.9 || r.busy > 1 {
			t.Errorf("busy all the time, reported every %v: %v", every, r.busy)
		}
		if later := r.faded(r.at + time.Second).busy; later < 0.3 || later > 0.4 {
			t.Errorf("a second after that: %v", later)
		}
	}
	r := recent{}.add(time.Second, 1, time.Hour) // nobody has been busy for longer than since the last report
	if r.busy > 1 {
		t.Errorf("%+v", r)
	}
}

// Of a mapped client, busy time at home is that of all its devices: home counts only if something ran,
// or is, there.
func TestRecentUseOfMappedClients(t *testing.T) {
	c := &client{mappings: mappings{mapping: "ag", home: 1}}
	c.used(1, time.Second, 0, 0, time.Second)
	if c.uses[1].busy != 0 {
		t.Errorf("%+v", c.uses[1])
	}
	c.used(1, 2*time.Second, 0, 1, 0) // a long kernel
	if c.uses[1].busy < 0.9 {
		t.Errorf("%+v", c.uses[1])
	}
	c.used(-1, time.Second, 1, 1, time.Second) // no device
	if len(c.uses) != 1 {
		t.Errorf("%+v", c.uses)
	}
}

// What a lender says is added to what the node knows, and both are as old as the older.
func TestMergedLoads(t *testing.T) {
	all := merge(nil, control.Busyness{Device: 1, Calls: 1000, Each: 10})
	all = merge(all, control.Busyness{Device: 1, Calls: 3000, Each: 50, Age: 7})
	all = merge(all, control.Busyness{Device: 2, Calls: 1})
	if len(all) != 2 || all[0] != (control.Busyness{Device: 1, Calls: 4000, Each: 40, Age: 7}) {
		t.Errorf("%+v", all)
	}
}
