package node

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"muster/wire"
	"muster/wire/control"
)

// classOf says whether a program is of class latency: the class that it asked for, if its
// user may have it. For a user about whom the configuration says nothing, the default is
// batch only, except that root and the node's own user may choose: programs of class latency
// keep all others waiting.
func (d *daemon) classOf(asked string, who peer, limits UserLimits) (latency bool, err error) {
	may := limits.Class
	if may == "" {
		may = ClassBatch
		if d.isOwner(who) {
			may = ClassAny
		}
	}
	switch {
	case asked != "" && asked != string(ClassLatency) && asked != string(ClassBatch):
		return false, refuse(resultNotPermitted, "there is no class %q: use latency or batch (muster run --class, or MUSTER_CLASS)", printable(asked))
	case asked == string(ClassLatency) && may == ClassBatch:
		return false, refuse(resultNotPermitted, "programs of user %s may not be of class latency on this node: leave --class (or MUSTER_CLASS) out, or ask the administrator for class: any in limits.users", who.user.name)
	case asked == "":
		return may == ClassLatency, nil
	}
	return asked == string(ClassLatency), nil
}

// weightOf is a program's weight: what it asked for, but no more than its user has.
func weightOf(asked uint32, limits UserLimits) int {
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
		return string(ClassLatency)
	}
	return string(ClassBatch)
}

// paceOf is what a client's worker is told about how its kernels make way for others'.
func (d *daemon) paceOf(c *client) *control.Pace {
	if d.precedence == nil {
		return nil
	}
	l := d.live().Latency
	return &control.Pace{Latency: c.latency, Share: l.Share, Window: l.Window, Quantum: d.live().Quantum}
}

// openPrecedence makes the shared memory in which workers claim devices, or finds that of an
// earlier daemon through a worker that has it open: so programs from before and after the
// restart make way for each other. Without that memory all programs are served as if they
// were of one class.
func (d *daemon) openPrecedence(left *inheritance) {
	for i := range left.heirs {
		if f := findFile(left.heirs[i].Worker.Pid, left.node.Precedence); f != nil {
			if wire.HoldsPrecedence(f) {
				d.precedence = f
				return
			}
			f.Close() // of an earlier version: its programs and the new ones do not make way for each other
			break
		}
	}
	f, err := wire.CreatePrecedence()
	if err != nil {
		d.log.Warn("programs of class latency are served as others are", "error", err)
		return
	}
	d.precedence = f
}

// findFile opens the file with a given device and inode number that a process has open; nil
// if it has none such.
func findFile(pid int, want fileID) *os.File {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(folder)
	if err != nil || want == (fileID{}) {
		return nil
	}
	for _, entry := range list {
		path := filepath.Join(folder, entry.Name())
		var stat syscall.Stat_t // looked at before it is opened: opening a pipe or a device may have effects
		if syscall.Stat(path, &stat) != nil || (fileID{uint64(stat.Dev), stat.Ino}) != want {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil
		}
		if id, err := identify(f); err == nil && id == want {
			return f
		}
		f.Close()
	}
	return nil
}
