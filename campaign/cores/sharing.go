package cores

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"muster/node/vgpu"
)

// patience is how long a program waits for a device at most, in virtual time, whatever others do
// with what is theirs.
const patience = 5 * time.Minute

// What programs need, in bytes: those without a grant, and at most those that never end. All the latter leave
// room for the former in the quarter of a device that is granted to nobody.
const (
	ownNeed = 1 << 20
	hogNeed = 32 << 20
)

// node is a node in virtual time: the dispatcher, programs, and what befalls them.
type node struct {
	r        *rand.Rand
	core     *vgpu.Core
	cfg      vgpu.Config
	now      time.Duration
	agenda   agenda
	down     []bool     // by device: it is lost, or drained
	programs []*program // that have begun and not ended
	jobs     []*job
	last     vgpu.ClientID
	ticking  time.Duration
	unserved int // honest programs that have not ended
	err      error
}

// program is a program with one virtual device.
type program struct {
	id      vgpu.ClientID
	user    string
	part    *part // nil without a grant
	endless bool  // its kernel never ends: it leaves for nobody
	phases  int
	kernel  time.Duration
	running bool
	modest  bool // it wants no more than is guaranteed
	gone    bool

	seat
}

// seat is what a program waits for, and what it has.
type seat struct {
	turn    int // counts what changes: what was to happen to it before does not any more
	waits   bool
	wanted  time.Duration
	need    uint64 // bytes that it has asked for, or has
	bound   bool
	kept    uint64 // bytes that it keeps on its device without being bound there
	device  vgpu.DeviceID
	growing bool
	told    *vgpu.Effect // the Revoke that it has not answered
	toldAt  time.Duration
}

type agenda []happening

type happening struct {
	at    time.Duration
	order int
	do    func()
}

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func (n *node) after(d time.Duration, do func()) {
	heap.Push(&n.agenda, happening{n.now + d, n.r.Int(), do})
}

// then does something later, if p has the same seat by then.
func (n *node) then(p *program, d time.Duration, do func()) {
	turn := p.turn
	n.after(d, func() {
		if !p.gone && p.turn == turn {
			do()
		}
	})
}

func (n *node) fail(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf("at %v: %w", n.now, fmt.Errorf(format, args...))
	}
}

// Sharing has users with endless kernels share a node with users of ordinary programs and with jobs, while devices
// are lost and drained and come back. The limits of the first leave at least one virtual GPU to the others, whose
// programs must all come to their end in bounded time. Jobs have shares of devices, come and end, and are
// suspended: none of them, and nobody else, disturbs what is guaranteed to another (guarantee.go).
func Sharing(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0x73686172))
	n := &node{r: r}
	n.cfg = vgpu.Config{
		Policy: vgpu.Policy(r.IntN(3)), MaxIdle: vgpu.DefaultMaxIdle, MaxWait: 10 * time.Second, Migrate: r.IntN(2) == 0, MoveCost: 20 * time.Millisecond,
		Quantum: []time.Duration{0, 100 * time.Millisecond, vgpu.DefaultQuantum}[r.IntN(3)], SlotLimits: map[string]int{},
	}
	slots, devices := 2+r.IntN(4), 1+r.IntN(3)
	for i := range devices {
		n.cfg.Devices = append(n.cfg.Devices, vgpu.Device{Name: fmt.Sprint("gpu", i), Slots: slots, Memory: 1<<30 + n.r.Uint64N(1<<20), Speed: 1 + 2*n.r.Float64(),
			ContextCost: n.r.Uint64N(2) * n.r.Uint64N(4*ownNeed), Elsewhere: i > 0 && r.IntN(3) == 0})
	}
	// Hogs may have all slots but one, in all, so that one is always there for others.
	hogs := 1 + r.IntN(2)
	for left, i := slots*devices-1, 0; i < hogs; i++ {
		limit := left
		if i < hogs-1 {
			limit = r.IntN(left + 1)
		}
		if left -= limit; limit == 0 { // no limit, for the core
			hogs = i
			break
		}
		n.cfg.SlotLimits[hog(i)] = limit
	}
	var err error
	if n.core, err = vgpu.New(n.cfg); err != nil {
		return err
	}
	n.down = make([]bool, devices)
	for i := range hogs {
		for range n.cfg.SlotLimits[hog(i)] + 1 + r.IntN(3) {
			n.after(n.upTo(time.Second), func() { n.begin(&program{user: hog(i), endless: true}) })
		}
	}
	for i := range 2 + r.IntN(6) {
		n.unserved++
		p := &program{user: fmt.Sprint("user", i%3), phases: 1 + r.IntN(5), kernel: time.Millisecond + n.upTo(200*time.Millisecond)}
		n.after(n.upTo(5*time.Second), func() { n.begin(p) })
	}
	for range r.IntN(4 * devices) {
		n.admit()
	}
	n.befall()
	n.play()
	if n.err != nil {
		return fmt.Errorf("sharing, seed %d (%d devices of %d virtual GPUs, limits %v, policy %v, quantum %v): %w", seed, devices, slots, n.cfg.SlotLimits, n.cfg.Policy, n.cfg.Quantum, n.err)
	}
	return nil
}

