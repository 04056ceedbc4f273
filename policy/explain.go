package policy

import (
	"fmt"
	"time"

	"muster/internal/units"
	"muster/model"
)

// Shortage says what a shape lacks in what is free now, and how many nodes are draining or down,
// since these might have it.
func (v *View) Shortage(sh *Shape, mode Mode) string {
	text := v.shortage(sh, mode)
	out := 0
	for n := range v.hidden {
		if v.hidden[n].out && !v.state.shapes.retired(int32(n)) {
			out++
		}
	}
	if out > 0 {
		text += fmt.Sprintf("; %s draining or down", units.Plural(out, "node"))
	}
	return text
}

func (v *View) shortage(sh *Shape, mode Mode) string {
	if sh.impossible != "" {
		return sh.impossible
	}
	if sh.nodes == 0 {
		return fmt.Sprintf("needs %s; %s", sh, v.spreadShort(sh, mode))
	}
	plain := *sh
	if mode == Borrowing && sh.gpuMemory == 0 {
		plain.gpus = 0
	}
	count := v.suitable(&plain, mode)
	switch {
	case count < sh.nodes:
		few := lacking(&plain, func(less *Shape) bool { return v.suitable(less, mode) >= sh.nodes })
		return fmt.Sprintf("needs %s; %s%s", sh, v.fewNodes(count, mode), few)
	case sh.Request.Contiguous && !v.inARow(&plain, mode):
		return fmt.Sprintf("needs %s; %s, but not %d next to each other", sh, v.whoHas(units.Plural(int(count), "node"), "have that"), sh.nodes)
	default:
		return fmt.Sprintf("needs %s; %s", sh, v.gpusAnywhere(sh))
	}
}

// suitable is the number of nodes that could be one of the shape's.
func (v *View) suitable(sh *Shape, mode Mode) (count int32) {
	var part model.Part
	for n := range int32(len(v.nodes)) {
		if v.hidden != nil && v.hidden[n].out { // it has nothing, so it must not seem to lack only one thing
			continue
		}
		if (mode != Alone || v.nodes[n].hosted == 0) && (sh.allowed == nil || sh.allowed.has(n)) && v.suits(sh, n, &part) {
			count++
		}
	}
	return count
}

// fewNodes says that only count nodes have what is asked of each.
func (v *View) fewNodes(count int32, mode Mode) string {
	who, verb := "only "+units.Plural(int(count), "node"), "have"
	switch count {
	case 0:
		who, verb = "no node", "has"
	case 1:
		verb = "has"
	}
	what := "that"
	switch {
	case mode == Borrowing:
		what = "the cores and the memory"
	case mode == Alone && !v.ofIdle():
		who += " without a job"
	}
	return v.whoHas(who, verb+" "+what)
}

// whoHas puts a subject and what it has together: free now, or in the cluster without any job.
func (v *View) whoHas(who, has string) string {
	if v.ofIdle() {
		return fmt.Sprintf("%s of the cluster %s", who, has)
	}
	return fmt.Sprintf("%s %s free now", who, has)
}

// ofIdle says whether the view is that of the cluster without any job.
func (v *View) ofIdle() bool { return v == v.state.idle }

const tooFewGPUs = " (too few GPUs)"

// lacking names the one thing without which there would be enough; "" if there is no such thing.
func lacking(sh *Shape, enough func(*Shape) bool) string {
	gpus, memory, cores := *sh, *sh, *sh
	gpus.gpus, gpus.gpuMemory = 0, 0
	memory.memory, memory.nodeMemory = 0, 0
	cores.cores = 0
	switch {
	case enough(&gpus) && sh.gpuMemory > 0:
		return " (too little GPU memory)"
	case enough(&gpus):
		return tooFewGPUs
	case enough(&memory):
		return " (too little memory)"
	case sh.nodes > 0 && enough(&cores):
		return " (too few cores)"
	}
	return ""
}

