package head

import (
	"encoding/binary"
	"slices"
	"time"

	"muster/head/api"
	"muster/model"
	"muster/policy"
)

// NodeTurn is a change of what a node can be used for. Was is the state before it, so
// that a log whose beginning was dropped still tells how a node was.
type NodeTurn struct {
	At   time.Duration `json:"at"`
	Node int32         `json:"node"` // its number with the policy
	// Was and Is are states as the policy names them; Was is "" of a node that is new.
	Was string `json:"was,omitempty"`
	Is  string `json:"is"`
}

// logTurn notes what a node can be used for from now on, if that is something else.
func (c *Core) logTurn(n *node, state policy.NodeState) {
	is := state.String()
	if n.usable == is {
		return
	}
	key := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(c.now)), uint32(n.number))
	c.effects.Records = append(c.effects.Records, Record{NodeLog, key, encoded(NodeTurn{c.now, n.number, n.usable, is})})
	n.usable = is
}

// usableThen is what a node could be used for when its record was written, but for
// short absences.
func usableThen(r *nodeRecord) string {
	switch {
	case r.Down || r.Removed:
		return policy.NodeDown.String()
	case r.Drained:
		return policy.NodeDraining.String()
	}
	return policy.NodeUp.String()
}

// Picture is what the core knows of the cluster and of the jobs that have not ended, for
// whoever simulates.
type Picture struct {
	At     time.Duration
	Config Config
	Began  time.Duration // the policy counts from there
	// Cluster has the nodes by their numbers, those that are gone included.
	Cluster  *model.Cluster
	Machines []Machine // by number
	Jobs     []api.Job
}

// Machine is what the cluster's description does not say of a node.
type Machine struct {
	// Name is what users call it; with the policy it may have another.
	Name string `json:"name"`
	User string `json:"user,omitempty"` // whose processes alone it starts
	Is   string `json:"is"`             // what it can be used for
	Gone bool   `json:"gone,omitempty"` // its number is out of use
}

// Picture is how the cluster is now.
func (c *Core) Picture(now time.Duration) Picture {
	c.now = max(c.now, now)
	of := c.state.Cluster()
	p := Picture{At: c.now, Config: c.cfg, Began: c.began, Cluster: &model.Cluster{Name: of.Name, Nodes: slices.Clone(of.Nodes), GPUTypes: slices.Clone(of.GPUTypes), Remote: of.Remote}}
	for _, n := range c.nodes {
		p.Machines = append(p.Machines, Machine{Name: n.name, User: n.user, Is: n.usable, Gone: n.removed})
	}
	for _, id := range c.order {
		if j := c.jobs[id]; j != nil && !j.over() {
			p.Jobs = append(p.Jobs, c.document(j))
		}
	}
	return p
}
