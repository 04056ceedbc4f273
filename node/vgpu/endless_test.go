package vgpu

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// A ward is a core in virtual time whose clients run kernels of all lengths, some of which never end:
// a worker lets go of its device only between two kernels, as on a real GPU. With a kernel time, a
// kernel that takes longer ends in a fault.
type ward struct {
	t       fataler
	core    *Core
	now     Time
	limit   time.Duration // on kernels; 0: none
	inmates []*inmate     // by number, from 1
}

// fataler ends a test.
type fataler interface{ Fatalf(string, ...any) }

// inmate is a client with its worker and its program, which runs kernels for ever.
type inmate struct {
	id       ClientID
	user     string
	priority int
	needs    []uint64        // of its turns
	kernels  []time.Duration // that it launches one after the other; never for one that never ends
	think    time.Duration   // between two rounds of kernels

	bound, ready, revoked, watched bool
	device                         DeviceID
	memory                         uint64
	next                           int  // which of kernels comes next
	acts                           Time // when its kernel ends, or when it wants again; never: never
	runs                           bool // a kernel is on the device
	since                          Time // when it began to wait, or became able to be served
	served                         int
}

const never = time.Duration(math.MaxInt64)

func drawWard(t *rapid.T, limit time.Duration) *ward {
	cfg := Config{
		Policy:    Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		MaxPasses: rapid.IntRange(1, 8).Draw(t, "passes"),
		SlotLimit: rapid.IntRange(0, 3).Draw(t, "limit"),
		Migrate:   rapid.Bool().Draw(t, "migrate"), MoveStep: uint64(rapid.SampledFrom([]int{0, 5}).Draw(t, "step")),
	}
	slots := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 2).Draw(t, "slots")
	var inmates []*inmate
	for range rapid.IntRange(2, 8).Draw(t, "clients") {
		x := &inmate{user: rapid.SampledFrom([]string{"ann", "bob", "cyd"}).Draw(t, "user"), priority: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "priority")}
		x.needs = rapid.SliceOfN(rapid.SampledFrom([]uint64{5, 20, 40, 90}), 1, 2).Draw(t, "needs")
		x.think = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 5 * time.Millisecond}).Draw(t, "think")
		x.kernels = rapid.SliceOfN(rapid.SampledFrom([]time.Duration{time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond, never}), 1, 4).Draw(t, "kernels")
		x.acts = time.Duration(rapid.IntRange(0, 20).Draw(t, "begins")) * time.Millisecond
		inmates = append(inmates, x)
	}
	return newWard(t, limit, cfg, slots, inmates)
}

// newWard makes a ward with devices of 100 bytes, which have that many slots each.
func newWard(t fataler, limit time.Duration, cfg Config, slots []int, inmates []*inmate) *ward {
	cfg.MaxIdle, cfg.Quantum, cfg.MaxWait = time.Millisecond, time.Millisecond, time.Millisecond
	cfg.MoveBandwidth, cfg.MoveCost = 1<<20, time.Millisecond
	for i, n := range slots {
		cfg.Devices = append(cfg.Devices, Device{Name: fmt.Sprint("d", i), Slots: n, Memory: 100, ContextCost: 5})
	}
	core, err := New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &ward{t: t, core: core, limit: limit, inmates: inmates}
	for i, x := range inmates {
		x.id = ClientID(i + 1)
		w.tell(Attach{Client: x.id, User: x.user, Weight: 1, Priority: x.priority})
	}
	return w
}

func (w *ward) tell(e Event) {
	for _, effect := range w.core.Step(w.now, e) {
		w.perform(effect)
	}
}

