package script

import (
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"muster/policy"
	"muster/policy/mccs"
)

// library is the way of scripts that are written with the calls of the fourth paper: they
// define init(), which registers functions for events, and main(), which is called after
// the events of each step.
// Its many methods are those calls, one each.
type library struct {
	in  *interp
	lib *mccs.Library
	// busy says that a step is going on: only then may the calls be used. At the end the
	// script may still write its last lines.
	busy, ending   bool
	init, mainLoop *starlark.Function
	// calls counts the functions that were called in this step, and spent their steps.
	calls, spent uint64
}

// eventSteps is how many steps a function called for an event may take, on average, beside
// those that all functions of a step have together: a thousand jobs may arrive at once.
const eventSteps = 200

func newLibrary(in *interp) way {
	w := &library{in: in}
	w.lib = mccs.New(w)
	return w
}

// lookedAStep is how many nodes the library looks at, in Go, in about the time of one
// step of the interpreter.
const lookedAStep = 8

// names are the calls and the two queues.
func (w *library) names() starlark.StringDict {
	names := starlark.StringDict{
		"UnassignedJobQueue": &queueValue{w, w.lib.UnassignedJobQueue},
		"AssignedJobQueue":   &queueValue{w, w.lib.AssignedJobQueue},
		"ALL":                starlark.MakeInt(mccs.NoLimit),
	}
	for e := mccs.NewJobArrival; e <= mccs.Termination; e++ {
		names[e.String()] = starlark.String(e.String())
	}
	for name, c := range mccsCalls {
		names[name] = starlark.NewBuiltin(name, func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			if !w.busy && !(w.ending && name == "mccsReport") {
				return nil, fmt.Errorf("%s: the calls of the library are for init, main and the functions of events", b.Name())
			}
			z, err := c.do(w, args, named)
			if err == nil && w.lib.Looked >= lookedAStep {
				err = w.in.meter.work(w.lib.Looked / lookedAStep)
				w.lib.Looked %= lookedAStep
			}
			return z, err
		})
	}
	return names
}

func (w *library) ready() (policy.Traits, *Error) {
	var failure *Error
	if w.init, failure = w.in.function("init", 0); failure == nil {
		w.mainLoop, failure = w.in.function("main", 0)
	}
	return mccs.Traits(), failure
}

// Init and Main make it a program of the library.
func (w *library) Init(*mccs.Library) error { return w.call(w.init) }

// Main is the script's main, if it has one.
func (w *library) Main(*mccs.Library) error {
	if w.mainLoop == nil {
		return nil
	}
	return w.call(w.mainLoop)
}

func (w *library) call(f starlark.Callable, args ...starlark.Value) error {
	_, failure := w.in.call(f, args...)
	w.calls++
	w.spent += w.in.meter.thread.Steps
	if most := w.in.meter.steps + w.calls*eventSteps; failure == nil && w.spent > most {
		failure = errorAt(w.in.file, syntax.Position{}, "the script was stopped: its functions took %d steps for %d events: at most %d for one and %d for each other (setting steps)", w.spent, w.calls, w.in.meter.steps, eventSteps)
		if p, ok := f.(interface{ Position() syntax.Position }); ok {
			failure.Line, failure.Column = int(p.Position().Line), int(p.Position().Col)
		}
		w.in.forget()
	}
	if failure != nil {
		return failure
	}
	return nil
}

func (w *library) step(v *policy.View, plan *policy.Plan, anew bool) *Error {
	if anew {
		w.lib.Reset()
	}
	w.calls, w.spent = 0, 0
	w.busy = true
	err := w.lib.Step(v, plan)
	w.busy = false
	return w.failure(err)
}

func (w *library) failure(err error) *Error {
	var failure *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failure):
		return failure
	}
	return &Error{File: w.in.file, Message: err.Error()}
}

func (w *library) why(v *policy.View, id policy.JobID) (string, *Error) {
	return w.lib.Why(v, id), nil
}

// terminate tells the script that its time is over.
func (w *library) terminate() *Error {
	w.ending = true
	return w.failure(w.lib.Terminate())
}