// gpusAnywhere says what GPUs there are for a job that lacks nothing else.
func (v *View) gpusAnywhere(sh *Shape) string {
	r := sh.Request.Remote
	if r == nil || r.Memory == 0 {
		return v.wholeGPUs()
	}
	enough, largest := 0, int64(0)
	for n := range int32(len(v.nodes)) {
		for d, t := range v.cluster.Nodes[n].GPUs {
			free := v.shareOn(sh, n, int32(d))
			if whole := v.cluster.GPUTypes[t].Memory; !r.Shared && free < whole {
				free = 0
			}
			if largest = max(largest, free); free >= r.Memory {
				enough++
			}
		}
	}
	size := units.FormatSize(r.Memory)
	switch {
	case enough >= r.Count:
		return v.wholeGPUs()
	case enough == 0 && largest > 0:
		which := "the most is"
		if v.ofIdle() {
			which = "the largest has"
		}
		return fmt.Sprintf("%s, and %s %s", v.whoHas("no GPU", "has "+size), which, units.FormatSize(largest))
	case enough == 0:
		return v.whoHas("no GPU", "has "+size)
	case enough == 1:
		return v.whoHas("only 1 GPU", "has "+size)
	}
	return v.whoHas(fmt.Sprintf("only %d GPUs", enough), "have "+size)
}

// wholeGPUs says how many GPUs nobody has, for a job that lacks nothing else.
func (v *View) wholeGPUs() string {
	count := units.Plural(int(v.freeGPUs), "whole GPU")
	switch {
	case v.ofIdle():
		return fmt.Sprintf("the cluster has %s, on %d of %s", count, v.nodesWithGPUs(), units.Plural(v.allNodes(), "node"))
	case v.freeGPUs == 1:
		return fmt.Sprintf("%s is free now", count)
	}
	return fmt.Sprintf("%s are free now, on %d of %s", count, v.nodesWithGPUs(), units.Plural(v.allNodes(), "node"))
}

// inARow says whether as many suitable nodes as the shape asks for are neighbours.
func (v *View) inARow(sh *Shape, mode Mode) bool {
	v.fresh = false
	v.out.Parts, v.out.Grants = v.out.Parts[:0], v.out.Grants[:0]
	return v.neighbours(sh, mode)
}

// spreadShort says what a job with cores on any nodes lacks.
func (v *View) spreadShort(sh *Shape, mode Mode) string {
	usable := v.spreadCores(sh, mode)
	switch {
	case usable < int64(sh.cores):
		few := lacking(sh, func(less *Shape) bool { return v.spreadCores(less, mode) >= int64(sh.cores) })
		if usable == 0 && few == tooFewGPUs && mode != Alone && sh.allowed == nil {
			return v.whoHas("no node", "has "+units.Plural(int(sh.gpus), "GPU"))
		}
		return v.fewCores(usable, sh, mode) + few
	case sh.Request.Contiguous:
		return v.cores(units.Plural(int(usable), "core"), usable, sh, mode) + ", but not enough next to each other"
	}
	return v.gpusAnywhere(sh)
}

// spreadCores is how many cores nodes could give to a job with cores on any nodes, each with the
// memory and the GPUs that go with them.
func (v *View) spreadCores(sh *Shape, mode Mode) (usable int64) {
	for n := range int32(len(v.nodes)) {
		if mode == Alone && v.nodes[n].hosted > 0 || sh.allowed != nil && !sh.allowed.has(n) {
			continue
		}
		if part, ok := v.spreadOn(sh, n, sh.cores); ok {
			usable += int64(part.Cores)
		}
	}
	return usable
}

func (v *View) fewCores(usable int64, sh *Shape, mode Mode) string {
	if usable == 0 && sh.granule > 1 {
		single := *sh
		if single.granule = 1; v.spreadCores(&single, mode) > 0 {
			return v.whoHas("no node", "has "+units.Plural(int(sh.granule), "core"))
		}
	}
	if usable == 0 {
		return v.cores("no core", 1, sh, mode)
	}
	return v.cores("only "+units.Plural(int(usable), "core"), usable, sh, mode)
}