func (w *ward) perform(e Effect) {
	x := w.inmates[e.Client-1]
	switch e.Kind {
	case Grant:
		if x.ready {
			x.bound, x.ready, x.watched, x.device = true, false, false, e.Device
			x.served++
			x.acts = w.now // its first kernel begins when all is there
		}
		if x.memory = e.Memory; e.Coming > 0 {
			x.acts = never
		} else if !x.runs {
			x.acts = w.now
		}
	case Revoke:
		x.revoked = true
		if !x.runs {
			x.acts = w.now
		}
	case Watch:
		x.watched = e.On
	case Deny: // of the rest of what it was to get
		x.revoked, x.acts = true, w.now
	default:
		w.t.Fatalf("at %v: %v", w.now, e)
	}
}

// act has a client do what it is time for.
func (w *ward) act(x *inmate) {
	switch {
	case x.runs:
		w.ends(x)
	case x.bound && x.revoked:
		w.leaves(x)
	case !x.bound && x.revoked: // it keeps nothing
		w.t.Fatalf("client %d is told to leave, and is not there", x.id)
	case x.bound && x.next == len(x.kernels):
		w.leaves(x) // it thinks, on the host
		x.next, x.acts = 0, w.now+x.think
	case x.bound:
		w.launches(x)
	case !x.ready:
		x.ready, x.since, x.acts = true, w.now, never
		w.tell(Want{Client: x.id, Need: x.needs[x.served%len(x.needs)], Pinned: AnyDevice})
	}
}

func (w *ward) launches(x *inmate) {
	took := x.kernels[x.next]
	x.next++
	x.runs, x.acts = true, never
	if w.limit > 0 {
		took = min(took, w.limit)
	}
	if took != never {
		x.acts = w.now + took
	}
	w.tell(Began{Client: x.id})
	w.tell(Busy{Client: x.id})
}

// ends ends a kernel: the client goes on, leaves, or is told that the kernel took too long.
func (w *ward) ends(x *inmate) {
	took := x.kernels[x.next-1]
	x.runs, x.acts = false, w.now
	w.tell(Ran{Client: x.id, Kernels: 1, Busy: min(took, max(w.limit, time.Second))})
	if w.limit > 0 && took > w.limit {
		x.bound, x.revoked, x.memory, x.next = false, false, 0, 0
		w.tell(Faulted{Client: x.id})
	}
}

func (w *ward) leaves(x *inmate) {
	x.bound, x.revoked, x.memory, x.acts = false, false, 0, w.now
	w.tell(Released{Client: x.id})
}

// isStuck says that a client has a device and will never leave it.
func (w *ward) isStuck(x *inmate) bool { return x.runs && x.acts == never }

// possible says whether a client could be served if all left that ever will: its user has fewer
// slots than it may, and a device has a slot and memory, beside those that stay for ever.
func (w *ward) possible(x *inmate) bool {
	slots := map[DeviceID]int{}
	taken := map[DeviceID]uint64{}
	of := 0
	for _, y := range w.inmates {
		if !w.isStuck(y) {
			continue
		}
		slots[y.device]++
		taken[y.device] += y.memory + 5
		if y.user == x.user {
			of++
		}
	}
	if most := w.core.cfg.SlotLimit; most > 0 && of >= most {
		return false
	}
	need := w.core.clients[x.id].want.Need
	return slices.ContainsFunc(w.core.devices, func(d *device) bool {
		return slots[d.id] < d.Slots && taken[d.id]+need+d.ContextCost <= d.Memory
	})
}

// play lets time pass, and checks that nobody waits for longer than the bound who could be served.
func (w *ward) play(until, bound time.Duration) {
	for w.now < until {
		at := until
		if t, ok := w.core.Next(); ok {
			at = min(at, t)
		}
		for _, x := range w.inmates {
			at = min(at, x.acts)
		}
		w.now = max(w.now, at)
		w.tell(Tick{})
		for _, x := range w.inmates {
			if x.acts <= w.now {
				w.act(x)
			}
		}
		for _, x := range w.inmates {
			switch {
			case !x.ready:
			case !w.possible(x):
				x.since = w.now
			case w.now-x.since > bound:
				w.t.Fatalf("at %v client %d of %s waits since %v\n%s", w.now, x.id, x.user, x.since, w.describe())
			}
		}
	}
}

