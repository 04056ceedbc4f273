package node

import (
	"muster/wire"
	"muster/wire/control"
)

// classOf says whether a program is of class latency: what it asked for, and its user may
// have. Where nothing is said of a user, root and the node's own user may choose; others are
// of class batch, because programs of class latency keep those of all others waiting.
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

// weightOf is a program's weight: what it asked for, if that is not more than its user has.
func weightOf(asked uint32, limits UserLimits) int {
	most := max(limits.Weight, 1)
	if asked == 0 {
		return most
	}
	return min(int(asked), most)
}

// priority is the client's with the dispatcher: of clients with the priority that their users
// have, those of class latency go first.
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

// paceOf is what a client's worker is told of how its kernels make way for others.
func (d *daemon) paceOf(c *client) *control.Pace {
	if d.precedence == nil {
		return nil
	}
	l := d.live().Latency
	return &control.Pace{Latency: c.latency, Share: l.Share, Window: l.Window, Quantum: d.live().Quantum}
}

// openPrecedence makes the memory in which workers claim devices. Without it programs are
// served as if all were of one class.
func (d *daemon) openPrecedence() {
	f, err := wire.CreatePrecedence()
	if err != nil {
		d.log.Warn("programs of class latency are served as others are", "error", err)
		return
	}
	d.precedence = f
}
