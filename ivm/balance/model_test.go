package balance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"muster/ivm"
	"muster/ivm/core"
)

// model is a program whose elements are coroutines, in virtual time. core.Root decides what they hear of
// each other, as for a real program.
type model struct {
	rng      *rand.Rand
	root     *core.Root
	elements []*modelled
	ready    []*modelled // in the order of their answers
	clock    time.Duration
	tags     uint64
	masters  map[string][]int64
	child    func(context.Context, *modelled) error

	speeds []float64 // of the devices, which are the CPUs of the nodes
	done   []int     // how often each item was done
	// What befalls a child at a piece; nil for nothing.
	trouble func(*rand.Rand) trouble
}

// trouble is what may befall an element.
type trouble int

const (
	none    trouble = iota
	dies            // before it has done its piece
	late            // dies after it has done it, but before it says so
	leaves          // ends politely, without its piece
	signals         // without having done its piece, and goes on
)

// modelled is an element.
type modelled struct {
	m      *model
	id     ivm.ID
	device ivm.Device

	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	answer *core.Answer
	wakes  time.Duration // if it sleeps
	sleeps bool
	over   bool // it has ended, or is to end
}

var errDied = errors.New("this element died")

// play runs a program until its first element is done, and returns what that returns.
func play(t *testing.T, seed uint64, speeds []float64, items int, trouble func(*rand.Rand) trouble, root, child func(context.Context, *modelled) error) (m *model, err error) {
	m = &model{
		rng: rand.New(rand.NewPCG(seed, 1)), root: core.NewRoot(len(speeds)),
		masters: map[string][]int64{}, child: child, speeds: speeds, done: make([]int, items), trouble: trouble,
	}
	for i := range speeds {
		m.root.Step(core.Joined{Node: core.NodeID(i), Info: core.NodeInfo{Cores: 1}})
	}
	first := m.begin(0, func(x *modelled) { err = root(t.Context(), x) })
	for !first.over {
		m.next(t, seed).resume()
	}
	for _, x := range m.elements {
		x.stop()
	}
	return m, err
}

// begin makes an element, which is ready to run.
func (m *model) begin(node int, live func(x *modelled)) *modelled {
	x := &modelled{m: m, id: ivm.ID(len(m.elements)), device: ivm.CPU(node)}
	x.resume, x.stop = iter.Pull(func(yield func(struct{}) bool) {
		x.yield = yield
		live(x)
		x.over = true
	})
	m.elements, m.ready = append(m.elements, x), append(m.ready, x)
	return x
}

// next is the element that runs next: one that was answered, or else the one that wakes first.
func (m *model) next(t *testing.T, seed uint64) (next *modelled) {
	for len(m.ready) > 0 {
		next, m.ready = m.ready[0], m.ready[1:]
		if !next.over {
			return next
		}
	}
	next = nil
	for _, x := range m.elements {
		if x.sleeps && !x.over && (next == nil || x.wakes < next.wakes) {
			next = x
		}
	}
	if next == nil {
		t.Fatalf("seed %d: all elements wait", seed)
	}
	m.clock = next.wakes
	return next
}

func (m *model) step(e core.Event) {
	for _, effect := range m.root.Step(e) {
		switch effect := effect.(type) {
		case core.Answer:
			x := m.elements[effect.To.Element]
			x.answer = &effect
			m.ready = append(m.ready, x)
		case core.Start:
			m.begin(int(effect.Device.Node), (*modelled).live)
			m.step(core.Started{Element: effect.Element})
		case core.Stop:
			m.elements[effect.Element].over = true
		}
	}
}

// live is an element's life. One that fails exits politely, as programs do that say what was wrong.
func (x *modelled) live() {
	if err := x.m.child(context.Background(), x); !errors.Is(err, errDied) {
		x.m.step(core.Exit{Element: x.id})
	}
	x.m.step(core.Ended{Element: x.id, Reason: "it was killed"})
}

// pause lets others run. False says that this element is to end.
func (x *modelled) pause() bool { return !x.over && x.yield(struct{}{}) && !x.over }

