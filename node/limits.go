package node

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"muster/model"
	"muster/node/grants"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/survival"
	"muster/wire"
	"muster/wire/control"
)

// classOf says whether a program is of class latency: the class that it asked for, if its
// user may have it. For a user about whom the configuration says nothing, the default is
// batch only, except that root and the node's own user may choose: programs of class latency
// keep all others waiting.
func (t *terms) classOf(asked string, who socket.Peer, limits settings.UserLimits) (latency bool, err error) {
	may := limits.Class
	if may == "" {
		may = settings.ClassBatch
		if t.rights.IsOwner(who) {
			may = settings.ClassAny
		}
	}
	switch {
	case asked != "" && asked != string(settings.ClassLatency) && asked != string(settings.ClassBatch):
		return false, refusal.New(refusal.NotPermitted, "there is no class %q: use latency or batch (muster run --class, or MUSTER_CLASS)", settings.Printable(asked))
	case asked == string(settings.ClassLatency) && may == settings.ClassBatch:
		return false, refusal.New(refusal.NotPermitted, "programs of user %s may not be of class latency on this node: leave --class (or MUSTER_CLASS) out, or ask the administrator for class: any in limits.users", who.User.Name)
	case asked == "":
		return may == settings.ClassLatency, nil
	}
	return asked == string(settings.ClassLatency), nil
}

// turnsOf is the class and weight of a program: those that its grant gives it, and otherwise what it asked for
// and its user may have.
func (t *terms) turnsOf(hello *wire.Hello, who socket.Peer, limits settings.UserLimits, g *grants.Granted) (latency bool, weight int, err error) {
	weight = weightOf(hello.Weight, limits)
	if g != nil && g.Weight > 0 {
		weight = g.Weight
	}
	if g != nil && g.Class != "" {
		return g.Class == model.ClassLatency, weight, nil
	}
	latency, err = t.classOf(hello.Class, who, limits)
	return latency, weight, err
}

// weightOf is a program's weight: what it asked for, but no more than its user has.
func weightOf(asked uint32, limits settings.UserLimits) int {
	most := max(limits.Weight, 1)
	if asked == 0 {
		return most
	}
	return min(int(asked), most)
}

// priority is the client's priority with the dispatcher. The user's priority decides first;
// among equals, class latency goes before class batch. Doubling leaves room for that one bit.
func (c *client) priority() int {
	p := 2 * c.limits.Priority
	if c.latency {
		p++
	}
	return p
}

// class is the name of the client's class.
func (c *client) class() string {
	if c.latency {
		return string(settings.ClassLatency)
	}
	return string(settings.ClassBatch)
}

// precedence is the memory in which workers claim devices.
type precedence struct{ *os.File } // nil if there is none

// open makes the shared memory in which workers claim devices, or finds that of an
// earlier daemon through a worker that has it open: so programs from before and after the
// restart make way for each other. Without that memory all programs are served as if they
// were of one class.
func (p *precedence) open(left *survival.Left, log *slog.Logger) {
	for i := range left.Heirs {
		if f := proc.FindFile(left.Heirs[i].Worker.Pid, left.Node.Precedence); f != nil {
			if wire.HoldsPrecedence(f) {
				p.File = f
				return
			}
			f.Close() // of an earlier version: its programs and the new ones do not make way for each other
			break
		}
	}
	f, err := wire.CreatePrecedence()
	if err != nil {
		log.Warn("programs of class latency are served as others are", "error", err)
		return
	}
	p.File = f
}

// paceOf is what a client's worker is told about how its kernels make way for others'.
func (f *staff) paceOf(c *client) *control.Pace {
	if f.precedence.File == nil {
		return nil
	}
	l := f.settings.Load().Latency
	return &control.Pace{Latency: c.latency, Share: l.Share, Window: l.Window, Quantum: f.settings.Load().Quantum}
}

// What users are told when a limit is reached: which limit it is, how large it is, and
// what raises it.

// memoryBy says what limits a program's device memory; wish is what the program asked
// for.
func (t *terms) memoryBy(wish, memory uint64, limits settings.UserLimits) string {
	switch memory {
	case limits.Memory:
		return "no program of this user may have more: ask the administrator to raise the user's memory under limits in the node's configuration"
	case t.settings.Load().Swap.Size:
		return "that is all of the node's swap area: ask the administrator to raise swap.size in the node's configuration (muster node --swap)"
	case wish:
		return "give it more with muster run --memory (MUSTER_RUN_MEMORY), more than the device has if need be"
	case settings.MaxArena / 4:
		return "no program can see more"
	}
	return "give it more with muster run --memory, more than the device has if need be"
}

// kernelTimeOf is how long a kernel of a client may hold a device, 0 for no limit, and what to tell its
// user of that.
func (f *staff) kernelTimeOf(c *client) (limit time.Duration, by string) {
	cfg := f.settings.Load()
	class, most := "batch", cfg.KernelTime.Batch
	if c.latency {
		class, most = "latency", cfg.KernelTime.Latency
	}
	by = fmt.Sprintf("the kernel_time of programs of class %s in the node's configuration", class)
	switch {
	case c.limits.KernelTime != 0:
		most, by = c.limits.KernelTime, "the user's kernel_time under limits in the node's configuration"
	case most == 0 && (cfg.Head.Address != "" || c.under.Granted != nil):
		most, by = settings.GrantedKernelTime, "the kernel_time of nodes whose devices are granted to jobs"
	}
	return max(time.Duration(most), 0), "which is " + by + ": launch shorter kernels, or ask the administrator to raise it"
}

// memoryOfShare says what limits the device memory of a program under a grant.
const memoryOfShare = "that is the job's share of the device: ask for a larger one when you submit the job"

// memoryWithinShare is for a program that asked for less than its share.
const memoryWithinShare = "give it more with muster run --memory (MUSTER_RUN_MEMORY), up to the job's share of the device"