// mccsCall is a call of the library, with its line in the reference.
type mccsCall struct {
	call, help string
	do         func(w *library, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)
}

var mccsCalls map[string]mccsCall

func init() {
	mccsCalls = map[string]mccsCall{
		"mccsSetCallBack": {"mccsSetCallBack(event, function)", "has a function called with the job when an event happens; None for none", (*library).setCallBack},
		"mccsReport":      {"mccsReport(...)", "writes a line for whoever looks at the policy", (*library).report},
		"mccsClean":       {"mccsClean()", "gives back both queues and all functions: nothing is started from then on", (*library).clean},

		"mccsGetNodeList": {"mccsGetNodeList(job=None, order=\"list\", most=0)",
			"the nodes; with a job those that take at least one more of its processes now: as they are listed, or those with the most available or room first. most limits how many", (*library).getNodeList},
		"mccsGetNode":            {"mccsGetNode(name=\"\", cpus=0, gpus=0, memory=0, gpu_type=\"\", available=0)", "the first node with that name or at least those attributes, or None", (*library).getNode},
		"mccsPingNode":           {"mccsPingNode(node, within=NEVER)", "whether the node takes jobs, and its last word is no older than within", (*library).pingNode},
		"mccsQueryNodeInfo":      {"mccsQueryNodeInfo(node)", "a dictionary of what the node has, what of it is free, whether its session is alive, and how old its last word is", (*library).queryNodeInfo},
		"mccsCreateNode":         {"mccsCreateNode(name, cpus=0, memory=0)", "describes a node that is expected", (*library).createNode},
		"mccsAddNode":            {"mccsAddNode(node)", "puts a node that was described into the list", (*library).addNode},
		"mccsCreateAccelerator":  {"mccsCreateAccelerator(type, memory=0, speed=1.0)", "describes a GPU", (*library).createAccelerator},
		"mccsAddAccelerator":     {"mccsAddAccelerator(node, accelerator)", "adds it to a node that was described. False for nodes that have joined", (*library).addAccelerator},
		"mccsSetNodeSchedulingP": {"mccsSetNodeSchedulingP(node, name)", "in what order the node serves programs that wait: \"fcfs\", \"sjf\", \"credit\" or, as its configuration says, \"\"", (*library).setNodeSchedulingP},
		"mccsSetNodeSharingP":    {"mccsSetNodeSharingP(node, name)", "whether jobs, and the programs on the node, share its GPUs: \"shared\" or \"exclusive\"", (*library).setNodeSharingP},
		"mccsSetNodeVGPUConf":    {"mccsSetNodeVGPUConf(node, n)", "how many processes share a GPU of the node, and how many virtual GPUs it has; 0 is any number, and as its configuration says", (*library).setNodeVGPUConf},
		"mccsQueryNodeQueues":    {"mccsQueryNodeQueues(node)", "a dictionary of how many jobs and processes the node has, and of how many programs the node said that they run and wait there", (*library).queryNodeQueues},
		"mccsConfigureNodes":     {"mccsConfigureNodes(job)", "whether the job can be started on the nodes that it was given", (*library).configureNodes},

		"mccsAddJob":                {"mccsAddJob(job, queue, until_fits=False)", "puts a job into a queue, behind the others; until_fits: it need not be seen again before it may fit", (*library).addJob},
		"mccsAddJobToHead":          {"mccsAddJobToHead(job, queue)", "puts a job before the others; the round is over with it", (*library).addJobToHead},
		"mccsAddJobToTail":          {"mccsAddJobToTail(job, queue, until_fits=False)", "the same as mccsAddJob", (*library).addJob},
		"mccsRemoveJob":             {"mccsRemoveJob(queue, longest=NEVER)", "takes the next job out of a queue; None when all have been seen since the last event. Unassigned jobs whose estimate is longer than longest are passed over", (*library).removeJob},
		"mccsRetrieveJob":           {"mccsRetrieveJob(queue, id=\"\")", "the first job of a queue, or the one with that ID, which stays there; or None", (*library).retrieveJob},
		"mccsSetProfilingPeriod":    {"mccsSetProfilingPeriod(period)", "how often ProfileReceived is told of each running job, and nodes report; 0 is never", (*library).setProfilingPeriod},
		"mccsAddNodeToJob":          {"mccsAddNodeToJob(job, node, n)", "gives a node up to n processes of a job; how many it took", (*library).addNodeToJob},
		"mccsRemoveAllNodesFromJob": {"mccsRemoveAllNodesFromJob(job)", "takes all nodes from a job that was not started", (*library).removeAllNodesFromJob},
		"mccsSetDeviceLimit":        {"mccsSetDeviceLimit(job, n)", "how many GPUs the job may use on each node, ALL for all; 0 suspends it, more lets it go on. False if that cannot be", (*library).setDeviceLimit},
		"mccsStartJob":              {"mccsStartJob(job)", "starts a job on the nodes that it was given. False if that cannot be", (*library).startJob},
		"mccsDiscardJob":            {"mccsDiscardJob(job)", "ends a running job; a waiting one is never started", (*library).discardJob},

		"NodeWeight":           {"NodeWeight(node)", "how many processes a node should have: its GPUs, unless it was set", (*library).nodeWeight},
		"SetNodeWeight":        {"SetNodeWeight(node, weight)", "sets it", (*library).setNodeWeight},
		"SetNodeWeights":       {"SetNodeWeights(text)", "sets those of nodes, also of those to come: \"8/4/4\" in the order of the cluster, \"a*8/b*4\" by name", (*library).setNodeWeights},
		"SortNodes":            {"SortNodes()", "keeps the list of nodes in order of their weights, larger ones first", (*library).sortNodes},
		"NumAssignedProcesses": {"NumAssignedProcesses(node)", "how many processes use the node's GPUs", (*library).numAssignedProcesses},
		"Available":            {"Available(node, job)", "the node's weight less its processes; its free cores for a job without GPUs", (*library).available},
		"remainingProcesses":   {"remainingProcesses(job)", "how many of the job's processes have no node", (*library).remainingProcesses},
		"MinNodes":             {"MinNodes(job)", "how many nodes the job needs at least", (*library).minNodes},
		"WouldFit":             {"WouldFit(job, jobs)", "whether a waiting job would find room if these jobs were suspended", (*library).wouldFit},
		"MoveJob":              {"MoveJob(job)", "has a suspended job go on elsewhere: it is saved, and comes back as an unassigned one. False if there is no room for it, or it cannot be saved", (*library).moveJob},
		"SuspendedJobs":        {"SuspendedJobs()", "the assigned jobs whose limit is 0", (*library).suspendedJobs},
	}
	mccsCalls["mccsSetCallback"] = mccsCalls["mccsSetCallBack"] // so in the paper's listings
}

