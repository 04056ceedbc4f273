package vgpu

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// How long turns are: by weight, with what others owe, and never too short. Those of a round
// add up to a quantum for each who takes part.
func TestTurnLengths(t *testing.T) {
	const q = 8 * time.Second
	s := func(seconds ...float64) (list []time.Duration) {
		for _, x := range seconds {
			list = append(list, time.Duration(x*float64(time.Second)))
		}
		return list
	}
	for _, c := range []struct {
		name string
		all  []claimant
		want []time.Duration
	}{
		{"alone", []claimant{{1, 0}}, s(8)},
		{"equals", []claimant{{3, 0}, {3, 0}, {3, 0}}, s(8, 8, 8)},
		{"weights", []claimant{{1, 0}, {3, 0}}, s(4, 12)},
		{"a debt", []claimant{{1, -s(2)[0]}, {1, s(2)[0]}}, s(6, 10)},
		{"a debt beyond the turn", []claimant{{1, -s(32)[0]}, {1, s(32)[0]}}, s(1, 15)},
		{"little weight", []claimant{{1, 0}, {999, 0}}, s(1, 15)},
	} {
		f := fieldOf(q, c.all)
		for i, x := range c.all {
			if got := f.turn(x); got-c.want[i] > time.Microsecond || c.want[i]-got > time.Microsecond {
				t.Errorf("%s: turn %d is %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}

func TestTurnsOfARoundAddUp(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		q := time.Duration(rapid.Int64Range(int64(MinQuantum), int64(MaxQuantum)).Draw(t, "quantum"))
		all := make([]claimant, rapid.IntRange(1, 20).Draw(t, "claimants"))
		var owed time.Duration
		for i := range all {
			all[i] = claimant{rapid.Int64Range(1, 1000).Draw(t, "weight"), time.Duration(rapid.Int64Range(-maxDebt, maxDebt).Draw(t, "balance")) * q}
			owed += all[i].balance
		}
		all[0].balance -= owed // what all owe each other is nothing
		f := fieldOf(q, all)
		var sum time.Duration
		for _, x := range all {
			turn := f.turn(x)
			if turn < q/leastPart {
				t.Fatalf("a turn of %v with a quantum of %v", turn, q)
			}
			sum += turn
		}
		if most := q * time.Duration(len(all)); sum > most+most/1000 || sum < most-most/1000 {
			t.Fatalf("%d turns take %v, and the quantum is %v", len(all), sum, q)
		}
	})
}

// rivalry plays programs that are always busy and do not fit together on one device: each is
// granted, moves in, runs until it is told to leave, lets its kernels end, moves out and wants
// the device again at once.
type rivalry struct {
	core     *Core
	now      Time
	programs map[ClientID]*rival
	log      []string
	wrong    func(format string, args ...any)
}

type rival struct {
	need            uint64
	in, out, kernel time.Duration // a kernel is never interrupted
	landsAt, goesAt Time          // 0: it does not
	began           Time
	running         bool
	since           Time // it waits
	waits           bool
	ran, longest    time.Duration
	turns           int
}

func newRivalry(quantum time.Duration, fail func(string, ...any)) *rivalry {
	core, err := New(Config{Devices: []Device{{Name: "a", Slots: 4, Memory: 1000}}, Quantum: quantum, MaxIdle: 10 * time.Millisecond, MaxWait: time.Hour, MaxPasses: 1 << 20})
	if err != nil {
		fail("%v", err)
	}
	return &rivalry{core: core, programs: map[ClientID]*rival{}, wrong: fail}
}

func (w *rivalry) add(id ClientID, weight, priority int, p *rival) {
	w.programs[id] = p
	w.step(Attach{Client: id, User: fmt.Sprint("u", id), Weight: weight, Priority: priority})
	w.want(id)
}

func (w *rivalry) want(id ClientID) {
	p := w.programs[id]
	p.since, p.waits = w.now, true
	w.step(Want{Client: id, Need: p.need, Pinned: AnyDevice})
}

func (w *rivalry) step(e Event) {
	for _, effect := range w.core.Step(w.now, e) {
		w.log = append(w.log, fmt.Sprint(w.now, " ", effect))
		p := w.programs[effect.Client]
		switch effect.Kind {
		case Grant:
			p.waits = false
			p.longest = max(p.longest, w.now-p.since)
			p.landsAt = w.now + p.in + 1
		case Revoke:
			if p.landsAt != 0 && !p.running {
				w.wrong("client %d is told to leave before its memory is there", effect.Client)
			}
			p.goesAt = w.now + p.kernel + p.out + 1
		}
	}
	var owed time.Duration
	for _, x := range w.core.clients {
		owed += x.tenure.balance
	}
	if owed != 0 {
		w.wrong("what clients owe each other comes to %v", owed)
	}
}

// play goes on until a time.
func (w *rivalry) play(end Time) {
	for {
		at, what := end, func() {}
		consider := func(t Time, f func()) {
			if t != 0 && t < at {
				at, what = t, f
			}
		}
		if t, ok := w.core.Next(); ok {
			consider(max(t, w.now), func() { w.step(Tick{}) })
		}
		ids := make([]ClientID, 0, len(w.programs))
		for id := range w.programs {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, cmp.Compare[ClientID])
		for _, id := range ids {
			p := w.programs[id]
			consider(p.landsAt, func() {
				p.landsAt, p.running, p.began = 0, true, w.now
				w.step(Began{id, p.in})
			})
			consider(p.goesAt, func() { w.goes(id) })
		}
		if at >= end {
			w.now = end
			return
		}
		w.now = at
		what()
	}
}

func (w *rivalry) goes(id ClientID) {
	p := w.programs[id]
	ran := w.now - p.out - p.began
	p.ran += ran
	p.turns++
	p.goesAt, p.running = 0, false
	w.step(Ran{id, 1, ran})
	w.step(Released{Client: id, Took: p.out})
	w.want(id)
}

// Nobody waits for longer than the others' turns, which are a quantum each, and their moves.
// What they owe each other is nothing after each step, and the same events have the same end.
func TestNobodyWaitsLongerThanTheOthersTurns(t *testing.T) {
	seeds.Check(t, func(rt *rapid.T) {
		quantum := time.Duration(rapid.IntRange(10, 3000).Draw(rt, "quantum")) * time.Millisecond
		n := rapid.IntRange(2, 8).Draw(rt, "programs")
		weighted := rapid.Bool().Draw(rt, "weighted")
		var list []rival
		var weights []int
		var moves time.Duration
		for range n {
			move := time.Duration(rapid.IntRange(0, int(quantum/time.Millisecond)/2/moveParts/leastPart).Draw(rt, "move")) * time.Millisecond
			kernel := time.Duration(rapid.IntRange(0, 100).Draw(rt, "kernel")) * quantum / 1000
			list = append(list, rival{need: uint64(rapid.IntRange(501, 1000).Draw(rt, "need")), in: move, out: move, kernel: kernel})
			moves += 2*move + kernel
			weight := 1
			if weighted {
				weight = rapid.IntRange(1, 8).Draw(rt, "weight")
			}
			weights = append(weights, weight)
		}
		run := func() *rivalry {
			w := newRivalry(quantum, rt.Fatalf)
			for i := range list {
				p := list[i]
				w.add(ClientID(i+1), weights[i], 0, &p)
			}
			w.play(time.Duration(20*n) * quantum)
			return w
		}
		w, again := run(), run()
		if !slices.Equal(w.log, again.log) {
			rt.Fatal("the same events have two ends")
		}
		for id, p := range w.programs {
			if p.waits {
				p.longest = max(p.longest, w.now-p.since)
			}
			// A round is n quanta; where a debt is paid back in the round after, one turn more.
			if most := time.Duration(n+1)*quantum + 2*moves; p.longest > most {
				rt.Fatalf("client %d waited for %v, beyond %v: %d programs with a quantum of %v, moves of %v in all\n%+v", id, p.longest, most, n, quantum, moves, p)
			}
			if p.turns < 5 {
				rt.Fatalf("client %d had %d turns in %d quanta", id, p.turns, 20*n)
			}
		}
	})
}

// Time is shared by weight, also where a program's kernels are long, and moves cost something.
func TestTimeIsSharedByWeight(t *testing.T) {
	w := newRivalry(time.Second, t.Fatalf)
	w.add(1, 1, 0, &rival{need: 700, in: 20 * time.Millisecond, out: 20 * time.Millisecond})
	w.add(2, 3, 0, &rival{need: 700, in: 50 * time.Millisecond, out: 50 * time.Millisecond})
	w.add(3, 1, 0, &rival{need: 700, kernel: 300 * time.Millisecond}) // its turns end late, for which it pays
	w.play(1000 * time.Second)
	all := w.programs[1].ran + w.programs[2].ran + w.programs[3].ran
	for id, part := range map[ClientID]float64{1: 0.2, 2: 0.6, 3: 0.2} {
		if got := float64(w.programs[id].ran) / float64(all); got < part-0.03 || got > part+0.03 {
			t.Errorf("client %d had %.3f of the time, want %.2f", id, got, part)
		}
	}
	if all < 900*time.Second {
		t.Errorf("kernels ran for %v of 1000 s", all)
	}
}

// Where moving costs much, turns are longer, so that moves take at most an eighth of the time;
// but not beyond a bound.
func TestMovesAreWorthwhile(t *testing.T) {
	for _, c := range []struct {
		move    time.Duration
		least   float64 // of the time in kernels
		longest time.Duration
	}{
		{10 * time.Millisecond, 0.95, 1100 * time.Millisecond},
		{200 * time.Millisecond, 0.85, 3500 * time.Millisecond},
		{2 * time.Second, 0.45, 9 * time.Second}, // four quanta, and two moves each
	} {
		w := newRivalry(time.Second, t.Fatalf)
		w.add(1, 1, 0, &rival{need: 700, in: c.move, out: c.move})
		w.add(2, 1, 0, &rival{need: 700, in: c.move, out: c.move})
		w.play(1000 * time.Second)
		ran := w.programs[1].ran + w.programs[2].ran
		longest := max(w.programs[1].longest, w.programs[2].longest)
		if part := ran.Seconds() / 1000; part < c.least || longest > c.longest {
			t.Errorf("moves of %v: %.3f of the time in kernels, want %.2f; longest wait %v, want at most %v", c.move, part, c.least, longest, c.longest)
		}
	}
}

// A program of a higher priority is not told to leave for one of a lower, until that has
// waited too long; it goes first where both wait.
func TestPriorities(t *testing.T) {
	w := newRivalry(time.Second, t.Fatalf)
	w.core.cfg.MaxWait = 10 * time.Second
	w.add(1, 1, 0, &rival{need: 700})
	w.play(1500 * time.Millisecond)
	w.add(2, 1, 0, &rival{need: 700})
	w.add(3, 1, 1, &rival{need: 700})
	w.play(200 * time.Second)
	if w.programs[3].longest > 7*time.Second/2 || w.programs[1].longest > 15*time.Second || w.programs[2].longest > 15*time.Second {
		t.Errorf("waits of %v, %v and, with the higher priority, %v", w.programs[1].longest, w.programs[2].longest, w.programs[3].longest)
	}
	if w.programs[3].ran < 4*w.programs[1].ran {
		t.Errorf("kernels ran for %v, %v and, with the higher priority, %v", w.programs[1].ran, w.programs[2].ran, w.programs[3].ran)
	}
}

// Without a quantum a busy program keeps its device.
func TestNoQuantumNoTurns(t *testing.T) {
	w := newRivalry(0, t.Fatalf)
	w.add(1, 1, 0, &rival{need: 700})
	w.add(2, 1, 0, &rival{need: 700})
	w.play(time.Minute)
	if w.programs[1].turns != 0 || !w.programs[2].waits {
		t.Error("a busy program was told to leave")
	}
}

// A worker that never says that its memory is there has no longer turn for it.
func TestSilentWorkersHaveTurns(t *testing.T) {
	core, err := New(Config{Devices: []Device{{Name: "a", Memory: 1 << 30}}, Quantum: time.Second, MaxIdle: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for id := ClientID(1); id <= 2; id++ {
		core.Step(0, Attach{Client: id, User: "ann"})
		core.Step(0, Want{Client: id, Need: 1<<29 + 1<<28, Pinned: AnyDevice})
	}
	for at, ok := core.Next(); ok && at < time.Minute; at, ok = core.Next() {
		for _, e := range core.Step(at, Tick{}) {
			if e.Kind == Revoke && e.Client == 1 {
				if at > 4*time.Second {
					t.Errorf("it was told to leave after %v", at)
				}
				return
			}
		}
	}
	t.Error("it was never told to leave")
}

// Whoever leaves because its turn is over, or in an idle moment, keeps as much as the next one
// leaves room for, and gets the device back as soon as that has left what it lacks.
func TestWhatIsInNobodysWayStays(t *testing.T) {
	for _, idle := range []bool{false, true} {
		core, err := New(Config{Devices: []Device{{Name: "a", Slots: 4, Memory: 1000, ContextCost: 50}}, Quantum: time.Second, MaxIdle: time.Hour, MaxWait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		now := Time(0)
		revoked := func(all []Effect) (found *Effect) {
			for i := range all {
				if all[i].Kind == Revoke {
					found = &all[i]
				}
			}
			return found
		}
		core.Step(now, Attach{Client: 1, User: "u", Weight: 1})
		core.Step(now, Attach{Client: 2, User: "v", Weight: 1})
		core.Step(now, Want{Client: 1, Need: 750, Pinned: AnyDevice})
		for turn := range 6 {
			on, next := ClientID(turn%2+1), ClientID((turn+1)%2+1)
			core.Step(now, Began{Client: on, Took: time.Millisecond})
			all := core.Step(now, Want{Client: next, Need: 750, Pinned: AnyDevice})
			now += 5 * time.Second
			if all = append(all, core.Step(now, Tick{})...); idle {
				all = append(all, core.Step(now, Idle{Client: on})...)
			}
			gone := revoked(all)
			if gone == nil || gone.Client != on || gone.Keep != 150 {
				t.Fatalf("turn %d, idle %v: %v", turn, idle, all)
			}
			core.Step(now, Ran{Client: on, Kernels: 1, Busy: time.Second})
			all = core.Step(now, Released{Client: on, Keeps: 50 + gone.Keep, Took: time.Millisecond})
			if len(all) == 0 || all[0].Kind != Grant || all[0].Client != next || all[0].Memory != 750 {
				t.Fatalf("turn %d, idle %v: after that %v", turn, idle, all)
			}
			if d := core.all[0]; d.used > 1000 {
				t.Fatalf("turn %d: %d of 1000 bytes are taken", turn, d.used)
			}
		}
		// One who needs all of it takes what is kept, too.
		core.Step(now, Began{Client: 1, Took: time.Millisecond})
		core.Step(now, Attach{Client: 3, User: "w", Weight: 1})
		core.Step(now, Want{Client: 3, Need: 950, Pinned: AnyDevice})
		now += 5 * time.Second
		all := core.Step(now, Tick{})
		for _, e := range all {
			if e.Kind == Revoke && e.Keep != 0 {
				t.Errorf("idle %v: %v, where nothing may stay", idle, e)
			}
		}
	}
}
