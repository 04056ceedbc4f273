package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	HeadKill        Kind = "head-kill"         // SIGKILL, and started again later
	HeadPause       Kind = "head-pause"        // SIGSTOP, and SIGCONT later
	HeadRestart     Kind = "head-restart"      // SIGTERM, and started again
	NodeKill        Kind = "node-kill"         // the daemon, including its agent
	NodePause       Kind = "node-pause"        //
	NodeRestart     Kind = "node-restart"      // programs that use GPUs end
	NodeHandover    Kind = "node-handover"     // programs that use GPUs continue
	MachineKill     Kind = "machine-kill"      // all processes of a node at once
	SupervisorKill  Kind = "supervisor-kill"   // of a task
	SupervisorPause Kind = "supervisor-pause"  //
	JobKill         Kind = "job-kill"          // one process of a job
	LinkCut         Kind = "link-cut"          // between node and head
	LinkStall       Kind = "link-stall"        //
	LinkSlow        Kind = "link-slow"         //
	GatewayCut      Kind = "gateway-cut"       // between a node and the clients that borrow its GPUs
	GatewayStall    Kind = "gateway-stall"     //
	GatewaySlow     Kind = "gateway-slow"      //
	LinkHalfOpen    Kind = "link-half-open"    // packets vanish, and nobody is told
	GatewayHalfOpen Kind = "gateway-half-open" //
	HeadDiskFull    Kind = "head-disk-full"    // others fill it; the head ends, and is started again
	SpoolDiskFull   Kind = "spool-disk-full"   // others fill the disk of a node's spool
)

// Kinds are all kinds of faults.
var Kinds = []Kind{
	HeadKill, HeadPause, HeadRestart, NodeKill, NodePause, NodeRestart, NodeHandover, MachineKill, SupervisorKill, SupervisorPause, JobKill,
	LinkCut, LinkStall, LinkSlow, GatewayCut, GatewayStall, GatewaySlow, LinkHalfOpen, GatewayHalfOpen, HeadDiskFull, SpoolDiskFull,
}

// hit is an injected fault: its victim, and its duration.
type hit struct {
	kind        Kind
	node        string // "" if it hit the head
	job         uint64 // for faults of a single task
	from, until time.Time
}

func (h hit) String() string {
	whom := "head"
	switch {
	case h.job > 0:
		whom = fmt.Sprintf("job %d on %s", h.job, h.node)
	case h.node != "":
		whom = h.node
	}
	return fmt.Sprintf("%s %s for %v", h.kind, whom, h.until.Sub(h.from).Round(time.Millisecond))
}

// repair ends a fault.
type repair struct {
	at   time.Time
	do   func() error
	hit  int    // index of the fault that it ends
	busy string // what cannot be a victim until then
}

// injector injects faults one after the other; lasting faults overlap.
type injector struct {
	c       *campaign
	random  *rand.Rand
	kinds   []Kind
	hits    []hit
	repairs []repair
	busy    map[string]bool
	passed  int // faults without a victim
}

// play injects faults, and returns when all have been repaired.
func (in *injector) play(faults int) error {
	for range faults {
		if in.c.sender != nil && in.random.Float64() < in.c.o.Content {
			if err := in.wait(time.Now()); err != nil {
				return err
			}
			if len(in.c.violations()) > 0 {
				break
			}
			in.c.sender.send()
			continue
		}
		if err := in.wait(time.Now().Add(time.Duration(50+in.random.IntN(350)) * time.Millisecond)); err != nil {
			return err
		}
		if len(in.c.violations()) > 0 {
			break
		}
		if err := in.one(); err != nil {
			return err
		}
	}
	for len(in.repairs) > 0 {
		if err := in.wait(in.repairs[0].at); err != nil {
			return err
		}
	}
	return nil
}

// wait makes the repairs that are due up to a time, and sleeps until then.
func (in *injector) wait(until time.Time) error {
	for {
		if len(in.repairs) == 0 || in.repairs[0].at.After(until) {
			time.Sleep(time.Until(until))
			return nil
		}
		r := in.repairs[0]
		in.repairs = in.repairs[1:]
		time.Sleep(time.Until(r.at))
		if err := r.do(); err != nil {
			return err
		}
		in.hits[r.hit].until = time.Now()
		in.c.say("over: %v", in.hits[r.hit])
		delete(in.busy, r.busy)
	}
}