// done is the answer of calls that have none.
func done(err error) (starlark.Value, error) {
	if err != nil {
		return nil, err
	}
	return starlark.None, nil
}

func answer(ok bool, err error) (starlark.Value, error) { return starlark.Bool(ok), err }

// obeyed is True, or False with a line that says why it cannot be.
func (w *library) obeyed(err error) (starlark.Value, error) {
	var refusal *mccs.Refusal
	if errors.As(err, &refusal) {
		w.tell(refusal.Sentence)
		return starlark.False, nil
	}
	return starlark.Bool(err == nil), err
}

func (w *library) tell(line string) {
	w.lib.Report(line)
	w.in.printed.add(line)
}

// ---- General ----

func (w *library) setCallBack(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name string
	var f starlark.Value
	if err := starlark.UnpackArgs("mccsSetCallBack", args, named, "event", &name, "function", &f); err != nil {
		return nil, err
	}
	event := mccs.NewJobArrival
	for event.String() != name {
		if event++; event > mccs.Termination {
			return nil, fmt.Errorf("mccsSetCallBack: there is no event %q: use NewJobArrival, PriorityChange, JobComplete, ProfileReceived or Termination", clipped(name))
		}
	}
	if f == starlark.None {
		return done(w.lib.SetCallBack(event, nil))
	}
	function, ok := f.(*starlark.Function)
	if !ok || function.NumParams() != 1 || function.NumKwonlyParams() > 0 {
		return nil, fmt.Errorf("mccsSetCallBack: give a function of one parameter, the job")
	}
	return done(w.lib.SetCallBack(event, func(j *mccs.Job) error {
		if j == nil {
			return w.call(function, starlark.None)
		}
		return w.call(function, w.jobValue(j))
	}))
}

