package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/wire/timeline"
)

// Trace is the record of a program and of what its node did for it. Times are in nanoseconds on the
// clock of the program's first process.
type Trace struct {
	Begin, End int64
	Processes  []*Process
	Elements   []*timeline.Element // of programs with shared memory
	Skipped    int                 // processes of which nothing is known: there were too many
}

// Process is one of the program's processes.
type Process struct {
	*timeline.File
	Calls  []Call // in order of their beginnings
	Device []Span // what the node did, in order of the beginnings
	Error  int64  // upper bound of the error of the node's times, in nanoseconds

	callsGap, nodeGap gap
}

// Call is a call of a CUDA function.
type Call struct {
	timeline.Record
	Name    string
	Process *Process
}

// Span is something that the node did for the process.
type Span struct {
	timeline.Record
	Name    string // the kernel, or the other client that had the device
	Process *Process
	call    *Call // the call that caused it; nil if not known
}

// gap is a range in the middle of the records that is missing, because only the first and the last
// are kept.
type gap struct {
	missing    uint64
	begin, end int64 // the time range; 0 and 0 if it is not known
}

// New combines the records of a program's processes. The first process is the one that began first.
func New(files []*timeline.File, skipped int) *Trace {
	t := &Trace{Begin: math.MaxInt64, End: math.MinInt64, Skipped: skipped}
	slices.SortFunc(files, func(a, b *timeline.File) int {
		return cmp.Or(cmp.Compare(a.OpenedAt, b.OpenedAt), cmp.Compare(a.Pid, b.Pid))
	})
	for _, f := range files {
		p := newProcess(f, files[0])
		t.Processes = append(t.Processes, p)
		for _, c := range p.Calls {
			t.Begin, t.End = min(t.Begin, c.Begin), max(t.End, c.End)
		}
		for _, s := range p.Device {
			t.Begin, t.End = min(t.Begin, s.Begin), max(t.End, s.End)
		}
	}
	if t.Begin > t.End {
		t.Begin, t.End = 0, 0
	}
	return t
}

// newProcess converts the times of a process to the clock of the first one. For processes of
// another machine it uses the difference of the two wall clocks.
func newProcess(f, first *timeline.File) *Process {
	p := &Process{File: f}
	shift := int64(0)
	if f.Boot != first.Boot {
		shift = (f.OpenedAt - f.Opened) - (first.OpenedAt - first.Opened)
	}
	p.Calls = make([]Call, len(f.Calls))
	for i, r := range f.Calls {
		r.Begin, r.End = r.Begin+shift, r.End+shift
		p.Calls[i] = Call{r, f.FunctionName(r.Name), p}
	}
	p.callsGap = gapOf(f.Calls, f.CallsMade, shift)
	slices.SortFunc(p.Calls, func(a, b Call) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.End, a.End)) })
	p.addNode(f, shift)
	return p
}

func (p *Process) addNode(f *timeline.File, shift int64) {
	clocks := map[uint16][]timeline.Record{}
	for _, r := range f.Node {
		if r.Kind == timeline.Clock {
			clocks[r.Source] = append(clocks[r.Source], r)
		}
	}
	aligned := map[uint16]clock{}
	for source, samples := range clocks {
		aligned[source] = clockOf(samples)
		p.Error = max(p.Error, aligned[source].error)
	}
	for _, r := range f.Node {
		c := aligned[r.Source]
		if r.Kind != timeline.Clock {
			r.Begin, r.End = c.program(r.Begin)+shift, c.program(r.End)+shift
			p.Device = append(p.Device, Span{Record: r, Name: f.Names[r.Name], Process: p})
		}
	}
	p.nodeGap = gapOf(f.Node, f.NodeMade, shift)
	p.Device = joinOthers(p.Device)
	slices.SortFunc(p.Device, func(a, b Span) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(b.End, a.End)) })
	p.findCalls()
}

// joinOthers merges consecutive spans without a gap, because a client that keeps a device is
// recorded repeatedly.
func joinOthers(spans []Span) []Span {
	type holder struct{ device, name uint32 }
	last := map[holder]int{}
	joined := spans[:0]
	for _, s := range spans {
		who := holder{s.Last, s.Record.Name}
		if at, ok := last[who]; ok && s.Kind == timeline.Others && joined[at].End == s.Begin {
			joined[at].End = s.End
			continue
		}
		if s.Kind == timeline.Others {
			last[who] = len(joined)
		}
		joined = append(joined, s)
	}
	return joined
}

// gapOf finds where records are missing.
func gapOf(records []timeline.Record, made uint64, shift int64) gap {
	g := gap{missing: made - uint64(len(records))}
	for i := 1; i < len(records) && g.missing > 0; i++ {
		if records[i].Mark > records[i-1].Mark+1 && g.end == 0 {
			g.begin, g.end = records[i-1].End+shift, records[i].Begin+shift
		}
	}
	return g
}

// findCalls finds the call that caused each piece of device work, by the sequence number of its
// message. Threads send concurrently, so the ranges of several calls may include a message; the
// call with the shortest range is the most specific.
func (p *Process) findCalls() {
	type sent struct {
		source uint16
		seq    uint32
	}
	const most = 1 << 12 // limit of messages per call that are looked up; a graph may have many more
	of := map[sent]*Call{}
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Source == timeline.FromProgram {
			continue
		}
		for seq := c.First; seq-c.First < most; seq++ {
			at := sent{c.Source, seq}
			if other := of[at]; other == nil || c.Last-c.First < other.Last-other.First {
				of[at] = c
			}
			if seq == c.Last {
				break
			}
		}
	}
	for i := range p.Device {
		s := &p.Device[i]
		if isWork(s.Kind) {
			s.call = of[sent{s.Source, s.First}]
		}
	}
}

// isWork says whether a kind is work that a device does in stream order.
func isWork(k timeline.Kind) bool { return k >= timeline.Kernel && k <= timeline.Fill }

// title is the name of a span in the timeline.
func (s *Span) title() string {
	switch s.Kind {
	case timeline.Kernel:
		if s.Name == "" {
			return fmt.Sprintf("kernel %08x", s.Record.Name)
		}
		return s.Name
	case timeline.OnHost, timeline.Rebuild, timeline.Others, timeline.Transfer:
		return s.Name
	}
	return titles[s.Kind]
}

var titles = map[timeline.Kind]string{
	timeline.CopyIn: "copy in", timeline.CopyOut: "copy out", timeline.CopyWithin: "copy within the device", timeline.Fill: "fill",
	timeline.Wait: "wait for a device", timeline.SwapIn: "swap in", timeline.SwapOut: "swap out", timeline.Exchange: "swap out and in",
	timeline.Keep: "copy to the host, for a rebuild", timeline.Open: "open the device", timeline.Load: "load a module",
}

// waitedFor names the things that a call may wait for.
var waitedFor = [...]string{
	timeline.ForAnswer: "the node's answer", timeline.ForRing: "room in the ring of messages", timeline.ForStaging: "staging memory",
	timeline.ForOthers: "other threads of the program",
}

// baseName is a function's name without suffixes for its version and for its default stream.
func baseName(function string) string {
	for _, suffix := range []string{"_ptsz", "_ptds", "_v2", "_v3", "_v4"} {
		function = strings.TrimSuffix(function, suffix)
	}
	return function
}
