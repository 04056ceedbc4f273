package head

import (
	"io"
	"slices"
	"time"

	"muster/head/record"
	"muster/model"
	"muster/policy"
	"muster/policy/history"
)

// NodeTurn is a change of the policy's state of a node. Was is the state before the change, so that
// a log whose beginning was dropped still tells the state of each node.
type NodeTurn struct {
	At   time.Duration `json:"at"`
	Node int32         `json:"node"` // its number with the policy
	// Was and Is are states as the policy names them; Was is "" for a new node.
	Was string `json:"was,omitempty"`
	Is  string `json:"is"`
}

// usableThen is the policy's state of a node when its record was written. Short absences, which
// make a node draining, are not recorded.
func usableThen(r *record.Node) string {
	switch {
	case r.Down || r.Removed:
		return policy.NodeDown.String()
	case r.Drained:
		return policy.NodeDraining.String()
	}
	return policy.NodeUp.String()
}

// Picture is what the core knows of the cluster beside its jobs, as input of a simulation.
type Picture struct {
	At     time.Duration
	Config Config
	Began  time.Duration // the instant at which the policy's clock starts
	// Cluster has the nodes by their numbers, including removed ones.
	Cluster  *model.Cluster
	Machines []Machine // by number
}

// Machine is what model.Cluster does not say of a node.
type Machine struct {
	// Name is the users' name of the node; the policy may have another.
	Name string `json:"name"`
	User string `json:"user,omitempty"` // the only user whose processes it starts; "" for all
	Is   string `json:"is"`             // the policy's state of it
	Gone bool   `json:"gone,omitempty"` // its number is retired
}

// Picture returns what the core knows now.
func (c *Core) Picture(now time.Duration) Picture {
	c.now = max(c.now, now)
	of := c.desk.state.Cluster()
	p := Picture{At: c.now, Config: c.cfg, Began: c.began, Cluster: &model.Cluster{Name: of.Name, Nodes: slices.Clone(of.Nodes), GPUTypes: slices.Clone(of.GPUTypes), Remote: of.Remote}}
	for _, n := range c.fleet.nodes {
		p.Machines = append(p.Machines, Machine{Name: n.name, User: n.user, Is: n.usable, Gone: n.removed})
	}
	return p
}

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history. The recording begins with a snapshot. The cluster in the header is replaced
// by the core's. An error of w ends the recording and nothing else: w itself must report it.
func (c *Core) Record(w io.Writer, h history.Header) { history.Record(w, h, c.desk.state) }

// Snapshot writes a history whose replay makes a state equal to the policy's present one. It
// returns the present time on the policy's clock.
func (c *Core) Snapshot(now time.Duration, w io.Writer, h history.Header) (time.Duration, error) {
	c.now = max(c.now, now)
	return c.policyTime(c.now), history.Snapshot(w, h, c.desk.state)
}
