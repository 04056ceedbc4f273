package policy

import (
	"fmt"
	"time"

	"muster/model"
)

// Shortage says what a shape lacks in what is free now, and how many nodes are draining or down,
// since these might have it.
func (v *View) Shortage(sh *Shape, mode Mode) string {
	text := v.shortage(sh, mode)
	out := 0
	for n := range v.hidden {
		if v.hidden[n].out {
			out++
		}
	}
	if out > 0 {
		text += fmt.Sprintf("; %s draining or down", model.Plural(out, "node"))
	}
	return text
}

func (v *View) shortage(sh *Shape, mode Mode) string {
	if sh.impossible != "" {
		return sh.impossible
	}
	now := "free now"
	if v == v.state.idle {
		now = "in the whole cluster"
	}
	if sh.nodes == 0 {
		return fmt.Sprintf("needs %s; %s", sh, v.spreadShort(sh, mode, now))
	}
	count := int32(0)
	plain := *sh
	if mode == Borrowing && sh.gpuMemory == 0 {
		plain.gpus = 0
	}
	var part model.Part
	for n := range int32(len(v.nodes)) {
		if (mode != Alone || v.nodes[n].hosted == 0) && (sh.allowed == nil || sh.allowed.has(n)) && v.suits(&plain, n, &part) {
			count++
		}
	}
	switch {
	case count < sh.nodes:
		who, gives, has := model.Plural(int(count), "node"), "give", "have"
		if count == 1 {
			gives, has = "gives", "has"
		}
		switch mode {
		case Alone:
			return fmt.Sprintf("needs %s; %s without a job %s that (%s)", sh, who, gives, now)
		case Borrowing:
			return fmt.Sprintf("needs %s; %s %s the cores and the memory (%s)", sh, who, has, now)
		}
		return fmt.Sprintf("needs %s; %s %s that (%s)", sh, who, gives, now)
	case sh.Request.Contiguous && !v.inARow(&plain, mode):
		return fmt.Sprintf("needs %s; %d nodes give that (%s), but not %d next to each other", sh, count, now, sh.nodes)
	default:
		return fmt.Sprintf("needs %s; %s %s, %d of %d nodes have some", sh, model.Plural(int(v.freeGPUs), "whole GPU"), now, v.nodesWithGPUs(), len(v.nodes))
	}
}

// inARow says whether as many suitable nodes as the shape asks for are neighbours.
func (v *View) inARow(sh *Shape, mode Mode) bool {
	v.fresh = false
	v.out.Parts, v.out.Grants = v.out.Parts[:0], v.out.Grants[:0]
	return v.neighbours(sh, mode)
}

func (v *View) spreadShort(sh *Shape, mode Mode, now string) string {
	usable := int64(0)
	for n := range int32(len(v.nodes)) {
		if mode == Alone && v.nodes[n].hosted > 0 || sh.allowed != nil && !sh.allowed.has(n) {
			continue
		}
		if part, ok := v.spreadOn(sh, n, sh.cores); ok {
			usable += int64(part.Cores)
		}
	}
	switch {
	case usable < int64(sh.cores):
		return fmt.Sprintf("%d such cores %s", usable, now)
	case sh.Request.Contiguous:
		return fmt.Sprintf("%d such cores %s, but not enough next to each other", usable, now)
	}
	return fmt.Sprintf("%s %s", model.Plural(int(v.freeGPUs), "whole GPU"), now)
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
func Clock(t time.Duration) string { return model.FormatDuration(t.Round(time.Second)) }

// SetClock makes the sentences of Why write instants with name, for a caller whose users know times
// by the calendar. name returns "" for an instant that cannot be relied on.
func (s *State) SetClock(name func(t time.Duration) string) { s.clock = name }

// clockOf formats an instant as the users of this state know it.
func (s *State) clockOf(t time.Duration) string {
	if s.clock == nil {
		return Clock(t)
	}
	if name := s.clock(t); name != "" {
		return name
	}
	return "a time that is not known"
}

// Clock formats an instant for the sentences of Why.
func (v *View) Clock(t time.Duration) string { return v.state.clockOf(t) }

// Reserved is the end of a sentence of Why: the latest time at which a job will start. That time is
// unknown if jobs without a time limit are ahead of it.
func (v *View) Reserved(at time.Duration) string {
	if v.state.clock != nil && v.state.clock(at) == "" {
		return "; when it can start is not known, as jobs without a time limit are before it"
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