func (w *library) report(args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	text, err := w.in.meter.joined(args)
	if err == nil {
		w.tell(text)
	}
	return starlark.None, err
}

func (w *library) clean(starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	w.lib.Clean()
	return starlark.None, nil
}

// ---- Nodes ----

var nodeOrders = map[string]mccs.Order{"list": mccs.AsListed, "available": mccs.ByAvailable, "room": mccs.ByRoom}

func (w *library) getNodeList(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var job starlark.Value = starlark.None
	order, most := "list", 0
	if err := starlark.UnpackArgs("mccsGetNodeList", args, named, "job?", &job, "order?", &order, "most?", &most); err != nil {
		return nil, err
	}
	by, ok := nodeOrders[order]
	if !ok || most < 0 {
		return nil, fmt.Errorf("mccsGetNodeList: the order is list, available or room, not %q, and most is 0 at least", clipped(order))
	}
	nodes := w.lib.GetNodeList()
	if job != starlark.None {
		j, err := libraryJob("mccsGetNodeList", job)
		if err != nil {
			return nil, err
		}
		nodes = w.lib.GetNodesFor(j, by, most)
	} else if order != "list" {
		return nil, fmt.Errorf("mccsGetNodeList: for which job is the order %s?", order)
	} else if most > 0 {
		nodes = nodes[:min(most, len(nodes))]
	}
	if err := w.in.meter.charge(len(nodes)/8, 8*valueBytes); err != nil {
		return nil, err
	}
	list := make([]starlark.Value, len(nodes))
	for i, n := range nodes {
		list[i] = w.nodeOf(n)
	}
	return starlark.NewList(list), nil
}

func (w *library) getNode(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var a mccs.Attributes
	err := starlark.UnpackArgs("mccsGetNode", args, named, "name?", &a.Name, "cpus?", &a.CPUs, "gpus?", &a.GPUs, "memory?", &a.Memory, "gpu_type?", &a.GPUType, "available?", &a.Available)
	if err != nil {
		return nil, err
	}
	if err := w.in.meter.work(len(w.lib.GetNodeList()) / 8); err != nil && a.Name == "" {
		return nil, err
	}
	if n := w.lib.GetNode(a); n != nil {
		return w.nodeOf(n), nil
	}
	return starlark.None, nil
}

// ofNode reads the arguments of a call that begin with a node.
func ofNode(function string, args starlark.Tuple, named []starlark.Tuple, more ...any) (*mccs.Node, error) {
	var v starlark.Value
	if err := starlark.UnpackArgs(function, args, named, append([]any{"node", &v}, more...)...); err != nil {
		return nil, err
	}
	n, ok := v.(*libraryNode)
	if !ok {
		return nil, fmt.Errorf("%s: got %s, want a node", function, v.Type())
	}
	return n.node, nil
}

func (w *library) pingNode(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	within := int64(policy.Never)
	n, err := ofNode("mccsPingNode", args, named, "within?", &within)
	if err != nil {
		return nil, err
	}
	return starlark.Bool(w.lib.PingNode(n) && (within == int64(policy.Never) || w.lib.HeardWithin(n, time.Duration(within)))), nil
}