// describe says who has what, and who keeps it from whom.
func (w *ward) describe() (text string) {
	for _, x := range w.core.View().Clients {
		c := w.core.clients[x.ID]
		text += fmt.Sprintf("client %d of %s: %v, has %d, needs %d, revoking %v, claim %+v, reserved %v, lapses %d, holds by %v\n", x.ID, x.User, x.State, x.Memory, x.Need, x.Revoking, c.claim, c.reserved != nil, c.lapses, c.holdsBy)
	}
	for _, d := range w.core.devices {
		text += fmt.Sprintf("device %d: %d of %d slots, %d promised, %d bytes taken, %d promised, reserved %v\n", d.id, d.bound, d.Slots, d.claims, d.used, d.claimed, d.reservedFor != nil)
	}
	return text
}

// Without a kernel time, all are served who fit beside the kernels that never end, and whose users
// have fewer slots than they may. With one, all are.
func TestNobodyWaitsForEver(t *testing.T) {
	for name, limit := range map[string]time.Duration{"without a kernel time": 0, "with a kernel time": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			seeds.Check(t, func(t *rapid.T) { drawWard(t, limit).play(1500*time.Millisecond, time.Second) })
		})
	}
}

// These were found by TestNobodyWaitsForEver.
func TestTurnsOfFullUsers(t *testing.T) {
	const ms = time.Millisecond
	for name, w := range map[string]*ward{
		// Bob may have one slot. His client that needs much is kept room for, and a slot: his other two, which
		// come and go all the time, would otherwise have the slot whenever the room is there.
		"one needs much": newWard(t, 0, Config{MaxPasses: 3, SlotLimit: 1, Migrate: true}, []int{2, 1}, []*inmate{
			{user: "ann", needs: []uint64{40}, kernels: []time.Duration{ms, ms}, acts: 19 * ms},
			{user: "bob", needs: []uint64{90}, kernels: []time.Duration{3 * ms, 3 * ms}, think: 5 * ms, acts: 14 * ms},
			{user: "bob", needs: []uint64{20, 5}, kernels: []time.Duration{ms}, think: ms, acts: 14 * ms, priority: 1},
			{user: "cyd", needs: []uint64{90}, kernels: []time.Duration{never}},
			{user: "cyd", needs: []uint64{20}, kernels: []time.Duration{never}},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms}, think: ms, acts: 15 * ms},
		}),
		// Bob's first client fits nowhere beside kernels that never end. It tries one device after the other;
		// the slot that is kept for it meanwhile is not kept from his other clients all the time.
		"one fits nowhere": newWard(t, 0, Config{MaxPasses: 1, SlotLimit: 2}, []int{2, 1}, []*inmate{
			{user: "bob", needs: []uint64{90}, kernels: []time.Duration{ms}},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms}},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms, never}},
			{user: "ann", needs: []uint64{5}, kernels: []time.Duration{8 * ms}, think: ms},
			{user: "ann", needs: []uint64{5}, kernels: []time.Duration{never}, acts: 6 * ms},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms}},
		}),
		// When what was reserved for cyd is free for others, the one of bob's that has waited longest has it.
		"many wait for what is reserved": newWard(t, 10*ms, Config{MaxPasses: 1, SlotLimit: 1}, []int{2}, []*inmate{
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms, ms, ms, 3 * ms}},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{never}, think: ms, acts: 2 * ms},
			{user: "bob", needs: []uint64{20}, kernels: []time.Duration{3 * ms}, acts: 13 * ms},
			{user: "cyd", needs: []uint64{20, 90}, kernels: []time.Duration{ms, ms}, acts: 18 * ms, priority: 1},
			{user: "bob", needs: []uint64{5}, kernels: []time.Duration{ms}, think: ms, acts: ms},
			{user: "ann", needs: []uint64{90, 5}, kernels: []time.Duration{ms}, think: ms, acts: 2 * ms},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.play(1500*ms, time.Second)
		})
	}
}