func (x *modelled) now() time.Time { return time.Unix(0, 0).Add(x.m.clock) }

// work takes the time of some items, heavy-tailed, and does them.
func (x *modelled) work(ctx context.Context, from, to int) error {
	m := x.m
	befalls := none
	if m.trouble != nil {
		befalls = m.trouble(m.rng)
	}
	switch befalls {
	case dies:
		return errDied
	case leaves:
		return errors.New("this element leaves")
	case signals:
		if err := x.Signal(ctx); err != nil {
			return err
		}
	}
	node := 0
	for ivm.CPU(node) != x.device {
		node++
	}
	long := math.Min(1e6, math.Pow(1-m.rng.Float64(), -1/0.7)) // its mean would be infinite
	x.wakes = m.clock + time.Duration((1e-4+float64(to-from)/m.speeds[node]*long)*float64(time.Second))
	x.sleeps = true
	for m.clock < x.wakes {
		if !x.pause() {
			return errDied
		}
	}
	x.sleeps = false
	for i := from; i < to; i++ {
		m.done[i]++
	}
	if befalls == late {
		return errDied
	}
	return nil
}

var codes = map[core.Code]error{core.Dead: ivm.ErrDead, core.NoElement: ivm.ErrNoElement, core.Lost: ivm.ErrLost, core.NoObject: ivm.ErrNoObject, core.Over: ivm.ErrOver}

func (x *modelled) ask(_ context.Context, event func(core.Caller) core.Event) ([]uint64, error) {
	x.m.tags++
	x.answer = nil
	x.m.step(event(core.Caller{Element: x.id, Tag: x.m.tags}))
	for x.answer == nil {
		if !x.pause() {
			return nil, errDied
		}
	}
	a := x.answer
	if a.Failure != nil {
		return a.Values, fmt.Errorf("%w: %s", codes[a.Failure.Code], a.Failure.Text)
	}
	return a.Values, nil
}

func (x *modelled) ID() ivm.ID         { return x.id }
func (x *modelled) Device() ivm.Device { return x.device }

func (x *modelled) SetMaxPEsID(ctx context.Context, most ivm.ID) error {
	_, err := x.ask(ctx, func(c core.Caller) core.Event { return core.SetMax{Caller: c, Max: most} })
	return err
}

func (x *modelled) CreatePEs(ctx context.Context, d ivm.Device, n int) (ids []ivm.ID, err error) {
	node := 0
	for ivm.CPU(node) != d {
		node++
	}
	made, err := x.ask(ctx, func(c core.Caller) core.Event {
		return core.Create{Caller: c, Device: core.Device{Node: core.NodeID(node)}, Count: n}
	})
	for _, id := range made {
		ids = append(ids, ivm.ID(id))
	}
	return ids, err
}

func (x *modelled) KillPEs(ctx context.Context, ids ...ivm.ID) error {
	_, err := x.ask(ctx, func(c core.Caller) core.Event { return core.Kill{Caller: c, Elements: ids} })
	return err
}

func (x *modelled) Signal(ctx context.Context) error {
	_, err := x.ask(ctx, func(c core.Caller) core.Event { return core.Signal{Caller: c} })
	return err
}

func (x *modelled) Wait(ctx context.Context, id ivm.ID) error {
	_, err := x.ask(ctx, func(c core.Caller) core.Event { return core.Wait{Caller: c, For: id} })
	return err
}

func (x *modelled) WaitLatest(ctx context.Context, id ivm.ID) error {
	_, err := x.ask(ctx, func(c core.Caller) core.Event { return core.WaitLatest{Caller: c, For: id} })
	return err
}

func (x *modelled) WaitAny(ctx context.Context) (ivm.ID, error) {
	found, err := x.ask(ctx, func(c core.Caller) core.Event { return core.WaitAny{Caller: c} })
	if len(found) == 0 {
		return 0, err
	}
	return ivm.ID(found[0]), err
}

// modelBoard is an element's copy of a master, or the master itself.
type modelBoard struct{ own, master []int64 }