func hog(i int) string { return fmt.Sprint("hog", i) }

func (n *node) upTo(d time.Duration) time.Duration { return time.Duration(n.r.Int64N(int64(d))) }

func (n *node) play() {
	for n.err == nil && n.unserved > 0 && len(n.agenda) > 0 {
		h := heap.Pop(&n.agenda).(happening)
		n.now = max(n.now, h.at)
		if n.now > patience {
			break
		}
		h.do()
	}
	if n.unserved == 0 {
		return
	}
	for _, p := range n.programs {
		if !p.endless {
			v, _ := n.core.Client(p.id)
			n.fail("%s, whose limit it keeps, has waited for a virtual GPU since %v: %+v", p.user, p.wanted, v)
		}
	}
	n.fail("%d programs have not ended", n.unserved)
}

// tell passes an event to the dispatcher, and does what it says.
func (n *node) tell(e vgpu.Event) {
	for _, effect := range n.core.Step(n.now, e) {
		n.perform(effect)
	}
	n.check()
	if at, ok := n.core.Next(); ok && (n.ticking == 0 || at < n.ticking) {
		n.ticking = at
		n.after(max(0, at-n.now), func() {
			if n.ticking == at {
				n.ticking = 0
				n.tell(vgpu.Tick{})
			}
		})
	}
}

func (n *node) begin(p *program) {
	if p.part != nil && p.part.job.ended {
		n.unserved--
		return
	}
	n.last++
	p.id = n.last
	n.programs = append(n.programs, p)
	e := vgpu.Attach{Client: p.id, User: p.user, Weight: 1}
	if p.part != nil {
		e.Grant, e.Share, e.Weight, e.Priority = p.part.job.id, p.part.index, p.part.job.weight, p.part.job.priority
	}
	n.tell(e)
	n.want(p)
}

// end detaches a program. A job ends with its last one.
func (n *node) end(p *program) {
	n.unserved--
	p.gone = true
	n.programs = slices.DeleteFunc(n.programs, func(o *program) bool { return o == p })
	n.tell(vgpu.Detach{Client: p.id})
	if p.part == nil {
		return
	}
	if p.part.job.left--; p.part.job.left == 0 && !p.part.job.ended {
		n.withdraw(p.part.job)
	}
}

func (n *node) want(p *program) {
	p.need = ownNeed
	switch {
	case p.endless:
		p.need = 1 + n.r.Uint64N(hogNeed)
	case p.part != nil:
		p.need = n.drawNeed(p)
	}
	p.waits, p.wanted = true, n.now
	n.tell(vgpu.Want{Client: p.id, Need: p.need, Pinned: vgpu.AnyDevice})
	since := n.now
	n.then(p, time.Second, func() { // content with less
		if p.part != nil && p.waits && p.wanted == since {
			p.modest = true
			n.want(p)
		}
	})
}

