package node

import (
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"muster/node/loop"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

// A script for one worker: each step is an interval.
func TestPulse(t *testing.T) {
	type step struct {
		answers int // how many of the oldest open pings the worker answers in the interval
		late    bool
		extra   int // pings that the daemon sends in between, as after a revocation
		alive   bool
	}
	answered, silent, late := step{answers: 1, alive: true}, step{alive: true}, step{late: true, alive: true}
	dead := step{}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"answers", []step{answered, answered, answered, answered, answered}},
		{"stops", []step{answered, silent, silent, dead}},
		{"stops at once", []step{silent, silent, dead}},
		{"is slow, and is forgiven", []step{silent, silent, answered, silent, silent, answered, silent, silent, dead}},
		{"answers an old ping after two intervals", []step{silent, silent, {answers: 1, alive: true}, silent, {answers: 4, alive: true}}},
		{"the daemon slept", []step{answered, late, late, late, late, silent, silent, dead}},
		{"the daemon slept while the worker was silent", []step{silent, late, silent, late, late, dead}},
		{"a ping just before the tick is not due yet", []step{{answers: 1, extra: 1, alive: true}, {answers: 2, extra: 1, alive: true}, {answers: 2, alive: true}}},
		{"answers the extra ping only", []step{{extra: 1, answers: 2, alive: true}, silent, silent, dead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pulse{pinged: 1, ponged: 1} // as when its client was assigned
			p.beat(true)
			for i, s := range c.steps {
				p.pinged += uint64(s.extra)
				p.ponged = min(p.pinged, p.ponged+uint64(s.answers))
				if _, alive := p.beat(!s.late); alive != s.alive {
					t.Fatalf("step %d: alive is %v: %+v", i, alive, p)
				}
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	h := newHeartbeat(8 * time.Second)
	for i, c := range []struct {
		now       time.Duration
		due, fair bool
	}{
		{time.Minute, true, false}, // the first client came when nobody was pinged for long
		{61 * time.Second, false, false},
		{62 * time.Second, true, true},
		{64*time.Second + 999*time.Millisecond, true, true},
		{66 * time.Second, false, false}, // a whole interval must pass
		{66*time.Second + 999*time.Millisecond, true, true},
		{time.Hour, true, false}, // asleep: nothing is made up for
		{time.Hour, false, false},
		{time.Hour + 2*time.Second, true, true},
	} {
		if due, fair := h.tick(c.now); due != c.due || fair != c.fair {
			t.Errorf("%d, at %v: due %v, fair %v", i, c.now, due, fair)
		}
		if at, ok := h.next(); !ok || at <= c.now {
			t.Errorf("%d: the next is at %v, %v", i, at, ok)
		}
	}
	never := newHeartbeat(0)
	if due, _ := never.tick(time.Hour); due {
		t.Error("there are no pings with a timeout of 0")
	}
	if _, ok := never.next(); ok {
		t.Error("there is no alarm with a timeout of 0")
	}
}

// A worker that stops at any moment is found dead within the timeout, and not
// before it has let maxMissed whole intervals pass.
func TestTimeoutIsKept(t *testing.T) {
	const timeout, step = 800, 10
	for stopped := time.Duration(0); stopped < 3*timeout; stopped += step {
		h, p := newHeartbeat(timeout), pulse{pinged: 1, ponged: 1}
		for now := time.Duration(0); ; now += step {
			if now < stopped {
				p.ponged = p.pinged
			}
			due, fair := h.tick(now)
			if !due {
				continue
			}
			if _, alive := p.beat(fair); alive {
				continue
			}
			if silent := now - stopped; silent > timeout || silent < timeout*maxMissed/(maxMissed+1)-step {
				t.Fatalf("stopped at %d, killed after %d", stopped, silent)
			}
			break
		}
	}
}

// A worker that did not come back is killed, and another takes over its client. On a busy machine it may be
// gone only after more intervals: that does not end the client.
func TestRescuedClientStays(t *testing.T) {
	now := time.Now()
	r := &rebuilder{
		common: common{log: slog.New(slog.DiscardHandler), loop: loop.New(func() time.Time { return now }), settings: new(settings.Live)},
		heart:  newHeartbeat(time.Second), checkLenders: func(bool) {},
	}
	r.settings.Store(&settings.Config{WorkerTimeout: time.Second})
	process := exec.Command("sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	start, _ := proc.Start(process.Process.Pid)
	c := &client{id: 1, worker: workers.Find(process.Process.Pid, start, 0, r.log)}
	c.kept, c.why = []control.Held{}, "its worker did not come" // as rescue leaves it
	r.clients = map[vgpu.ClientID]*client{1: c}
	for range 3 * maxMissed {
		r.checkWorkers()
		now = now.Add(time.Second / 4)
	}
	if c.ending {
		t.Error("the client has ended")
	}
}