func (x *modelled) allocate(_ context.Context, name string, words int) (board, error) {
	if x.m.masters[name] != nil {
		return nil, ivm.ErrTaken
	}
	b := make([]int64, words)
	x.m.masters[name] = b
	return modelBoard{b, b}, nil
}

func (x *modelled) open(_ context.Context, name string) (board, error) {
	master := x.m.masters[name]
	if master == nil {
		return nil, ivm.ErrNoObject
	}
	return modelBoard{append([]int64{}, master...), master}, nil
}

func (x *modelled) Free(_ context.Context, name string) error {
	delete(x.m.masters, name)
	return nil
}

func (b modelBoard) words() []int64 { return b.own }

func (b modelBoard) Put(_ context.Context, from, to int) error {
	copy(b.master[from:to], b.own[from:to])
	return nil
}

func (b modelBoard) Get(_ context.Context, from, to int) error {
	copy(b.own[from:to], b.master[from:to])
	return nil
}

func (b modelBoard) PutGroup(context.Context, ...ivm.Part) error { return nil }

// way is a balancer in a model; it tells each item how often it is to be done.
type way struct {
	name     string
	balancer func(items int, devices []ivm.Device, rng *rand.Rand) (root, child func(context.Context, *modelled) error, times int)
	recovers bool // from an element's death
}

var ways = []way{
	{"spawning", func(items int, devices []ivm.Device, rng *rand.Rand) (root, child func(context.Context, *modelled) error, times int) {
		s := Spawning{Portions: 1 + rng.IntN(3*len(devices)), Iterations: 1 + rng.IntN(3), Devices: devices}
		return func(ctx context.Context, x *modelled) error { return s.root(ctx, x, nil) },
			func(ctx context.Context, x *modelled) error {
				return s.child(ctx, x, func(portion int) error {
					from, to := Share(items, portion, s.Portions)
					return x.work(ctx, from, to)
				}, func(int) error { return nil })
			}, s.Iterations
	}, false},
	{"monitoring", func(items int, devices []ivm.Device, rng *rand.Rand) (root, child func(context.Context, *modelled) error, times int) {
		m := Monitoring{Iterations: 1 + rng.IntN(4), Devices: devices, Threshold: 1 + 2*rng.Float64(), Most: 1 + rng.IntN(3*len(devices))}
		return func(ctx context.Context, x *modelled) error { return m.root(ctx, x) },
			func(ctx context.Context, x *modelled) error {
				return m.child(ctx, x, func(_, part, parts int) error {
					from, to := Share(items, part, parts)
					return x.work(ctx, from, to)
				})
			}, m.Iterations
	}, false},
	{"guided", func(items int, devices []ivm.Device, _ *rand.Rand) (root, child func(context.Context, *modelled) error, times int) {
		g := Guided{Items: items, Devices: devices}
		return func(ctx context.Context, x *modelled) error { return g.root(ctx, x) },
			func(ctx context.Context, x *modelled) error {
				return g.child(ctx, x, func(from, to int) error { return x.work(ctx, from, to) })
			}, 1
	}, true},
}

// play draws a program of the balancer, and runs it.
func (w way) play(t *testing.T, seed uint64, trouble func(*rand.Rand) trouble) (m *model, times int, err error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	speeds := make([]float64, 1+rng.IntN(8))
	devices := make([]ivm.Device, len(speeds))
	for i := range speeds {
		speeds[i], devices[i] = math.Pow(10, 3*rng.Float64()), ivm.CPU(i)
	}
	items := rng.IntN(600)
	root, child, times := w.balancer(items, devices, rng)
	m, err = play(t, seed, speeds, items, trouble, root, child)
	return m, times, err
}

// Whatever time each piece takes, all items are done once.
func TestBalancersInVirtualTime(t *testing.T) {
	for _, w := range ways {
		for seed := range uint64(200) {
			m, times, err := w.play(t, seed, nil)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", w.name, seed, err)
			}
			for i, n := range m.done {
				if n != times {
					t.Fatalf("%s, seed %d: item %d of %d was done %d times, not %d", w.name, seed, i, len(m.done), n, times)
				}
			}
		}
	}
}