func (w *library) queryNodeInfo(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n, err := ofNode("mccsQueryNodeInfo", args, named)
	if err != nil {
		return nil, err
	}
	info := w.lib.QueryNodeInfo(n)
	if err := w.in.meter.charge(8*(1+len(info.GPUs)), entryBytes); err != nil {
		return nil, err
	}
	var gpus []starlark.Value
	for _, g := range info.GPUs {
		gpus = append(gpus, dictOf("type", bounded(g.Type), "memory", integer(g.Memory), "speed", starlark.Float(g.Speed)))
	}
	return dictOf("up", starlark.Bool(info.Up), "cpus", integer(info.CPUs), "memory", integer(info.Memory), "gpus", starlark.NewList(gpus),
		"free_cpus", integer(info.FreeCPUs), "free_memory", integer(info.FreeMemory), "free_gpus", integer(info.FreeGPUs),
		"alive", starlark.Bool(info.Alive), "last_word", age(info.LastWord)), nil
}

// age is how old something is, or None.
func age(d time.Duration) starlark.Value {
	if d == mccs.Unknown {
		return starlark.None
	}
	return integer(d)
}

// dictOf is a dictionary of pairs of a name and a value.
func dictOf(pairs ...any) *starlark.Dict {
	d := starlark.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		_ = d.SetKey(starlark.String(pairs[i].(string)), pairs[i+1].(starlark.Value)) // texts can be hashed
	}
	return d
}

func (w *library) createNode(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var name string
	var cpus int
	var memory int64
	if err := starlark.UnpackArgs("mccsCreateNode", args, named, "name", &name, "cpus?", &cpus, "memory?", &memory); err != nil {
		return nil, err
	}
	n, err := w.lib.CreateNode(name, cpus, memory)
	if err == nil {
		err = w.in.meter.alloc(entryBytes)
	}
	if err != nil {
		return nil, err
	}
	return w.nodeOf(n), nil
}

func (w *library) addNode(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n, err := ofNode("mccsAddNode", args, named)
	if err != nil {
		return nil, err
	}
	return done(w.lib.AddNode(n))
}

func (w *library) createAccelerator(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	kind, memory, speed := "", int64(0), 1.0
	if err := starlark.UnpackArgs("mccsCreateAccelerator", args, named, "type", &kind, "memory?", &memory, "speed?", &speed); err != nil {
		return nil, err
	}
	a, err := w.lib.CreateAccelerator(kind, memory, speed)
	if err == nil {
		err = w.in.meter.alloc(entryBytes)
	}
	if err != nil {
		return nil, err
	}
	return &acceleratorValue{a}, nil
}

func (w *library) addAccelerator(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	n, err := ofNode("mccsAddAccelerator", args, named, "accelerator", &v)
	if err != nil {
		return nil, err
	}
	a, ok := v.(*acceleratorValue)
	if !ok {
		return nil, fmt.Errorf("mccsAddAccelerator: got %s, want an accelerator", v.Type())
	}
	return w.obeyed(w.lib.AddAccelerator(n, a.accelerator))
}

func (w *library) setNodeSchedulingP(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name := ""
	n, err := ofNode("mccsSetNodeSchedulingP", args, named, "name", &name)
	if err != nil {
		return nil, err
	}
	return w.obeyed(w.lib.SetNodeSchedulingP(n, name))
}

func (w *library) setNodeSharingP(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	name := ""
	n, err := ofNode("mccsSetNodeSharingP", args, named, "name", &name)
	if err != nil {
		return nil, err
	}
	return w.obeyed(w.lib.SetNodeSharingP(n, name))
}

func (w *library) setNodeVGPUConf(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	each := 0
	n, err := ofNode("mccsSetNodeVGPUConf", args, named, "n", &each)
	if err != nil {
		return nil, err
	}
	return w.obeyed(w.lib.SetNodeVGPUConf(n, each))
}

func (w *library) queryNodeQueues(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n, err := ofNode("mccsQueryNodeQueues", args, named)
	if err == nil {
		err = w.in.meter.charge(8+w.lib.AssignedJobQueue.Len()/8, entryBytes)
	}
	if err != nil {
		return nil, err
	}
	q := w.lib.QueryNodeQueues(n)
	return dictOf("running", integer(q.Running), "suspended", integer(q.Suspended),
		"running_processes", integer(q.RunningProcesses), "suspended_processes", integer(q.SuspendedProcesses),
		"programs", integer(q.Programs), "programs_waiting", integer(q.Waiting), "report_age", age(q.Age)), nil
}

