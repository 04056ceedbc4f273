package clientcore

import (
	"testing"
	"time"

	"muster/wire/control"
)

// Kernels avoid the device on which another program has work, until that is gone or what was said of
// it is too old to be believed.
func TestKernelsAvoidOtherPrograms(t *testing.T) {
	busy := func(device int, age time.Duration) control.Beside {
		return control.Beside{Devices: []control.Busyness{{Device: device, Calls: 990, Each: 20 * time.Millisecond, Age: age}}}
	}
	for _, spec := range []string{"gr", "ag", "probe"} {
		c := spread(t, spec, 2, 1)
		runs := func() int {
			_, at := post(t, c, launchOf(0, 0))
			c.Ran(c.Now, []KernelEnd{{Ticket: c.mapped.ticket, Device: at.Index(), Took: 20e6}})
			return at.Index()
		}
		say := func(m control.Beside) {
			if _, err := c.Control(c.Now+1, m); err != nil {
				t.Fatal(err)
			}
		}
		runs() // so that kernels have a time
		for _, device := range []int{0, 1, 0} {
			say(busy(device, 0))
			for range 4 {
				if at := runs(); at == device {
					t.Errorf("%s: a kernel runs on device %d, where another program is", spec, at)
				}
			}
		}
		if spec == "gr" { // which takes the device that has been idle for longest
			c.Now += 2 * halfLife
			if a, b := runs(), runs(); a == b {
				t.Errorf("old news keep kernels on device %d", a)
			}
			say(busy(0, 0))
			say(control.Beside{})
			if a, b := runs(), runs(); a == b {
				t.Errorf("kernels stay on device %d when the other program has gone", a)
			}
			say(busy(0, 2*halfLife))
			if a, b := runs(), runs(); a == b {
				t.Errorf("news that come late keep kernels on device %d", a)
			}
		}
	}
}

// Half of what is said of others is believed after two seconds, and what changes the devices does not
// change that.
func TestNewsOfOthersFade(t *testing.T) {
	c := spread(t, "ag", 2, 1)
	if _, err := c.Control(1, control.Beside{Devices: []control.Busyness{{Device: 1, Calls: 4000}, {Device: 7, Calls: 1}}}); err != nil {
		t.Fatal(err)
	}
	from := c.Now
	for _, when := range []struct {
		after Time
		calls int32
	}{{0, 4}, {halfLife, 2}, {2 * halfLife, 1}, {outOfDate, 0}} {
		c.Now = from + when.after
		c.mapped.stale()
		if err := c.mapped.choose(&Function{Module: 1}, 1, nil, mappedChunk); err != nil {
			t.Fatal(err)
		}
		if n := c.mapped.view.Table.Others(1); n != when.calls {
			t.Errorf("after %v %d calls are believed, and not %d", when.after, n, when.calls)
		}
	}
}

// What other mapped programs have queued counts at once, beside what the daemon says of others; a new
// table knows it too.
func TestQueuesOfOtherPrograms(t *testing.T) {
	c := spread(t, "ag", 3, 1)
	post(t, c, launchOf(0, 0))
	table := func(device int) int32 { return c.mapped.view.Table.Others(c.mapped.rows[device]) }
	c.Queues(1, 3)
	c.Queues(9, 3) // no such device
	if _, err := c.Control(c.Now+1, control.Beside{Devices: []control.Busyness{{Device: 1, Calls: 2000}, {Device: 2, Calls: 1000}}}); err != nil {
		t.Fatal(err)
	}
	if table(0) != 0 || table(1) != 5 || table(2) != 1 {
		t.Errorf("%d, %d and %d calls of others", table(0), table(1), table(2))
	}
	c.mapped.stale()
	post(t, c, launchOf(0, 0))
	c.Queues(1, 1)
	if _, err := c.Control(c.Now+1, control.Beside{}); err != nil {
		t.Fatal(err)
	}
	if table(1) != 1 || table(2) != 0 {
		t.Errorf("%d and %d calls of others are left", table(1), table(2))
	}
	c.Queues(1, 0)
	if table(1) != 0 {
		t.Errorf("%d calls of others are left", table(1))
	}
}

// Where every device is busy, ar draws among all of them.
func TestAdaptiveRandomWhereAllAreBusy(t *testing.T) {
	c := spread(t, "ar", 4, 4)
	at := map[int]bool{}
	for i := range uint64(200) {
		for device := range c.config.Devices {
			c.Queues(device, 2)
		}
		_, p := post(t, c, launchOf(i%4, i%4))
		c.Ran(c.Now, []KernelEnd{{Ticket: c.mapped.ticket, Device: p.Index(), Took: 50e6}})
		at[p.Index()] = true
	}
	if len(at) != 4 {
		t.Errorf("kernels run on %v alone", at)
	}
}
