package script

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"go.starlark.net/starlark"

	"muster/model"
	"muster/policy"
)

// method is a method that a value of this package has, with its lines in the
// reference: how it is called, and what it does.
type method[T any] struct {
	call, help string
	do         func(recv T, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)
}

// bound are the methods of one value, made once.
func bound[T any](recv T, table map[string]method[T]) map[string]starlark.Value {
	out := map[string]starlark.Value{}
	for name, m := range table {
		out[name] = starlark.NewBuiltin(name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			return m.do(recv, args, named)
		})
	}
	return out
}

func memberNames[T any](fields map[string]field[T], methods map[string]method[T]) []string {
	names := fieldNames(fields)
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// viewValue is the view as scripts see it.
type viewValue struct {
	*decide
	anew bool
	// reserved is the job that view.reserve was asked for last in this step, and
	// reservedAt what it said.
	reserved   *Job
	reservedAt time.Duration
	// reservation counts them, and the steps: what did not fit beside the latest is in
	// misfits, by class.
	reservation uint64
	misfits     []misfit
	methods     map[string]starlark.Value
}

func newView(d *decide) *viewValue {
	v := &viewValue{decide: d}
	v.methods = bound(v, viewMethods)
	return v
}

// begin is called before each step.
func (v *viewValue) begin(anew bool) {
	v.anew, v.reserved = anew, nil
	v.reservation++
}

var _ starlark.HasAttrs = (*viewValue)(nil)

func (v *viewValue) String() string        { return "view" }
func (v *viewValue) Type() string          { return "view" }
func (v *viewValue) Freeze()               {}
func (v *viewValue) Truth() starlark.Bool  { return true }
func (v *viewValue) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: view") }

// Attr is a field or a method of the view.
func (v *viewValue) Attr(name string) (starlark.Value, error) {
	if m, ok := v.methods[name]; ok {
		return m, nil
	}
	if f, ok := viewFields[name]; ok {
		return f.get(v), nil
	}
	return nil, nil
}

// AttrNames lists them.
func (v *viewValue) AttrNames() []string { return memberNames(viewFields, viewMethods) }

var viewFields = map[string]field[*viewValue]{
	"now":       {"the time of the step", func(v *viewValue) starlark.Value { return integer(v.look.view.Now()) }},
	"waiting":   {"how many jobs wait", func(v *viewValue) starlark.Value { return integer(v.look.view.Waiting()) }},
	"freed":     {"whether anything was given back since the last step, or came", func(v *viewValue) starlark.Value { return starlark.Bool(v.anew || v.look.view.Freed()) }},
	"restarted": {"whether the script must not rely on what it knew: at its first step, and after it has failed. state is empty, and all who wait have arrived", func(v *viewValue) starlark.Value { return starlark.Bool(v.anew) }},
	"reordered": {"whether waiting jobs have another order than at the last step", func(v *viewValue) starlark.Value { return starlark.Bool(v.anew || v.look.view.Reordered()) }},
}

var viewMethods = map[string]method[*viewValue]{}

func init() { // they refer to each other
	viewMethods["arrived"] = method[*viewValue]{"arrived()", "the jobs that have come to the queue since the last step", (*viewValue).arrived}
	viewMethods["left"] = method[*viewValue]{"left()", "the jobs that have ended or left the queue since the last step", (*viewValue).left}
	viewMethods["queue"] = method[*viewValue]{"queue(after=None)", "the waiting jobs, in the order of the queue; those behind a job, if one is given", (*viewValue).queue}
	viewMethods["may_fit"] = method[*viewValue]{"may_fit(after=None, depth=0)", "as queue, without those that surely do not fit now; of the first depth, if it is not 0", (*viewValue).mayFit}
	viewMethods["fitting"] = method[*viewValue]{"fitting()", "the waiting jobs that may fit, in the order of the queue; those that were found not to fit only once something was freed. Of those that ask for the same, none comes behind one that plan.start did not start. One walk at a time", (*viewValue).fitting}
	viewMethods["running"] = method[*viewValue]{"running()", "the running jobs, and those started in this step, the first to end first", (*viewValue).running}
	viewMethods["suspended"] = method[*viewValue]{"suspended()", "the suspended jobs", (*viewValue).suspended}
	viewMethods["fits"] = method[*viewValue]{"fits(job, nodes=None, beside=False, alternative=0)", "whether plan.start with the same arguments would start it", (*viewValue).fits}
	viewMethods["reserve"] = method[*viewValue]{"reserve(job, within=NEVER)", "when the job can start at the latest, if all that runs ends as it says, or NEVER. What it needs then is kept: beside=True leaves it alone", (*viewValue).reserve}
	viewMethods["without"] = method[*viewValue]{"without(jobs, job)", "whether a job would fit if some running jobs were gone", (*viewValue).without}
	viewMethods["shortage"] = method[*viewValue]{"shortage(job)", "what the job lacks now, as a text", (*viewValue).shortage}
	viewMethods["nodes"] = method[*viewValue]{"nodes()", "all nodes, in their order", (*viewValue).nodes}
	viewMethods["node"] = method[*viewValue]{"node(name)", "one node", (*viewValue).node}
}

// jobs makes a list of jobs, and charges it.
func (v *viewValue) jobs(ids []policy.JobID) (starlark.Value, error) {
	if err := v.in.meter.charge(len(ids), 3*valueBytes); err != nil {
		return nil, err
	}
	out := make([]starlark.Value, len(ids))
	all := make([]Job, len(ids))
	for i, id := range ids {
		all[i] = Job{&v.look, id}
		out[i] = &all[i]
	}
	return starlark.NewList(out), nil
}

func nothing(name string, args starlark.Tuple, named []starlark.Tuple) error {
	return starlark.UnpackPositionalArgs(name, args, named, 0)
}

func (v *viewValue) arrived(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("arrived", args, named); err != nil {
		return nil, err
	}
	if v.anew {
		return v.jobs(v.look.view.WaitingJobs())
	}
	return v.jobs(v.look.view.Arrived())
}

func (v *viewValue) left(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("left", args, named); err != nil || v.anew {
		return starlark.NewList(nil), err
	}
	return v.jobs(v.look.view.Left())
}

func (v *viewValue) suspended(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("suspended", args, named); err != nil {
		return nil, err
	}
	return v.jobs(v.look.view.StandStill())
}

func (v *viewValue) queue(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var after starlark.Value = starlark.None
	if err := starlark.UnpackArgs("queue", args, named, "after?", &after); err != nil {
		return nil, err
	}
	return v.walk("queue", after, 0, false)
}

func (v *viewValue) mayFit(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var after starlark.Value = starlark.None
	depth := 0
	if err := starlark.UnpackArgs("may_fit", args, named, "after?", &after, "depth?", &depth); err != nil {
		return nil, err
	}
	return v.walk("may_fit", after, depth, true)
}

func (v *viewValue) walk(name string, after starlark.Value, depth int, fitting bool) (starlark.Value, error) {
	w := &jobWalk{v: v, name: name, depth: depth, fitting: fitting, waiting: true}
	if depth <= 0 {
		w.depth = math.MaxInt
	}
	w.from = v.look.view.Queue()
	if after != starlark.None {
		j, err := jobOf(name, after)
		if err != nil {
			return nil, err
		}
		w.from.Seek(v.look.view.PlaceOf(j.id))
	}
	return w, nil
}

func (v *viewValue) running(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("running", args, named); err != nil {
		return nil, err
	}
	// A copy: starting a job while one walks would change the order under its feet.
	var ids []policy.JobID
	for c := v.look.view.Ends(); ; {
		id, _, ok := c.Next()
		if !ok {
			return v.jobs(ids)
		}
		ids = append(ids, id)
	}
}

// jobWalk is a walk over the queue that makes jobs as they are asked for.
type jobWalk struct {
	v       *viewValue
	name    string
	from    policy.Cursor
	depth   int
	fitting bool
	waiting bool
}

func (w *jobWalk) String() string             { return w.name }
func (w *jobWalk) Type() string               { return w.name }
func (w *jobWalk) Freeze()                    {}
func (w *jobWalk) Truth() starlark.Bool       { return true }
func (w *jobWalk) Hash() (uint32, error)      { return 0, fmt.Errorf("unhashable type: %s", w.name) }
func (w *jobWalk) Iterate() starlark.Iterator { return &jobIterator{w: w, at: w.from, depth: w.depth} }

var _ starlark.Iterable = (*jobWalk)(nil)

type jobIterator struct {
	w     *jobWalk
	at    policy.Cursor
	depth int
	begun int
}

// Next skips jobs that were started in this step.
func (it *jobIterator) Next(p *starlark.Value) bool {
	v := it.w.v.look.view
	for {
		id, ok := policy.JobID(0), false
		if it.w.fitting {
			left := it.depth
			id, ok = it.at.NextThatMayFit(v, it.w.v.look.mode, &it.depth)
			if it.w.v.in.meter.work((left-it.depth)/16) != nil {
				return false // the interpreter will notice
			}
		} else {
			id, _, ok = it.at.Next()
		}
		if !ok {
			return false
		}
		if v.Waits(id) {
			*p = &Job{&it.w.v.look, id}
			return true
		}
		if it.w.v.in.meter.work(1) != nil {
			return false
		}
	}
}

func (it *jobIterator) Done() {}

func (v *viewValue) fitting(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("fitting", args, named); err != nil {
		return nil, err
	}
	if v.look.plan == nil {
		return nil, fmt.Errorf("view.fitting: only decide may walk over them")
	}
	if v.lines == nil {
		if err := v.in.meter.work(v.look.view.Waiting() / 4); err != nil {
			return nil, err
		}
		v.lines = policy.NewLines(v.look.mode)
		v.lines.Begin(v.look.view)
	} else {
		v.lines.Again(v.look.view)
	}
	v.walks++
	return &lineWalk{v, v.walks}, nil
}

// lineWalk is a walk over the jobs that may fit.
type lineWalk struct {
	v    *viewValue
	walk int
}

func (w *lineWalk) String() string             { return "fitting" }
func (w *lineWalk) Type() string               { return "fitting" }
func (w *lineWalk) Freeze()                    {}
func (w *lineWalk) Truth() starlark.Bool       { return true }
func (w *lineWalk) Hash() (uint32, error)      { return 0, fmt.Errorf("unhashable type: fitting") }
func (w *lineWalk) Iterate() starlark.Iterator { return w }
func (w *lineWalk) Done()                      {}

// Next is the next job that may fit.
func (w *lineWalk) Next(p *starlark.Value) bool {
	if w.walk != w.v.walks {
		w.v.in.meter.thread.Cancel("this walk over view.fitting() is over: another was begun")
		return false
	}
	if w.v.in.meter.work(4) != nil {
		return false // the interpreter will notice
	}
	id, ok := w.v.lines.Next(w.v.look.view)
	if ok {
		*p = &Job{&w.v.look, id}
	}
	return ok
}

// where reads the arguments that plan.start and view.fits share.
type where struct {
	job         *Job
	nodes       []int32
	beside      bool
	alternative int
	reason      string
}

func (v *viewValue) where(name string, args starlark.Tuple, named []starlark.Tuple) (where, error) {
	var w where
	var job starlark.Value
	var nodes starlark.Value = starlark.None
	err := starlark.UnpackArgs(name, args, named, "job", &job, "nodes?", &nodes, "beside?", &w.beside, "alternative?", &w.alternative, "reason?", &w.reason)
	if err != nil {
		return w, err
	}
	if w.job, err = jobOf(name, job); err != nil || nodes == starlark.None {
		return w, err
	}
	list, err := v.in.meter.collect(nodes, len(v.look.view.Cluster().Nodes))
	if err != nil {
		return w, err
	}
	w.nodes = make([]int32, len(list))
	for i, e := range list {
		if w.nodes[i], err = v.nodeNumber(e); err != nil {
			return w, err
		}
	}
	return w, nil
}

// place looks for a place; nil if there is none.
func (v *viewValue) place(w where) (*model.Allocation, error) {
	view := v.look.view
	sh := view.ShapeAs(w.job.id, w.alternative)
	if sh == nil {
		return nil, nil
	}
	if err := v.in.meter.work(1 + len(view.Cluster().Nodes)/256); err != nil {
		return nil, err
	}
	switch {
	case w.nodes != nil && w.beside:
		return view.PlaceOnBeside(sh, w.nodes, v.look.mode), nil
	case w.nodes != nil:
		return view.PlaceOn(sh, w.nodes, v.look.mode), nil
	case w.beside:
		return v.placeBeside(sh), nil
	case !view.MayFit(sh, v.look.mode):
		return nil, nil
	}
	return view.Place(sh, v.look.mode), nil
}

// placeBeside is PlaceBeside. What was not found beside the reservation is not looked for
// again: within a step room only shrinks.
func (v *viewValue) placeBeside(sh *policy.Shape) *model.Allocation {
	if !sh.Plain() {
		return v.look.view.PlaceBeside(sh, v.look.mode)
	}
	c := sh.Class()
	if c < len(v.misfits) && v.misfits[c].reservation == v.reservation && sh.Nodes() >= v.misfits[c].nodes {
		return nil
	}
	a := v.look.view.PlaceBeside(sh, v.look.mode)
	if a == nil {
		for c >= len(v.misfits) {
			v.misfits = append(v.misfits, misfit{})
		}
		v.misfits[c] = misfit{v.reservation, sh.Nodes()}
	}
	return a
}

// misfit is the smallest number of nodes that a class of shapes did not get beside a
// reservation: more it cannot get either.
type misfit struct {
	reservation uint64
	nodes       int
}

func (v *viewValue) fits(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	w, err := v.where("fits", args, named)
	if err != nil {
		return nil, err
	}
	a, err := v.place(w)
	return starlark.Bool(a != nil), err
}

func (v *viewValue) reserve(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var job starlark.Value
	within := int64(policy.Never)
	if err := starlark.UnpackArgs("reserve", args, named, "job", &job, "within?", &within); err != nil {
		return nil, err
	}
	j, err := jobOf("reserve", job)
	if err != nil {
		return nil, err
	}
	if !v.look.view.Waits(j.id) {
		return nil, fmt.Errorf("reserve: job %s does not wait", v.look.view.Job(j.id).ID)
	}
	if err := v.in.meter.work(100 + v.look.view.ReserveCost(v.look.view.Shape(j.id))/2); err != nil {
		return nil, err
	}
	v.reservation++
	v.reserved, v.reservedAt = j, v.look.view.ReserveEarliest(v.look.view.Shape(j.id), time.Duration(within))
	return integer(v.reservedAt), nil
}

// without is a trial: some jobs are taken away, another is placed, and all is put back.
func (v *viewValue) without(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var jobs, job starlark.Value
	if err := starlark.UnpackArgs("without", args, named, "jobs", &jobs, "job", &job); err != nil {
		return nil, err
	}
	j, err := jobOf("without", job)
	if err != nil {
		return nil, err
	}
	list, err := v.in.meter.collect(jobs, maxCollected)
	if err != nil {
		return nil, err
	}
	stops := make([]policy.Stop, len(list))
	for i, e := range list {
		gone, err := jobOf("without", e)
		if err != nil {
			return nil, err
		}
		stops[i] = policy.Stop{Job: gone.id, How: policy.Requeue}
		if a := v.look.view.Held(gone.id); a != nil {
			if err := v.in.meter.work(1 + len(a.Parts)/8); err != nil {
				return nil, err
			}
		}
	}
	if err := v.in.meter.work(1 + len(v.look.view.Cluster().Nodes)/64); err != nil {
		return nil, err
	}
	a := v.look.view.Suppose(stops, nil, v.look.view.Shape(j.id), v.look.mode)
	return starlark.Bool(a != nil), nil
}

func (v *viewValue) shortage(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var job starlark.Value
	if err := starlark.UnpackArgs("shortage", args, named, "job", &job); err != nil {
		return nil, err
	}
	j, err := jobOf("shortage", job)
	if err != nil {
		return nil, err
	}
	if err := v.in.meter.charge(len(v.look.view.Cluster().Nodes), 1); err != nil {
		return nil, err
	}
	return bounded(v.look.view.Shortage(v.look.view.Shape(j.id), v.look.mode)), nil
}

// nodeValue is a node as scripts see it.
type nodeValue struct {
	look *look
	n    int32
}

var _ starlark.HasAttrs = (*nodeValue)(nil)

func (n *nodeValue) String() string        { return "node(" + n.node().Name + ")" }
func (n *nodeValue) Type() string          { return "node" }
func (n *nodeValue) Freeze()               {}
func (n *nodeValue) Truth() starlark.Bool  { return true }
func (n *nodeValue) Hash() (uint32, error) { return uint32(n.n), nil }
func (n *nodeValue) node() *model.Node     { return &n.look.view.Cluster().Nodes[n.n] }

// Attr is one of the node's fields.
func (n *nodeValue) Attr(name string) (starlark.Value, error) {
	if f, ok := nodeFields[name]; ok {
		return f.get(n), nil
	}
	return nil, nil
}

// AttrNames lists them.
func (n *nodeValue) AttrNames() []string { return fieldNames(nodeFields) }

var nodeFields = map[string]field[*nodeValue]{
	"name":        {"its name", func(n *nodeValue) starlark.Value { return bounded(n.node().Name) }},
	"number":      {"its place in the order of nodes, from 0", func(n *nodeValue) starlark.Value { return integer(n.n) }},
	"switch":      {"the switch that it hangs on; may be empty", func(n *nodeValue) starlark.Value { return bounded(n.node().Switch) }},
	"up":          {"whether new jobs may be placed on it", func(n *nodeValue) starlark.Value { return starlark.Bool(n.look.view.Up(n.n)) }},
	"cores":       {"how many cores it has", func(n *nodeValue) starlark.Value { return integer(n.node().Cores) }},
	"memory":      {"how many bytes of memory it has", func(n *nodeValue) starlark.Value { return integer(n.node().Memory) }},
	"gpus":        {"how many GPUs it has", func(n *nodeValue) starlark.Value { return integer(len(n.node().GPUs)) }},
	"free_cores":  {"how many of its cores are free", func(n *nodeValue) starlark.Value { return integer(n.look.view.FreeCores(n.n)) }},
	"free_memory": {"how many bytes of its memory are free", func(n *nodeValue) starlark.Value { return integer(n.look.view.FreeMemory(n.n)) }},
	"free_gpus":   {"how many of its GPUs are free, as a whole", func(n *nodeValue) starlark.Value { return integer(bits.OnesCount64(n.look.view.FreeGPUs(n.n))) }},
	"untouched":   {"whether nothing of it is in use", func(n *nodeValue) starlark.Value { return starlark.Bool(n.look.view.Untouched(n.n)) }},
}

func (v *viewValue) nodes(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := nothing("nodes", args, named); err != nil {
		return nil, err
	}
	count := len(v.look.view.Cluster().Nodes)
	if err := v.in.meter.charge(count, 3*valueBytes); err != nil {
		return nil, err
	}
	all, out := make([]nodeValue, count), make([]starlark.Value, count)
	for i := range all {
		all[i] = nodeValue{&v.look, int32(i)}
		out[i] = &all[i]
	}
	return starlark.NewList(out), nil
}

func (v *viewValue) node(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name starlark.Value
	if err := starlark.UnpackPositionalArgs("node", args, named, 1, &name); err != nil {
		return nil, err
	}
	n, err := v.nodeNumber(name)
	if err != nil {
		return nil, err
	}
	return &nodeValue{&v.look, n}, nil
}

// nodeNumber reads a node, or its name.
func (v *viewValue) nodeNumber(e starlark.Value) (int32, error) {
	if n, ok := e.(*nodeValue); ok {
		return n.n, nil
	}
	name, ok := starlark.AsString(e)
	if !ok {
		return 0, fmt.Errorf("got %s, want a node or its name", e.Type())
	}
	n, ok := v.look.view.NodeNamed(name)
	if !ok {
		return 0, fmt.Errorf("there is no node %q", clipped(name))
	}
	return n, nil
}
