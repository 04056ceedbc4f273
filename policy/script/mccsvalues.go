package script

import (
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"muster/model"
	"muster/policy/mccs"
)

// libraryJobValue is a job of the library. There is one for each job, so that they can
// be compared.
type libraryJobValue struct {
	*library
	job *mccs.Job
}

// jobValue is the value of a job.
func (w *library) jobValue(j *mccs.Job) *libraryJobValue {
	if j.Tag == nil {
		j.Tag = &libraryJobValue{w, j}
	}
	return j.Tag.(*libraryJobValue)
}

var _ starlark.HasAttrs = (*libraryJobValue)(nil)

func (j *libraryJobValue) String() string        { return j.job.String() }
func (j *libraryJobValue) Type() string          { return "job" }
func (j *libraryJobValue) Freeze()               {}
func (j *libraryJobValue) Truth() starlark.Bool  { return true }
func (j *libraryJobValue) Hash() (uint32, error) { return uint32(j.job.ID), nil }

var libraryJobFields = map[string]field[*libraryJobValue]{
	"id":           {"the job's name, a text", func(j *libraryJobValue) starlark.Value { return bounded(j.job.Spec.ID) }},
	"name":         {"the name of its program, or else its own", func(j *libraryJobValue) starlark.Value { return bounded(j.job.Name()) }},
	"user":         {"who submitted it", func(j *libraryJobValue) starlark.Value { return bounded(j.job.Spec.User) }},
	"account":      {"the account or group it is charged to", func(j *libraryJobValue) starlark.Value { return bounded(j.job.Spec.Group) }},
	"qos":          {"its class", func(j *libraryJobValue) starlark.Value { return bounded(j.job.Spec.QOS) }},
	"submitted":    {"when it was submitted", func(j *libraryJobValue) starlark.Value { return integer(j.job.Spec.Submit) }},
	"numProcesses": {"how many processes it has", func(j *libraryJobValue) starlark.Value { return integer(j.job.NumProcesses()) }},
	"gpus":         {"how many GPUs it wants of each node", func(j *libraryJobValue) starlark.Value { return integer(j.job.GPUs()) }},
	"gpu_memory":   {"how many bytes of each GPU it wants; 0 for whole ones", func(j *libraryJobValue) starlark.Value { return integer(j.job.Spec.Request.GPUMemory) }},
	"estimate":     {"how long it says that it runs: its time limit", func(j *libraryJobValue) starlark.Value { return integer(j.job.Estimate()) }},
	"elapsed":      {"how long it has run since it was started", func(j *libraryJobValue) starlark.Value { return integer(j.lib.ProfileOf(j.job).Elapsed) }},
	"left":         {"what is left of its estimate while it runs", func(j *libraryJobValue) starlark.Value { return integer(j.lib.ProfileOf(j.job).Left) }},
	"intensity":    {"the part of its run in which it keeps its GPUs busy", func(j *libraryJobValue) starlark.Value { return starlark.Float(j.job.Spec.GPULoad()) }},
	"bytes":        {"what it moves between its nodes", func(j *libraryJobValue) starlark.Value { return integer(j.job.Spec.Traffic.NetBytes) }},
	"cpu_time": {"the time of its processes on processors since it was started, as its nodes measured it; 0 before mccsSetProfilingPeriod", func(j *libraryJobValue) starlark.Value {
		return j.seconds(func(m *model.Measured) float64 { return m.CPU })
	}},
	"gpu_time": {"the time of its kernels on GPUs, as measured", func(j *libraryJobValue) starlark.Value {
		return j.seconds(func(m *model.Measured) float64 { return m.GPU })
	}},
	"wait_time": {"the time that its programs waited for a GPU, as measured", func(j *libraryJobValue) starlark.Value {
		return j.seconds(func(m *model.Measured) float64 { return m.Waited })
	}},
	"move_time": {"the time in which its programs' memory was moved to GPUs and from them, as measured", func(j *libraryJobValue) starlark.Value {
		return j.seconds(func(m *model.Measured) float64 { return m.Moving })
	}},
	"copied": {"the bytes that its programs copied to GPUs and from them, as measured", func(j *libraryJobValue) starlark.Value {
		return j.bytes(func(m *model.Measured) uint64 { return m.CopiedIn + m.CopiedOut })
	}},
	"swapped": {"the bytes of its programs that were swapped in and out, as measured", func(j *libraryJobValue) starlark.Value {
		return j.bytes(func(m *model.Measured) uint64 { return m.SwapIn + m.SwapOut })
	}},
	"rank":      {"its priority, larger goes first", func(j *libraryJobValue) starlark.Value { return integer(j.job.Rank()) }},
	"limit":     {"what mccsSetDeviceLimit said last, or ALL", func(j *libraryJobValue) starlark.Value { return integer(j.job.Limit()) }},
	"assigned":  {"whether it was started", func(j *libraryJobValue) starlark.Value { return starlark.Bool(j.job.Assigned()) }},
	"suspended": {"whether it stands still", func(j *libraryJobValue) starlark.Value { return starlark.Bool(j.job.Suspended()) }},
	"nodes":     {"the nodes that were given to it", func(j *libraryJobValue) starlark.Value { return j.nodes() }},
}