func (w *library) nodeWeight(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n, err := ofNode("NodeWeight", args, named)
	if err != nil {
		return nil, err
	}
	return integer(n.Weight()), nil
}

func (w *library) setNodeWeight(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	weight := 0
	n, err := ofNode("SetNodeWeight", args, named, "weight", &weight)
	if err != nil {
		return nil, err
	}
	return done(w.lib.SetWeight(n, weight))
}

func (w *library) setNodeWeights(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	text := ""
	if err := starlark.UnpackArgs("SetNodeWeights", args, named, "text", &text); err != nil {
		return nil, err
	}
	return done(w.lib.SetWeights(text))
}

func (w *library) sortNodes(starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	w.lib.SortNodes()
	return starlark.None, nil
}

func (w *library) numAssignedProcesses(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n, err := ofNode("NumAssignedProcesses", args, named)
	if err != nil {
		return nil, err
	}
	return integer(n.NumAssignedProcesses()), nil
}

func (w *library) available(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	n, err := ofNode("Available", args, named, "job", &v)
	if err != nil {
		return nil, err
	}
	j, err := libraryJob("Available", v)
	if err != nil {
		return nil, err
	}
	return integer(w.lib.Available(n, j)), nil
}

// ---- Jobs and queues ----

// libraryJob reads an argument that must be a job.
func libraryJob(function string, v starlark.Value) (*mccs.Job, error) {
	j, ok := v.(*libraryJobValue)
	if !ok {
		return nil, fmt.Errorf("%s: got %s, want a job", function, v.Type())
	}
	return j.job, nil
}

// ofJob reads the arguments of a call that begin with a job.
func ofJob(function string, args starlark.Tuple, named []starlark.Tuple, more ...any) (*mccs.Job, error) {
	var v starlark.Value
	if err := starlark.UnpackArgs(function, args, named, append([]any{"job", &v}, more...)...); err != nil {
		return nil, err
	}
	return libraryJob(function, v)
}

func libraryQueue(function string, v starlark.Value) (*mccs.Queue, error) {
	q, ok := v.(*queueValue)
	if !ok {
		return nil, fmt.Errorf("%s: got %s, want UnassignedJobQueue or AssignedJobQueue", function, v.Type())
	}
	return q.queue, nil
}

func (w *library) addJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	untilFits := false
	j, err := ofJob("mccsAddJob", args, named, "queue", &v, "until_fits?", &untilFits)
	if err != nil {
		return nil, err
	}
	q, err := libraryQueue("mccsAddJob", v)
	switch {
	case err != nil:
		return nil, err
	case untilFits:
		return done(w.lib.AddJobUntilFits(j, q))
	}
	return done(w.lib.AddJob(j, q))
}

func (w *library) addJobToHead(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	j, err := ofJob("mccsAddJobToHead", args, named, "queue", &v)
	if err != nil {
		return nil, err
	}
	q, err := libraryQueue("mccsAddJobToHead", v)
	if err == nil {
		err = w.in.meter.work(q.Len() / 256) // the others move
	}
	if err != nil {
		return nil, err
	}
	return done(w.lib.AddJobToHead(j, q))
}

func (w *library) removeJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	longest := int64(policy.Never)
	if err := starlark.UnpackArgs("mccsRemoveJob", args, named, "queue", &v, "longest?", &longest); err != nil {
		return nil, err
	}
	q, err := libraryQueue("mccsRemoveJob", v)
	if err != nil {
		return nil, err
	}
	return w.orNone(w.lib.RemoveShortJob(q, time.Duration(longest)))
}