// cores says how many cores there are for a job with cores on any nodes.
func (v *View) cores(which string, count int64, sh *Shape, mode Mode) string {
	if mode == Alone || sh.gpus > 0 || sh.memory > 0 || sh.nodeMemory > 0 || sh.granule > 1 || sh.allowed != nil {
		which += " that would do" // others lack what must go with them
	}
	switch {
	case v.ofIdle():
		return "the cluster has " + which
	case count == 1:
		return which + " is free now"
	}
	return which + " are free now"
}

func (v *View) allNodes() int {
	count := 0
	for n := range v.nodes {
		if !v.state.shapes.retired(int32(n)) {
			count++
		}
	}
	return count
}

func (v *View) nodesWithGPUs() int {
	count := 0
	for n := range v.nodes {
		if v.nodes[n].gpus != 0 {
			count++
		}
	}
	return count
}

// Clock formats an instant for people, to the second: reasons need no more.
func Clock(t time.Duration) string { return units.FormatDuration(t.Round(time.Second)) }

// SetClock makes the sentences of Why write instants with name, for a caller whose users know times
// by the calendar. name returns "" for an instant that cannot be relied on.
func (s *State) SetClock(name func(t time.Duration) string) { s.windows.clock = name }

// SetNames makes the sentences of Why write the nodes of a request with name, for a caller whose users
// know them by other names. name returns "" for nodes that need not be mentioned.
func (s *State) SetNames(name func(nodes []string) string) { s.shapes.names = name }

// SetRetired makes the sentences of Why pass over nodes for which retired is true, for a caller that takes
// nodes out of use for ever.
func (s *State) SetRetired(retired func(n int32) bool) { s.shapes.retired = retired }

// Clock formats an instant for the sentences of Why.
func (v *View) Clock(t time.Duration) string { return v.state.windows.clockOf(t) }

// Reserved is the end of a sentence of Why: the latest time at which a job will start. That time is
// unknown if jobs without a time limit are ahead of it.
func (v *View) Reserved(at time.Duration) string {
	if v.state.windows.clock != nil && v.state.windows.clock(at) == "" {
		return "; its start cannot be predicted: jobs without a time limit run before it"
	}
	return fmt.Sprintf("; reserved for %s at the latest", v.Clock(at))
}

// Ahead is the number of jobs before id in the queue, and the first job of the queue.
func (v *View) Ahead(id JobID) (count int, first JobID) {
	first = -1
	for c := v.Queue(); ; count++ {
		at, _, ok := c.Next()
		if !ok || at == id {
			return count, first
		}
		if first < 0 {
			first = at
		}
	}
}

// Explainer is a policy that records how its latest step decided.
type Explainer interface {
	// Explain says how the latest step arrived at its plan. The caller calls it after the step,
	// before anything else changes, and adds what was started and why the other jobs wait.
	Explain(v *View) *Explanation
}

// Explanation is one step of a policy, for people.
type Explanation struct {
	Lead   string // a sentence or two: what the step did
	Tables []ExplanationTable
	// Bars are a picture of the step: the nodes from left to right, and a row for each thing that
	// wanted some of them. Without bars there is no picture.
	Bars []ExplanationBar
	// Won and Lost name what the picture shows in colour and in grey; the defaults are "won" and
	// "lost".
	Won, Lost string
}

// ExplanationBar is a range of neighbouring nodes in such a picture. A thing that wants several
// ranges, such as a bid on scattered nodes, has several bars in its row.
type ExplanationBar struct {
	// Row counts from 0 at the top. Rows without a bar stay empty; not more than
	// MaxExplanationRows are drawn.
	Row int32
	// From and To are the first and the last node of the range.
	From, To int32
	// Won bars are drawn in colour, the others in grey.
	Won bool
	// Label names the row and describes its bars: "job 17: 8 nodes, 4 cores". The label of a row's
	// first bar names the row; that of another bar describes that bar alone.
	Label string
}

// MaxExplanationRows is how many rows of a step's picture are drawn.
const MaxExplanationRows = 300

// ExplanationTable is a part of it.
type ExplanationTable struct {
	Title   string
	Columns []string
	Rows    [][]string
}