// seconds is a time that was measured.
func (j *libraryJobValue) seconds(of func(*model.Measured) float64) starlark.Value {
	m := j.lib.ProfileOf(j.job).Measured
	return integer(time.Duration(min(of(&m), 1<<31) * float64(time.Second)))
}

func (j *libraryJobValue) bytes(of func(*model.Measured) uint64) starlark.Value {
	m := j.lib.ProfileOf(j.job).Measured
	return integer(int64(of(&m)))
}

func (j *libraryJobValue) nodes() starlark.Value {
	list := make([]starlark.Value, len(j.job.Nodes()))
	for i, o := range j.job.Nodes() {
		list[i] = j.nodeOf(o.Node)
	}
	return starlark.NewList(list)
}

// Attr is one of the job's fields.
func (j *libraryJobValue) Attr(name string) (starlark.Value, error) {
	f, ok := libraryJobFields[name]
	if !ok {
		return nil, nil
	}
	if !j.busy && (name == "elapsed" || name == "left") {
		return nil, fmt.Errorf("a job's %s is known in a step", name)
	}
	if name == "nodes" {
		if err := j.in.meter.charge(len(j.job.Nodes()), 2*valueBytes); err != nil {
			return nil, err
		}
	}
	return f.get(j), nil
}

// AttrNames lists them.
func (j *libraryJobValue) AttrNames() []string { return fieldNames(libraryJobFields) }

// libraryNode is a node of the library, one for each node.
type libraryNode struct{ node *mccs.Node }

func (w *library) nodeOf(n *mccs.Node) *libraryNode {
	if n.Tag == nil {
		n.Tag = &libraryNode{n}
	}
	return n.Tag.(*libraryNode)
}

var _ starlark.HasAttrs = (*libraryNode)(nil)

func (n *libraryNode) String() string        { return "node " + n.node.Name }
func (n *libraryNode) Type() string          { return "node" }
func (n *libraryNode) Freeze()               {}
func (n *libraryNode) Truth() starlark.Bool  { return true }
func (n *libraryNode) Hash() (uint32, error) { return starlark.String(n.node.Name).Hash() }

var libraryNodeFields = map[string]field[*libraryNode]{
	"name":     {"the node's name", func(n *libraryNode) starlark.Value { return bounded(n.node.Name) }},
	"weight":   {"how many processes it should have", func(n *libraryNode) starlark.Value { return integer(n.node.Weight()) }},
	"assigned": {"how many processes use its GPUs", func(n *libraryNode) starlark.Value { return integer(n.node.NumAssignedProcesses()) }},
	"joined":   {"whether it is part of the cluster", func(n *libraryNode) starlark.Value { return starlark.Bool(n.node.Joined()) }},
}

// Attr is one of the node's fields.
func (n *libraryNode) Attr(name string) (starlark.Value, error) {
	if f, ok := libraryNodeFields[name]; ok {
		return f.get(n), nil
	}
	return nil, nil
}

// AttrNames lists them.
func (n *libraryNode) AttrNames() []string { return fieldNames(libraryNodeFields) }

// acceleratorValue is a GPU that was described.
type acceleratorValue struct{ accelerator *mccs.Accelerator }

func (a *acceleratorValue) String() string       { return "accelerator " + a.accelerator.Type }
func (a *acceleratorValue) Type() string         { return "accelerator" }
func (a *acceleratorValue) Freeze()              {}
func (a *acceleratorValue) Truth() starlark.Bool { return true }
func (a *acceleratorValue) Hash() (uint32, error) {
	return 0, fmt.Errorf("unhashable type: accelerator")
}

// queueValue is a queue of the library: it can be counted and walked through.
type queueValue struct {
	*library
	queue *mccs.Queue
}

var _ starlark.Sequence = (*queueValue)(nil)

func (q *queueValue) String() string        { return q.queue.Name }
func (q *queueValue) Type() string          { return "queue" }
func (q *queueValue) Freeze()               {}
func (q *queueValue) Truth() starlark.Bool  { return q.queue.Len() > 0 }
func (q *queueValue) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: queue") }

// Len counts the jobs in the queue.
func (q *queueValue) Len() int { return q.queue.Len() }

// Iterate walks through the jobs that are in the queue now.
func (q *queueValue) Iterate() starlark.Iterator { return &queueIterator{q, q.queue.Walk()} }

type queueIterator struct {
	*queueValue
	next func() *mccs.Job
}

func (i *queueIterator) Next(p *starlark.Value) bool {
	j := i.next()
	if j == nil {
		return false
	}
	*p = i.jobValue(j)
	return true
}

func (*queueIterator) Done() {}
