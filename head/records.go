package head

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"muster/head/record"
	"muster/internal/strictjson"
	"muster/model"
	"muster/policy"
	"muster/policy/history"
	"muster/wire/agent"
	"muster/wire/api"
)

// FillIn completes a Start with what the job runs, from the bulk record of the job or of its array.
func FillIn(s *agent.Start, bulk func(job uint64) ([]byte, error)) error {
	var b record.Bulk
	text, err := bulk(cmp.Or(s.Spec.ArrayJob, s.Task.Job))
	if err == nil {
		err = strictjson.Decode(text, &b)
	}
	if err != nil {
		return fmt.Errorf("the record of what job %d runs: %w", s.Task.Job, err)
	}
	s.Spec.Script, s.Spec.Arguments, s.Spec.Environment = b.Script, b.Arguments, append(b.Environment, s.Spec.Environment...)
	return nil
}

var metaKey = []byte("head")

// Number is the key of a job's records.
func Number(job uint64) []byte { return binary.BigEndian.AppendUint64(nil, job) }

func keyBytes(owner, name string) []byte { return []byte(owner + "\x00" + name) }

func keyRecord(owner, name string, k keyed) Record {
	return Record{Keys, keyBytes(owner, name), encoded(record.Key{At: k.at, Answer: record.Answer{Job: k.job, Tasks: k.tasks}})}
}

func bulkRecord(job uint64, s *api.Submission) Record {
	return Record{Bulk, Number(job), encoded(record.Bulk{Script: s.Script, Arguments: s.Arguments, Environment: s.Environment})}
}

func metaRecord(began time.Duration, next uint64) Record {
	return Record{Meta, metaKey, encoded(record.Meta{Began: began, Next: next})}
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("head: " + err.Error()) // cannot fail: only plain values
	}
	return b
}

func (s *stop) record() *record.Stop {
	if s == nil {
		return nil
	}
	return &record.Stop{Cause: string(s.Cause), Reason: s.Reason, Outcome: string(s.Outcome), Requeue: s.Requeue, Exit: s.Exit}
}

func holdsRecord(h model.Holds) *record.Holds {
	if h == (model.Holds{}) {
		return nil
	}
	written := func(h model.Hold) record.Hold { return record.Hold{Reach: h.Reach.String(), Beyond: h.Beyond} }
	return &record.Holds{Whole: written(h.Whole), Shares: written(h.Shares), Remote: written(h.Remote)}
}

func holdsOf(r *record.Holds) (h model.Holds, err error) {
	if r == nil {
		return h, nil
	}
	read := func(to *model.Hold, from record.Hold) error {
		to.Beyond = from.Beyond
		return errors.Join(to.Reach.UnmarshalText([]byte(from.Reach)), model.CheckBeyond(1, from.Beyond))
	}
	return h, errors.Join(read(&h.Whole, r.Whole), read(&h.Shares, r.Shares), read(&h.Remote, r.Remote))
}

func stopOf(r *record.Stop) *stop {
	if r == nil {
		return nil
	}
	return &stop{Cause: agent.Cause(r.Cause), Reason: r.Reason, Outcome: api.State(r.Outcome), Requeue: r.Requeue, Exit: r.Exit}
}

func endRecord(e *agent.End) *record.End {
	if e == nil {
		return nil
	}
	return &record.End{
		Cause: string(e.Cause), Exit: e.Exit, Signal: e.Signal, Reason: e.Reason, Began: e.Began, Ended: e.Ended, CPU: e.CPU, Memory: e.Memory,
	}
}

func endOf(r *record.End) *agent.End {
	if r == nil {
		return nil
	}
	return &agent.End{
		Cause: agent.Cause(r.Cause), Exit: r.Exit, Signal: r.Signal, Reason: r.Reason, Began: r.Began, Ended: r.Ended, CPU: r.CPU, Memory: r.Memory,
	}
}

func numberOf(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

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
	// Features are those by which jobs choose it.
	Features []string `json:"features,omitempty"`
}

// Picture returns what the core knows now.
func (c *Core) Picture(now time.Duration) Picture {
	c.now = max(c.now, now)
	of := c.desk.state.Cluster()
	p := Picture{At: c.now, Config: c.cfg, Began: c.began, Cluster: &model.Cluster{Name: of.Name, Nodes: slices.Clone(of.Nodes), GPUTypes: slices.Clone(of.GPUTypes), Remote: of.Remote, Partitions: c.cfg.Partitions}}
	for _, n := range c.fleet.nodes {
		p.Machines = append(p.Machines, Machine{Name: n.name, User: n.user, Is: n.usable, Gone: n.removed, Features: n.features})
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
