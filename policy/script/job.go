package script

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"muster/model"
	"muster/policy"
)

// Job is a job as scripts see it. It is a name: what it tells is what the view tells
// at the moment.
type Job struct {
	look *look
	id   policy.JobID
}

// look is the view of the step that is going on. Values of scripts refer to it, so that
// those kept from an earlier step see the present.
type look struct {
	view *policy.View
	plan *policy.Plan // nil where nothing may be proposed
	mode policy.Mode
	// meter is charged for what depends on the size of the cluster.
	meter *meter
}

var (
	_ starlark.HasAttrs   = (*Job)(nil)
	_ starlark.Comparable = (*Job)(nil)
)

func (j *Job) String() string        { return "job(" + j.look.view.Job(j.id).ID + ")" }
func (j *Job) Type() string          { return "job" }
func (j *Job) Freeze()               {}
func (j *Job) Truth() starlark.Bool  { return true }
func (j *Job) Hash() (uint32, error) { return uint32(j.id), nil }

// CompareSameType orders jobs as they were submitted.
func (j *Job) CompareSameType(op syntax.Token, y starlark.Value, _ int) (bool, error) {
	a, b := j.id, y.(*Job).id
	switch op {
	case syntax.EQL:
		return a == b, nil
	case syntax.NEQ:
		return a != b, nil
	case syntax.LT:
		return a < b, nil
	case syntax.LE:
		return a <= b, nil
	case syntax.GT:
		return a > b, nil
	}
	return a >= b, nil
}

// field is something that a value has, with its line in the reference.
type field[T any] struct {
	help string
	get  func(T) starlark.Value
}

func integer[N int | int32 | int64 | time.Duration](n N) starlark.Value {
	return starlark.MakeInt64(int64(n))
}

// bounded is a text from outside, cut to what scripts may hold.
func bounded(s string) starlark.Value {
	if len(s) > maxString {
		s = s[:maxString]
	}
	return starlark.String(s)
}

func (j *Job) job() *model.Job         { return j.look.view.Job(j.id) }
func (j *Job) request() *model.Request { return &j.job().Request }

var jobFields = map[string]field[*Job]{
	"id":          {"the job's name, a text", func(j *Job) starlark.Value { return bounded(j.job().ID) }},
	"user":        {"who submitted it", func(j *Job) starlark.Value { return bounded(j.job().User) }},
	"account":     {"the account or group it is charged to", func(j *Job) starlark.Value { return bounded(j.job().Group) }},
	"queue":       {"the queue or partition it was submitted to", func(j *Job) starlark.Value { return bounded(j.job().Queue) }},
	"qos":         {"its class", func(j *Job) starlark.Value { return bounded(j.job().QOS) }},
	"submitted":   {"when it was submitted", func(j *Job) starlark.Value { return integer(j.job().Submit) }},
	"estimate":    {"how long it says that it runs: its time limit", func(j *Job) starlark.Value { return integer(j.job().Estimate()) }},
	"priority":    {"its priority, larger goes first", func(j *Job) starlark.Value { return integer(j.job().Priority) }},
	"rank":        {"its place in the order of fair share and other factors, larger goes first", func(j *Job) starlark.Value { return integer(j.look.view.Rank(j.id)) }},
	"nodes":       {"how many nodes it wants; 0 if its cores may be anywhere", func(j *Job) starlark.Value { return integer(j.request().Nodes) }},
	"cores":       {"how many cores it wants in all", func(j *Job) starlark.Value { return integer(coresOf(j.request())) }},
	"memory":      {"how many bytes it wants of each node's memory", func(j *Job) starlark.Value { return integer(j.request().Memory) }},
	"gpus":        {"how many GPUs it wants of each node", func(j *Job) starlark.Value { return integer(j.request().GPUs) }},
	"gpu_memory":  {"how many bytes of each GPU it wants; 0 for whole ones", func(j *Job) starlark.Value { return integer(j.request().GPUMemory) }},
	"gpu_type":    {"the type of GPU that it wants; empty for any", func(j *Job) starlark.Value { return bounded(j.request().GPUType) }},
	"remote_gpus": {"how many GPUs it wants anywhere", func(j *Job) starlark.Value { return integer(remoteOf(j.request())) }},
	"exclusive":   {"whether it wants its nodes to itself", func(j *Job) starlark.Value { return starlark.Bool(j.request().Exclusive) }},
	"requests":    {"how many requests it has of which one is enough; 1 if alternatives are not asked for", func(j *Job) starlark.Value { return integer(j.look.view.Requests(j.id)) }},
	"shape":       {"a number that jobs share that ask for the same", func(j *Job) starlark.Value { return integer(j.look.view.Shape(j.id).ID()) }},
	"waits":       {"whether it waits, and was not started in this step", func(j *Job) starlark.Value { return starlark.Bool(j.look.view.Waits(j.id)) }},
	"runs":        {"whether it runs, or was started in this step, or is suspended", func(j *Job) starlark.Value { return starlark.Bool(j.look.view.Held(j.id) != nil) }},
	"stopping":    {"whether it is being stopped", func(j *Job) starlark.Value { return starlark.Bool(j.look.view.Stopping(j.id)) }},
	"started": {"when it was started; None while it waits", func(j *Job) starlark.Value {
		if j.look.view.Held(j.id) == nil {
			return starlark.None
		}
		return integer(j.look.view.StartedAt(j.id))
	}},
	"ends": {"when it is expected to end, if it runs, or would if it were started now", func(j *Job) starlark.Value { return integer(j.ends()) }},
	"on":   {"the names of the nodes that it runs on", func(j *Job) starlark.Value { return j.on() }},
}

func coresOf(r *model.Request) int {
	if r.Nodes > 0 && r.CoresPerNode > 0 {
		return r.Nodes * r.CoresPerNode
	}
	return r.Cores
}

func remoteOf(r *model.Request) int {
	if r.Remote == nil {
		return 0
	}
	return r.Remote.Count
}

func (j *Job) ends() time.Duration {
	v := j.look.view
	if v.Held(j.id) != nil {
		return v.ExpectedEnd(j.id)
	}
	return model.After(v.Now(), v.Job(j.id).Estimate())
}

func (j *Job) on() starlark.Value {
	a := j.look.view.Held(j.id)
	if a == nil {
		return starlark.NewList(nil)
	}
	names := make([]starlark.Value, len(a.Parts))
	for i := range a.Parts {
		names[i] = bounded(j.look.view.Cluster().Nodes[a.Parts[i].Node].Name)
	}
	return starlark.NewList(names)
}

// Attr is one of the job's fields.
func (j *Job) Attr(name string) (starlark.Value, error) {
	f, ok := jobFields[name]
	if !ok {
		return nil, nil
	}
	if a := j.look.view.Held(j.id); name == "on" && a != nil {
		if err := j.look.meter.charge(len(a.Parts), 2*valueBytes); err != nil {
			return nil, err
		}
	}
	return f.get(j), nil
}

// AttrNames lists them.
func (j *Job) AttrNames() []string { return fieldNames(jobFields) }

func fieldNames[T any](fields map[string]field[T]) []string {
	return slices.Sorted(maps.Keys(fields))
}

// jobOf reads an argument that must be a job.
func jobOf(function string, v starlark.Value) (*Job, error) {
	j, ok := v.(*Job)
	if !ok {
		return nil, fmt.Errorf("%s: got %s, want a job", function, v.Type())
	}
	return j, nil
}