// Elements die, leave, or signal for reasons of their own. Root returns an error, or all work is done.
func TestBalancersWithElementsThatFail(t *testing.T) {
	for _, w := range ways {
		var ended, failed int
		for seed := range uint64(300) {
			troubled := 0
			m, times, err := w.play(t, seed, func(rng *rand.Rand) trouble {
				if rng.IntN(12) > 0 {
					return none
				}
				troubled++
				return trouble(1 + rng.IntN(4))
			})
			if err == nil {
				ended++
				for i, n := range m.done {
					if n < times || troubled == 0 && n > times {
						t.Fatalf("%s, seed %d: item %d of %d was done %d times, not %d, and Root returned nil", w.name, seed, i, len(m.done), n, times)
					}
				}
				continue
			}
			failed++
			if troubled == 0 || w.recovers && troubled < len(m.speeds) {
				t.Fatalf("%s, seed %d: %d of %d elements failed, and Root returned %v", w.name, seed, troubled, len(m.speeds), err)
			}
		}
		if ended == 0 || failed == 0 {
			t.Errorf("%s: %d programs ended well and %d failed: the model shows little", w.name, ended, failed)
		}
	}
}

// A guide needs no element on every device, but one at least.
func TestGuidedWithFewerElementsThanDevices(t *testing.T) {
	const items = 100
	g := Guided{Items: items, Devices: []ivm.Device{ivm.CPU(0), ivm.CPU(1), ivm.CPU(2)}}
	child := func(ctx context.Context, x *modelled) error {
		return g.child(ctx, x, func(from, to int) error { return x.work(ctx, from, to) })
	}
	for _, c := range []struct {
		name    string
		prepare func(ctx context.Context, x *modelled) error
		done    bool
	}{
		{"one element at most", func(ctx context.Context, x *modelled) error { return x.SetMaxPEsID(ctx, 1) }, true},
		{"two nodes lost", func(_ context.Context, x *modelled) error {
			x.m.step(core.NodeLost{Node: 1})
			x.m.step(core.NodeLost{Node: 2})
			return nil
		}, true},
		{"none at all", func(ctx context.Context, x *modelled) error {
			_, err := x.CreatePEs(ctx, ivm.CPU(0), 1)
			return errors.Join(err, x.SetMaxPEsID(ctx, 1))
		}, false},
	} {
		m, err := play(t, 1, []float64{1, 1, 1}, items, nil, func(ctx context.Context, x *modelled) error {
			return errors.Join(c.prepare(ctx, x), g.root(ctx, x))
		}, child)
		if c.done != (err == nil) || !c.done && !errors.Is(err, ErrUndone) {
			t.Errorf("%s: %v", c.name, err)
		}
		for i, n := range m.done {
			if c.done && n != 1 {
				t.Fatalf("%s: item %d was done %d times", c.name, i, n)
			}
		}
	}
}

func TestLedger(t *testing.T) {
	for _, c := range []struct {
		spans []span
		twice bool
		want  string
	}{
		{nil, false, "of 10 items those from 0 to 9 were acknowledged by no element"},
		{[]span{{0, 10}}, false, ""},
		{[]span{{7, 10}, {0, 3}, {3, 7}, {5, 5}}, false, ""},
		{[]span{{8, 10}, {2, 4}}, false, "of 10 items those from 0 to 1 were acknowledged by no element"},
		{[]span{{0, 2}, {8, 10}, {2, 4}}, false, "of 10 items those from 4 to 7 were acknowledged by no element"},
		{[]span{{0, 4}, {6, 10}, {5, 7}}, true, ""},
		{[]span{{0, 4}, {3, 4}}, true, ""},
		{[]span{{3, 4}, {0, 10}}, true, ""},
	} {
		var l ledger
		var err error
		for _, s := range c.spans {
			err = errors.Join(err, l.add(s))
		}
		if c.twice != (err != nil) {
			t.Errorf("%v: %v", c.spans, err)
		}
		if err := l.complete(10); !c.twice && (c.want == "") != (err == nil) || c.want != "" && err.Error() != ErrUndone.Error()+": "+c.want {
			t.Errorf("%v: %v", c.spans, err)
		}
	}
}