// headHurtWithin says whether the head was hurt within the last time, or is.
func (in *injector) headHurtWithin(d time.Duration) bool {
	return in.hurtWithin(d, func(h hit) bool { return h.node == "" })
}

// anyHurtWithin says whether anybody was hurt within the last time, or is.
func (in *injector) anyHurtWithin(d time.Duration) bool {
	return in.hurtWithin(d, func(hit) bool { return true })
}

func (in *injector) hurtWithin(d time.Duration, whom func(hit) bool) bool {
	return slices.ContainsFunc(in.hits, func(h hit) bool { return whom(h) && time.Since(h.until) < d })
}

// lasts draws the duration of a fault: mostly too short for the head to give up a node.
func (in *injector) lasts() time.Duration {
	if in.random.IntN(9) == 0 {
		return nodeTimeout + time.Duration(in.random.IntN(3000))*time.Millisecond
	}
	return time.Duration(20+in.random.IntN(1200)) * time.Millisecond
}

// begin records a lasting fault with the function that repairs it.
func (in *injector) begin(h hit, busy string, lasts time.Duration, do func() error) {
	h.from = time.Now()
	h.until = h.from.Add(lasts)
	in.c.say("%v", h)
	in.busy[busy] = true
	in.hits = append(in.hits, h)
	in.repairs = append(in.repairs, repair{h.until, do, len(in.hits) - 1, busy})
	slices.SortStableFunc(in.repairs, func(a, b repair) int { return a.at.Compare(b.at) })
}

// one injects one fault.
func (in *injector) one() error {
	kind := in.kinds[in.random.IntN(len(in.kinds))]
	m := in.c.machines[in.random.IntN(len(in.c.machines))]
	lasts := in.lasts()
	switch kind {
	case HeadKill, HeadPause, HeadRestart, HeadDiskFull:
		return in.hurtHead(kind, lasts)
	case NodeKill, NodePause, NodeRestart, NodeHandover, MachineKill:
		return in.hurtNode(kind, m, lasts)
	case SupervisorKill, SupervisorPause, JobKill:
		in.hurtTask(kind, lasts)
	case SpoolDiskFull:
		return in.fillSpool(m, lasts)
	case LinkCut, LinkStall, LinkSlow, LinkHalfOpen:
		in.hurtLink(kind, m.link, m.name, lasts)
	case GatewayCut, GatewayStall, GatewaySlow, GatewayHalfOpen:
		if used := in.usedGateways(); len(used) > 0 {
			m = used[in.random.IntN(len(used))]
		}
		in.hurtLink(kind, m.gateway, m.name, lasts)
	}
	return nil
}

// usedGateways are the nodes whose gateways somebody uses. Few programs borrow, and not for long, so it
// waits a while for one.
func (in *injector) usedGateways() (used []*machine) {
	for until := time.Now().Add(time.Second); len(used) == 0 && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		used = slices.DeleteFunc(slices.Clone(in.c.machines), func(m *machine) bool { return !m.gateway.used() })
	}
	return used
}

// ofGateway says whether a fault concerns those who borrow a node's GPUs.
func (k Kind) ofGateway() bool {
	return k == GatewayCut || k == GatewayStall || k == GatewaySlow || k == GatewayHalfOpen
}

// stopTime is the time limit for a daemon to stop.
const stopTime = 2 * time.Minute

func (in *injector) hurtHead(kind Kind, lasts time.Duration) error {
	head := &in.c.head
	if in.busy["head"] {
		in.passed++
		return nil
	}
	repair := head.start
	switch kind {
	case HeadKill:
		head.kill()
	case HeadRestart:
		if err := head.stop(syscall.SIGTERM, stopTime); err != nil {
			in.c.violate("%v", err)
		}
		lasts = min(lasts, 100*time.Millisecond)
	case HeadDiskFull:
		filler := filepath.Join(in.c.o.Dir, "head.state", "filler")
		if err := fill(filler); err != nil {
			return err
		}
		repair = func() error { // as an administrator and the service manager do
			if err := os.Remove(filler); err != nil || head.alive() {
				return err
			}
			return head.start()
		}
	case HeadPause:
		head.pause(true)
		repair = func() error { head.pause(false); return nil }
	}
	in.begin(hit{kind: kind}, "head", lasts, repair)
	return nil
}