func (w *library) retrieveJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var v starlark.Value
	id := ""
	if err := starlark.UnpackArgs("mccsRetrieveJob", args, named, "queue", &v, "id?", &id); err != nil {
		return nil, err
	}
	q, err := libraryQueue("mccsRetrieveJob", v)
	if err != nil || id == "" {
		if err != nil {
			return nil, err
		}
		return w.orNone(w.lib.RetrieveJob(q))
	}
	if err := w.in.meter.work(q.Len() / 8); err != nil {
		return nil, err
	}
	return w.orNone(w.lib.Find(q, id))
}

func (w *library) orNone(j *mccs.Job) (starlark.Value, error) {
	if j == nil {
		return starlark.None, nil
	}
	return w.jobValue(j), nil
}

func (w *library) setProfilingPeriod(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var period int64
	if err := starlark.UnpackArgs("mccsSetProfilingPeriod", args, named, "period", &period); err != nil {
		return nil, err
	}
	return done(w.lib.SetProfilingPeriod(time.Duration(period)))
}

func (w *library) addNodeToJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var job, node starlark.Value
	var n int
	if err := starlark.UnpackPositionalArgs("mccsAddNodeToJob", args, named, 3, &job, &node, &n); err != nil {
		return nil, err
	}
	j, err := libraryJob("mccsAddNodeToJob", job)
	if err != nil {
		return nil, err
	}
	to, ok := node.(*libraryNode)
	if !ok {
		return nil, fmt.Errorf("mccsAddNodeToJob: got %s, want a node", node.Type())
	}
	if err := w.in.meter.work(len(j.Nodes()) / 8); err != nil {
		return nil, err
	}
	took, err := w.lib.AddNodeToJob(j, to.node, n)
	return integer(took), err
}

func (w *library) removeAllNodesFromJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("mccsRemoveAllNodesFromJob", args, named)
	if err != nil {
		return nil, err
	}
	return done(w.lib.RemoveAllNodesFromJob(j))
}

func (w *library) configureNodes(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("mccsConfigureNodes", args, named)
	if err == nil {
		err = w.in.meter.work(len(j.Nodes()))
	}
	if err != nil {
		return nil, err
	}
	return answer(w.lib.ConfigureNodes(j))
}

func (w *library) startJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("mccsStartJob", args, named)
	if err == nil {
		err = w.in.meter.work(len(j.Nodes()))
	}
	if err != nil {
		return nil, err
	}
	return answer(w.lib.StartJob(j))
}

func (w *library) setDeviceLimit(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	n := 0
	j, err := ofJob("mccsSetDeviceLimit", args, named, "n", &n)
	if err != nil {
		return nil, err
	}
	return answer(w.lib.SetDeviceLimit(j, n))
}

func (w *library) discardJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("mccsDiscardJob", args, named)
	if err != nil {
		return nil, err
	}
	return done(w.lib.DiscardJob(j))
}

func (w *library) remainingProcesses(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("remainingProcesses", args, named)
	if err != nil {
		return nil, err
	}
	return integer(j.RemainingProcesses()), nil
}

func (w *library) minNodes(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("MinNodes", args, named)
	if err != nil {
		return nil, err
	}
	return integer(w.lib.MinNodes(j)), nil
}

func (w *library) wouldFit(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var others *starlark.List
	j, err := ofJob("WouldFit", args, named, "jobs", &others)
	if err == nil {
		err = w.in.meter.charge(others.Len(), valueBytes)
	}
	if err != nil {
		return nil, err
	}
	list := make([]*mccs.Job, others.Len())
	for i := range list {
		if list[i], err = libraryJob("WouldFit", others.Index(i)); err != nil {
			return nil, err
		}
	}
	return answer(w.lib.WouldFit(j, list))
}

func (w *library) moveJob(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	j, err := ofJob("MoveJob", args, named)
	if err != nil {
		return nil, err
	}
	return answer(w.lib.MoveJob(j))
}

func (w *library) suspendedJobs(starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	jobs := w.lib.Suspended()
	if err := w.in.meter.charge(len(jobs), valueBytes); err != nil {
		return nil, err
	}
	list := make([]starlark.Value, len(jobs))
	for i, j := range jobs {
		list[i] = w.jobValue(j)
	}
	return starlark.NewList(list), nil
}
