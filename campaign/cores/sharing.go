package cores

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/model"
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

// node is a node in virtual time: the dispatcher, and programs.
type node struct {
	r        *rand.Rand
	core     *vgpu.Core
	now      time.Duration
	agenda   agenda
	programs map[vgpu.ClientID]*program
	last     vgpu.ClientID
	ticking  time.Duration
	unserved int // honest programs that have not ended
	err      error
}

// program is a program with one virtual device.
type program struct {
	id      vgpu.ClientID
	user    string
	home    int
	grant   vgpu.GrantID // "" for none; else it has the only share of it
	share   uint64       // bytes that are guaranteed to it
	beyond  uint64       // bytes more that it may have while they are free
	endless bool         // its kernel never ends: it leaves for nobody
	phases  int
	kernel  time.Duration
	running bool
	leaves  bool // it was told to
	wanted  time.Duration
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

func (n *node) fail(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf(format, args...)
	}
}

// Sharing has users with endless kernels share a node with users of ordinary programs and with jobs. The limits
// of the first leave at least one virtual GPU of each device to the second, whose programs must all
// come to their end in bounded time. Jobs have a share of a device each, and their programs wait for nobody
// as long as they need no more than that: neither for each other nor for those that never end.
func Sharing(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0x73686172))
	n := &node{r: r, programs: map[vgpu.ClientID]*program{}}
	cfg := vgpu.Config{
		Policy: vgpu.Policy(r.IntN(3)), MaxIdle: vgpu.DefaultMaxIdle, MaxWait: 10 * time.Second,
		Quantum: []time.Duration{0, 100 * time.Millisecond, vgpu.DefaultQuantum}[r.IntN(3)], SlotLimits: map[string]int{},
	}
	slots, devices := 2+r.IntN(4), 1+r.IntN(2)
	for i := range devices {
		cfg.Devices = append(cfg.Devices, vgpu.Device{Name: fmt.Sprint("gpu", i), Slots: slots, Memory: 1 << 30, Speed: 1})
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
		cfg.SlotLimits[hog(i)] = limit
	}
	var err error
	if n.core, err = vgpu.New(cfg); err != nil {
		return err
	}
	for i := range hogs {
		for range cfg.SlotLimits[hog(i)] + 1 + r.IntN(3) {
			n.after(n.upTo(time.Second), func() { n.begin(&program{user: hog(i), endless: true}) })
		}
	}
	for i := range 2 + r.IntN(6) {
		n.unserved++
		p := &program{user: fmt.Sprint("user", i%3), phases: 1 + r.IntN(5), kernel: time.Millisecond + n.upTo(200*time.Millisecond)}
		n.after(n.upTo(5*time.Second), func() { n.begin(p) })
	}
	n.addJobs(cfg.Devices)
	n.play()
	if n.err != nil {
		return fmt.Errorf("sharing, seed %d (%d devices of %d virtual GPUs, limits %v, policy %v, quantum %v): %w", seed, devices, slots, cfg.SlotLimits, cfg.Policy, cfg.Quantum, n.err)
	}
	return nil
}

// addJobs admits up to two grants of each device, and begins a program under each.
func (n *node) addJobs(devices []vgpu.Device) {
	for i, d := range devices {
		for j := range n.r.IntN(3) {
			s := vgpu.Share{Device: vgpu.DeviceID(i), Memory: 2*ownNeed + n.r.Uint64N(d.Memory*3/8-2*ownNeed), Beyond: n.r.Uint64N(2) * n.r.Uint64N(d.Memory), Reach: model.Reach(n.r.IntN(3))}
			p := &program{home: i, user: fmt.Sprint("job", i, j), phases: 1 + n.r.IntN(8), kernel: time.Millisecond + n.upTo(200*time.Millisecond), share: s.Memory, beyond: s.Beyond, grant: vgpu.GrantID(fmt.Sprint("job", i, j))}
			n.tell(vgpu.Admit{Grant: p.grant, Shares: []vgpu.Share{s}, Limit: -1})
			n.unserved++
			n.after(n.upTo(5*time.Second), func() { n.begin(p) })
		}
	}
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
	for id := range n.last {
		if p := n.programs[id+1]; n.err == nil && p != nil && !p.endless {
			n.fail("%s, whose limit it keeps, has waited for a virtual GPU since %v, and it is %v: programs that never end keep it from one", p.user, p.wanted, min(n.now, patience))
		}
	}
}