// fillSpool fills the disk of a node's spool. Nobody is told, and the node goes on.
func (in *injector) fillSpool(m *machine, lasts time.Duration) error {
	name := "spool of " + m.name
	if in.busy[name] {
		in.passed++
		return nil
	}
	filler := filepath.Join(m.spool, "filler")
	if err := fill(filler); err != nil {
		return err
	}
	in.begin(hit{kind: SpoolDiskFull, node: m.name}, name, lasts, func() error { return os.Remove(filler) })
	return nil
}

// fill fills the disk on which a file is.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 16 { // the last bytes, too
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

func (in *injector) hurtNode(kind Kind, m *machine, lasts time.Duration) error {
	if in.busy[m.name] {
		in.passed++
		return nil
	}
	repair := m.start
	from := time.Now()
	switch kind {
	case NodeKill:
		m.kill()
	case NodeRestart, NodeHandover:
		how := syscall.SIGTERM
		if kind == NodeHandover {
			how = syscall.SIGUSR2
		}
		if err := m.stop(how, stopTime); err != nil {
			in.c.violate("%v", err)
		}
		lasts = min(lasts, 100*time.Millisecond)
	case NodePause:
		m.pause(true)
		repair = func() error { m.pause(false); return nil }
	case MachineKill:
		in.killMachine(m)
	}
	in.begin(hit{kind: kind, node: m.name}, m.name, lasts, repair)
	in.hits[len(in.hits)-1].from = from // includes the time that the daemon takes to stop
	return nil
}

// killMachine kills all processes of a node. It stops all of them first, until no new one appears,
// so that none can react to the end of another.
func (in *injector) killMachine(m *machine) {
	m.wanted = false
	stopped := map[int]bool{}
	for {
		fresh := false
		for _, s := range in.c.watch.look() {
			if s.node == m.name && !stopped[s.pid] {
				stopped[s.pid], fresh = true, true
				_ = syscall.Kill(s.pid, syscall.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	for pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	m.kill()
}

// hurtTask kills or stops a supervisor, or a process of a job.
func (in *injector) hurtTask(kind Kind, lasts time.Duration) {
	want := isSupervisor
	if kind == JobKill {
		want = isJob
	}
	var victims []*seen
	for _, s := range in.c.watch.look() {
		if s.role == want && s.task.job > 0 && !in.busy[s.node] {
			victims = append(victims, s)
		}
	}
	if len(victims) == 0 {
		in.passed++
		return
	}
	slices.SortFunc(victims, func(a, b *seen) int { return a.pid - b.pid })
	v := victims[in.random.IntN(len(victims))]
	h := hit{kind: kind, node: v.node, job: v.task.job}
	name := fmt.Sprint("process ", v.pid)
	if in.busy[name] || !v.alive() {
		in.passed++
		return
	}
	if kind == SupervisorPause {
		_ = syscall.Kill(v.pid, syscall.SIGSTOP)
		in.begin(h, name, lasts, func() error { _ = syscall.Kill(v.pid, syscall.SIGCONT); return nil })
		return
	}
	_ = syscall.Kill(v.pid, syscall.SIGKILL)
	in.begin(h, name, 0, func() error { return nil })
}

func (in *injector) hurtLink(kind Kind, p *proxy, node string, lasts time.Duration) {
	name := "link of " + node
	if kind.ofGateway() {
		name = "gateway of " + node
	}
	if in.busy[name] {
		in.passed++
		return
	}
	switch kind {
	case LinkCut, GatewayCut:
		p.hurt(linkCut, 0)
	case LinkStall, GatewayStall:
		p.hurt(linkStall, 0)
	case LinkHalfOpen, GatewayHalfOpen:
		p.hurt(linkHalfOpen, 0)
		lasts = 0 // it hurts the present connections, and those for good
	case LinkSlow, GatewaySlow:
		p.hurt(linkSlow, time.Duration(5+in.random.IntN(100))*time.Millisecond)
	}
	in.begin(hit{kind: kind, node: node}, name, lasts, func() error { p.heal(); return nil })
}