// perform does what the dispatcher decided, a little later, as workers do.
func (n *node) perform(e vgpu.Effect) {
	at := slices.IndexFunc(n.programs, func(p *program) bool { return p.id == e.Client })
	if at < 0 {
		return
	}
	p, soon := n.programs[at], n.upTo(time.Millisecond)
	switch e.Kind {
	case vgpu.Grant:
		if !p.bound {
			p.turn++
		}
		p.waits, p.growing, p.bound, p.kept, p.device, p.need = false, false, true, 0, e.Device, e.Memory
		n.then(p, soon, func() { n.run(p) })
	case vgpu.Revoke:
		n.checkRevoke(p, e)
		p.growing, p.told, p.toldAt = false, &e, n.now
		n.then(p, soon, func() { n.answer(p) })
	case vgpu.Watch:
		n.then(p, soon, func() { n.report(p) })
	case vgpu.Gone:
		was := p.bound
		p.bound, p.kept, p.growing, p.told, p.running = false, 0, false, nil, false
		if was {
			p.turn++
			n.then(p, n.upTo(10*time.Millisecond), func() { n.want(p) })
		}
	case vgpu.Deny:
		n.denied(p, e.Reason)
	}
}

// denied has a program that grows leave and want again. One that has no device is denied one only while no device is there.
func (n *node) denied(p *program, why vgpu.Reason) {
	switch {
	case p.growing:
		p.growing = false
		n.then(p, n.upTo(time.Millisecond), func() { n.leave(p) })
	case slices.Contains(n.down, false):
		n.fail("%s is denied a device: %s", p.user, why)
	default:
		p.waits = false
		n.then(p, time.Second, func() { n.want(p) })
	}
}

// answer lets go of the device once no kernel runs.
func (n *node) answer(p *program) {
	switch {
	case p.told == nil || p.running || p.endless && p.bound:
	case p.bound:
		n.leave(p)
	default:
		p.kept, p.told = 0, nil
		n.tell(vgpu.Released{Client: p.id})
	}
}

func (n *node) report(p *program) {
	switch {
	case !p.bound:
	case p.running:
		n.tell(vgpu.Busy{Client: p.id})
	default:
		n.tell(vgpu.Idle{Client: p.id})
	}
}

// run runs a kernel, and then leaves, computes on the CPU, or grows.
func (n *node) run(p *program) {
	if p.running || p.growing {
		return
	}
	p.running = true
	n.tell(vgpu.Began{Client: p.id})
	n.tell(vgpu.Busy{Client: p.id})
	if p.endless {
		return
	}
	n.then(p, p.kernel, func() {
		p.running = false
		p.phases--
		n.tell(vgpu.Ran{Client: p.id, Kernels: 1, Busy: p.kernel})
		switch what := n.r.IntN(4); {
		case p.phases <= 0:
			n.end(p)
		case p.told != nil:
			n.answer(p)
		case what == 0:
			n.grow(p)
		case what == 1:
			n.tell(vgpu.Idle{Client: p.id})
			n.then(p, n.upTo(100*time.Millisecond), func() { n.run(p) })
		default:
			n.tell(vgpu.Idle{Client: p.id})
			n.then(p, 0, func() { n.leave(p) })
		}
	})
}

// leave lets go of the device but for what may stay there, and wants one again.
func (n *node) leave(p *program) {
	if !p.bound || p.running {
		return
	}
	context := n.cfg.Devices[p.device].ContextCost
	keeps := []uint64{0, 0, context, p.need + context}[n.r.IntN(4)]
	if p.told != nil {
		keeps = 0
		if why := p.told.Reason; p.told.Keep > 0 || why == vgpu.ForQuantum {
			keeps = p.told.Keep + context
		}
	}
	p.bound, p.kept, p.growing, p.told = false, keeps, false, nil
	p.turn++
	n.tell(vgpu.Released{Client: p.id, Keeps: keeps})
	n.then(p, n.upTo([]time.Duration{10 * time.Millisecond, 500 * time.Millisecond}[n.r.IntN(2)]), func() { n.want(p) })
}
