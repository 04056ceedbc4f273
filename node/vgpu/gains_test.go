package vgpu

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/internal/seeds"

	"pgregory.net/rapid"
)

// Gains and moves follow the same rule: as soon as there is an idle device of the speed that the first gain
// names a client moves there, and to a slower one nobody does.
func TestGainsAreMoves(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		devices, clients := rapid.IntRange(1, 3).Draw(t, "devices"), rapid.IntRange(1, 6).Draw(t, "clients")
		phases := make([]time.Duration, clients)
		for i := range phases {
			phases[i] = time.Duration(rapid.IntRange(0, 3000).Draw(t, "phase")) * time.Millisecond
		}
		start := func() *Core {
			cfg := Config{Migrate: true}
			for i := range devices {
				cfg.Devices = append(cfg.Devices, Device{Name: fmt.Sprint("d", i), Speed: 1, Memory: 1 << 40})
			}
			core, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range clients {
				core.Step(0, Attach{Client: ClientID(i), User: "ann", Weight: 1})
				core.Step(0, Want{ClientID(i), uint64(i) << 28, 0, AnyDevice})
			}
			return core
		}
		movesAt := func(effects []Effect) bool {
			return slices.ContainsFunc(effects, func(e Effect) bool { return e.Kind == Revoke && e.Reason == ForMove })
		}
		runs := func(core *Core) (moved bool) {
			for i, phase := range phases {
				moved = movesAt(core.Step(0, Ran{Client: ClientID(i), Kernels: 1, Busy: phase})) || moved
			}
			return movesAt(core.Step(0, Attach{Client: 99, User: "ann", Weight: 1})) || moved
		}
		core := start()
		if runs(core) {
			return // to an idle device that there is
		}
		gains := core.Gains(func(ClientID) bool { return true })
		beside := func(speed float64) bool {
			other := start()
			runs(other)
			return movesAt(other.Step(0, Added{Device{Name: "new", Speed: speed, Memory: 1 << 40}}))
		}
		if len(gains) == 0 {
			if beside(1e6) {
				t.Fatal("nobody gains, and somebody moves")
			}
			return
		}
		if least := gains[0].Speed; !beside(1.001*least) || beside(0.999*least) {
			t.Fatalf("a device of speed %g is enough; with a little more a client moves: %v, with a little less: %v", least, beside(1.001*least), beside(0.999*least))
		}
		for _, g := range gains {
			if g.Stay < 12*DefaultMoveCost-time.Microsecond {
				t.Fatalf("a stay of %v pays for two moves", g.Stay)
			}
		}
	})
}

// Those who cannot go, or may not, gain nothing; nor does anybody while others wait, or where nobody moves.
func TestWhoGainsNothing(t *testing.T) {
	all := func(ClientID) bool { return true }
	for name, c := range map[string]struct {
		cfg  Config
		want Want
		then []Event
		may  func(ClientID) bool
		gain int
	}{
		"a client that shares":       {Config{Migrate: true}, Want{1, 10, 0, AnyDevice}, nil, all, 2},
		"nobody moves":               {Config{}, Want{1, 10, 0, AnyDevice}, nil, all, 0},
		"one is pinned":              {Config{Migrate: true}, Want{1, 10, 0, 0}, nil, all, 1},
		"one may not":                {Config{Migrate: true}, Want{1, 10, 0, AnyDevice}, nil, func(id ClientID) bool { return id == 2 }, 1},
		"another waits":              {Config{Migrate: true}, Want{1, 10, 0, AnyDevice}, []Event{Attach{Client: 3, User: "ann", Weight: 1}, Want{3, 10, 0, AnyDevice}}, all, 0},
		"one has been told to leave": {Config{Migrate: true}, Want{1, 10, 0, AnyDevice}, []Event{Drain{0}}, all, 0},
	} {
		c.cfg.Devices = []Device{{Name: "a", Slots: 2, Memory: 100}}
		core, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []ClientID{1, 2} {
			core.Step(0, Attach{Client: id, User: "ann", Weight: 1})
		}
		core.Step(0, c.want)
		core.Step(0, Want{2, 10, 0, AnyDevice})
		for _, id := range []ClientID{1, 2} {
			core.Step(0, Ran{Client: id, Kernels: 1, Busy: time.Second})
		}
		for _, e := range c.then {
			core.Step(0, e)
		}
		if got := core.Gains(c.may); len(got) != c.gain {
			t.Errorf("%s: %v", name, got)
		}
	}
}