// tell passes an event to the dispatcher, and does what it says.
func (n *node) tell(e vgpu.Event) {
	for _, effect := range n.core.Step(n.now, e) {
		n.perform(effect)
	}
	for i := range n.core.Config().Devices {
		if d, ok := n.core.Device(vgpu.DeviceID(i)); ok && (d.Used > d.Slots || d.Taken > d.Memory) {
			n.fail("device %d has %d clients in %d slots, and %d of %d bytes taken", i, d.Used, d.Slots, d.Taken, d.Memory)
		}
	}
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
	n.last++
	p.id = n.last
	n.programs[p.id] = p
	n.tell(vgpu.Attach{Client: p.id, User: p.user, Weight: 1, Grant: p.grant})
	n.want(p)
}

func (n *node) want(p *program) {
	p.wanted, p.leaves = n.now, false
	bytes := uint64(ownNeed)
	switch {
	case p.endless:
		bytes = 1 + n.r.Uint64N(hogNeed)
	case p.beyond > 0 && n.r.IntN(2) == 0:
		n.wantBeyond(p)
		return
	case p.grant != "":
		bytes = 1 + n.r.Uint64N(p.share)
	}
	n.tell(vgpu.Want{Client: p.id, Need: bytes, Pinned: vgpu.AnyDevice})
	if v, ok := n.core.Client(p.id); ok && p.grant != "" && v.State != vgpu.Assigned {
		n.fail("%s wants %d bytes of the %d that are guaranteed to it, and waits for others: %+v", p.user, bytes, p.share, v)
	}
}

// wantBeyond asks for more than is guaranteed, and after a while is content with less.
func (n *node) wantBeyond(p *program) {
	v, _ := n.core.Device(vgpu.DeviceID(p.home))
	n.tell(vgpu.Want{Client: p.id, Need: min(p.share+n.r.Uint64N(p.beyond), v.Memory), Pinned: vgpu.AnyDevice})
	n.after(time.Second, func() {
		if v, ok := n.core.Client(p.id); ok && v.State == vgpu.Ready && n.programs[p.id] == p {
			p.beyond = 0
			n.want(p)
		}
	})
}

// perform does what the dispatcher decided, a little later, as workers do.
func (n *node) perform(e vgpu.Effect) {
	p := n.programs[e.Client]
	if p == nil {
		return
	}
	soon := n.upTo(time.Millisecond)
	switch e.Kind {
	case vgpu.Grant:
		n.after(soon, func() { n.run(p) })
	case vgpu.Revoke:
		if p.endless {
			return // its kernel would have to end first
		}
		n.after(soon, func() {
			if v, ok := n.core.Client(p.id); ok && v.Revoking { // else it has left of its own accord
				p.leaves = true
				n.leave(p)
			}
		})
	case vgpu.Deny:
		n.fail("%s is denied a device: %s", p.user, e.Reason)
	}
}

// run runs a kernel, and then leaves or goes on.
func (n *node) run(p *program) {
	p.running = true
	n.tell(vgpu.Began{Client: p.id})
	n.tell(vgpu.Busy{Client: p.id})
	if p.endless {
		return
	}
	n.after(p.kernel, func() {
		p.running = false
		p.phases--
		n.tell(vgpu.Ran{Client: p.id, Kernels: 1, Busy: p.kernel})
		if p.phases <= 0 {
			n.unserved--
			delete(n.programs, p.id)
			n.tell(vgpu.Detach{Client: p.id})
			return
		}
		n.tell(vgpu.Idle{Client: p.id})
		p.leaves = true
		n.leave(p)
	})
}

// leave lets go of the device once no kernel runs, and wants it again.
func (n *node) leave(p *program) {
	if p.running || !p.leaves || n.programs[p.id] != p {
		return
	}
	p.leaves = false
	n.tell(vgpu.Released{Client: p.id})
	n.after(n.upTo(10*time.Millisecond), func() {
		if n.programs[p.id] == p {
			n.want(p)
		}
	})
}
