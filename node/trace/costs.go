package trace

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"muster/wire/timeline"
)

// Cost is something that took time, with a recommendation.
type Cost struct {
	Took     int64 // nanoseconds that no other cost includes
	Sentence string
}

// Costs returns the costs, the largest first. No time is counted twice: the time that a call waited
// while kernels of its process ran, memory moved or other clients had the device belongs to those,
// and only the rest is the call's own. Where several processes have costs, each sentence says of
// which process it is.
func (t *Trace) Costs() []Cost {
	var all []Cost
	of := map[int][]Cost{}
	for i, p := range t.Processes {
		if costs := p.costs(); len(costs) > 0 {
			of[i] = costs
		}
	}
	for i, p := range t.Processes {
		for _, c := range of[i] {
			if took, what, _ := strings.Cut(c.Sentence, ": "); len(of) > 1 {
				c.Sentence = fmt.Sprintf("%s in process %d: %s", took, p.Pid, what)
			}
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Cost) int { return cmp.Compare(b.Took, a.Took) })
	return all
}

// tally sums up events of one kind.
type tally struct {
	count          uint64
	took           int64
	bytes          uint64
	least, largest uint64 // bytes of the smallest and the largest event
	waits          map[int]int64
	about          string // "about " if the sums are estimates
}

func (t *tally) add(took int64, bytes uint64) {
	if t.count == 0 || bytes < t.least {
		t.least = bytes
	}
	t.largest = max(t.largest, bytes)
	t.count++
	t.took += took
	t.bytes += bytes
}

// each says in brackets what one event took on average, if there are several, and more.
func (t *tally) each(more ...string) string {
	if t.count > 1 {
		more = append([]string{brief(t.took/int64(t.count)) + " each"}, more...)
	}
	if len(more) == 0 {
		return ""
	}
	return " (" + strings.Join(more, ", ") + ")"
}

// sizes says how large the events were.
func (t *tally) sizes() string {
	if t.least == t.largest {
		return size(t.least)
	}
	return size(t.least) + " to " + size(t.largest)
}

// speed is the mean rate of the bytes.
func (t *tally) speed() string {
	if t.took == 0 {
		return "at once"
	}
	return fmt.Sprintf("%.3g GB/s", float64(t.bytes)/float64(t.took))
}

func (p *Process) costs() []Cost {
	costs := p.deviceCosts()
	costs = append(costs, p.callCosts()...)
	if c, ok := p.idleCost(); ok {
		costs = append(costs, c)
	}
	return costs
}

// spanKey is the kind of thing that a node did, with the name of the kernel or transfer.
type spanKey struct {
	kind timeline.Kind
	name string
}

func (p *Process) deviceCosts() []Cost {
	sums := map[spanKey]*tally{}
	var order []spanKey
	for i := range p.Device {
		s := &p.Device[i]
		if !s.counts() {
			continue
		}
		key := spanKey{kind: s.Kind}
		if s.Kind == timeline.Kernel || s.Kind == timeline.Transfer {
			key.name = s.title()
		}
		if sums[key] == nil {
			sums[key] = &tally{}
			order = append(order, key)
		}
		sums[key].add(s.End-s.Begin, s.Bytes)
	}
	var costs []Cost
	for _, key := range order {
		t := sums[key]
		if p.nodeGap.missing > 0 { // assume that the missing records are like the others
			more := p.moreDone()
			t.count, t.took, t.bytes = uint64(float64(t.count)*more), int64(float64(t.took)*more), uint64(float64(t.bytes)*more)
			t.about = "about "
		}
		costs = append(costs, Cost{t.took, p.ofSpans(key, t)})
	}
	return costs
}

// moreDone is how many times as much the node did as is recorded, if what is missing is like the
// rest.
func (p *Process) moreDone() float64 {
	return float64(p.NodeMade) / float64(max(1, p.NodeMade-p.nodeGap.missing))
}

// counts says whether a span is a cost of its own. What a synchronous call does, and waits for,
// belongs to that call.
func (s *Span) counts() bool {
	switch s.Kind {
	case timeline.Kernel, timeline.Wait, timeline.SwapIn, timeline.SwapOut, timeline.Exchange, timeline.Keep, timeline.Transfer, timeline.Open, timeline.Rebuild:
		return true
	case timeline.CopyIn, timeline.CopyOut, timeline.CopyWithin, timeline.Fill:
		return s.call == nil || strings.Contains(s.call.Name, "Async") || strings.Contains(s.call.Name, "Graph")
	}
	return false
}

func (p *Process) ofSpans(key spanKey, t *tally) string {
	took := t.about + brief(t.took)
	switch key.kind {
	case timeline.Kernel:
		return fmt.Sprintf("%s: kernel %s ran %s%s: this is the GPU's own time; a faster kernel or a faster device helps", took, key.name, times(t.count), t.each())
	case timeline.Wait:
		return fmt.Sprintf("%s: waited %s for a device%s%s: muster ps shows who has it; fewer programs on the node, or a grant, help", took, times(t.count), t.each(), p.who())
	case timeline.SwapIn:
		if !p.swapsOut() {
			return fmt.Sprintf("%s: %s were brought to the device%s: what the program copies before its first kernel is kept on the host until then; it comes once", took, size(t.bytes), t.each(t.speed()))
		}
		fallthrough
	case timeline.SwapOut, timeline.Exchange:
		return fmt.Sprintf("%s: %s of %s%s: the programs on the device need more memory than it has; give them less (--memory), or run this one where more is free", took, plural(t.count, titles[key.kind], strings.Replace(titles[key.kind], "swap", "swaps", 1)), size(t.bytes), t.each(t.speed()))
	case timeline.Keep:
		return fmt.Sprintf("%s: %s were copied to the host %s%s, so that the program survives its worker: a node with recover: off does not, and programs end with their workers", took, size(t.bytes), times(t.count), t.each(t.speed()))
	case timeline.Transfer:
		return fmt.Sprintf("%s: %s of %s%s: kernels that are mapped to several devices need what others have; a mapper that looks at data (probe, ag) moves less", took, plural(t.count, key.name, strings.Replace(key.name, "move", "moves", 1)), size(t.bytes), t.each(t.speed()))
	case timeline.Open:
		return fmt.Sprintf("%s: opened a device %s%s, with the program's modules: this comes once, and again after each move to another device", took, times(t.count), t.each())
	case timeline.Rebuild:
		return fmt.Sprintf("%s: the program was rebuilt %s after its worker or its device had gone: the node's log says why", took, times(t.count))
	}
	return fmt.Sprintf("%s: %s of %s on the device%s: they overlap with kernels of other streams if the host's memory is pinned", took, plural(t.count, "asynchronous "+titles[key.kind], "asynchronous copies and fills"), t.sizes(), t.each(t.speed()))
}

// swapsOut says whether the client's memory ever had to leave its device.
func (p *Process) swapsOut() bool {
	return slices.ContainsFunc(p.Device, func(s Span) bool { return s.Kind == timeline.SwapOut || s.Kind == timeline.Exchange })
}

func times(n uint64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return number(n) + " times"
}

// who names the other client that had devices for the longest time.
func (p *Process) who() string {
	took := map[string]int64{}
	for i := range p.Device {
		if s := &p.Device[i]; s.Kind == timeline.Others {
			took[s.Name] += s.End - s.Begin
		}
	}
	most := ""
	for name, t := range took {
		if most == "" || t > took[most] || t == took[most] && name < most {
			most = name
		}
	}
	if most == "" {
		return ""
	}
	return ", which " + most + " had the most"
}

// callKey is a function with a size class.
type callKey struct {
	name  string
	class int // number of bits of the size; -1 for calls that move no data
}

// callSum sums up calls of one kind. A call's own time, without what the device did meanwhile, is
// known only if the device's records for that time exist.
type callSum struct {
	tally
	all        int64 // total time, in nanoseconds
	known, own int64 // time of the calls whose own part is known, and that part
	kept       uint64
}

func (p *Process) callCosts() []Cost {
	busy := p.busy()
	sums := map[callKey]*callSum{}
	functions := map[string]*callSum{}
	var order []callKey
	for i := range p.Calls {
		c := &p.Calls[i]
		key := callKey{baseName(c.Name), -1}
		if c.Bytes > 0 {
			key.class = bits.Len64(c.Bytes)
		}
		if sums[key] == nil {
			sums[key] = &callSum{tally: tally{waits: map[int]int64{}}}
			order = append(order, key)
		}
		if functions[key.name] == nil {
			functions[key.name] = &callSum{}
		}
		p.addCall(sums[key], c, busy)
		functions[key.name].all += c.End - c.Begin
		functions[key.name].kept++
	}
	var costs []Cost
	for _, key := range order {
		t := sums[key].estimate(p.totalOf(key.name), functions[key.name])
		costs = append(costs, Cost{t.took, ofCalls(key, t)})
	}
	return costs
}

func (p *Process) addCall(s *callSum, c *Call, busy intervals) {
	took := c.End - c.Begin
	s.add(took, c.Bytes)
	s.all += took
	switch g := p.nodeGap; {
	case g.missing > 0 && g.end == 0: // any call may lack some
		s.known += took
		s.own += took - min(took, int64(float64(busy.within(c.Begin, c.End))*p.moreDone()))
	case g.missing == 0 || c.End < g.begin || c.Begin > g.end:
		s.known += took
		s.own += took - busy.within(c.Begin, c.End)
	}
	waited, what := c.Waits()
	s.waits[what] += waited
}

// totalOf sums up all calls of a function, over its versions.
func (p *Process) totalOf(base string) (sum timeline.Total) {
	for name, t := range p.Totals {
		if baseName(name) == base {
			sum.Count += t.Count
			sum.Took += t.Took
			sum.Bytes += t.Bytes
		}
	}
	return sum
}

// estimate is the calls' own time. If some calls of the function were not recorded one by one, it
// assumes that they are like the recorded ones, and scales these to the function's total.
func (s *callSum) estimate(total timeline.Total, function *callSum) *tally {
	t := s.tally
	t.took = s.all
	if total.Count > function.kept {
		t.count = uint64(float64(t.count) * float64(total.Count) / float64(function.kept))
		t.took = int64(float64(total.Took) * share(s.all, function.all))
		t.bytes = uint64(float64(t.bytes) * float64(total.Count) / float64(function.kept))
	}
	if s.known > 0 {
		t.took = int64(float64(t.took) * share(s.own, s.known))
	}
	return &t
}

func share(part, all int64) float64 { return float64(part) / float64(max(all, 1)) }

func ofCalls(key callKey, t *tally) string {
	took := brief(t.took)
	if key.class >= 0 && strings.HasPrefix(key.name, "cuMemcpy") {
		var speed []string
		if t.largest >= small {
			speed = []string{t.speed()}
		}
		return fmt.Sprintf("%s: %s of %s%s%s: %s", took, plural(t.count, copyWord(key.name), strings.Replace(copyWord(key.name), "copy", "copies", 1)),
			t.sizes(), direction(key.name), t.each(speed...), copyAdvice(t))
	}
	return fmt.Sprintf("%s: %s of %s%s, without what the device did meanwhile: %s", took, plural(t.count, "call", "calls"), key.name, t.each(), callAdvice(key.name, t))
}

func copyWord(function string) string {
	if strings.Contains(function, "Async") {
		return "asynchronous copy"
	}
	return "synchronous copy"
}

func direction(function string) string {
	switch {
	case strings.Contains(function, "HtoD"), strings.Contains(function, "HtoA"):
		return " in"
	case strings.Contains(function, "DtoH"), strings.Contains(function, "AtoH"):
		return " out"
	}
	return ""
}

// small is the size below which a copy is mostly overhead, in bytes.
const small = 64 << 10

func copyAdvice(t *tally) string {
	switch {
	case t.largest < small && t.count > 10 && t.waits[timeline.ForAnswer] > t.took/2:
		return "each is a round trip to the node; copy many at once, or asynchronously to pinned memory (cuMemHostAlloc) with one synchronisation at the end"
	case t.largest < small && t.count > 10:
		return "each costs a message to the node; put what belongs together into one copy"
	case t.largest < small && t.waits[timeline.ForAnswer] > t.took/2:
		return "few and small: what they wait for is the work before them"
	case t.largest < small:
		return "few and small: nothing to gain"
	}
	return "pinned memory (cuMemHostAlloc, cuMemHostRegister) spares a copy on the host, and lets the program go on meanwhile"
}

func callAdvice(function string, t *tally) string {
	ring := t.waits[timeline.ForRing] + t.waits[timeline.ForStaging]
	switch {
	case ring > t.took/2:
		return "the program gives work faster than the GPU does it, and waits for room: the GPU is the limit"
	case strings.Contains(function, "Synchronize"), strings.Contains(function, "Query"):
		return "the round trips to the node; wait less often, for more work at a time"
	case strings.HasPrefix(function, "cuModuleLoad"), strings.HasPrefix(function, "cuLibraryLoad"), strings.HasPrefix(function, "cuLink"):
		return "load code once, at the beginning; PTX is compiled each time, a cubin for the device is not"
	case strings.HasPrefix(function, "cuMemAlloc"), strings.HasPrefix(function, "cuMemFree"), strings.HasPrefix(function, "cuMemHost"):
		return "allocate once and use it again, or use the stream-ordered allocator (cuMemAllocAsync)"
	case strings.HasPrefix(function, "cuLaunch"):
		return "the time to send launches; make of many small kernels a graph (cuGraphLaunch), or one kernel"
	case strings.HasPrefix(function, "cuInit"), strings.HasPrefix(function, "cuCtxCreate"), strings.HasPrefix(function, "cuDevicePrimaryCtx"):
		return "the start of a program: it comes once"
	}
	return "call it less often if that is possible"
}

// idleCost is the time in which neither a call nor the node did anything.
func (p *Process) idleCost() (Cost, bool) {
	if len(p.Calls) == 0 || p.callsGap.missing > 0 || p.nodeGap.missing > 0 {
		return Cost{}, false
	}
	all := make([]interval, 0, len(p.Calls)+len(p.Device))
	for i := range p.Calls {
		all = append(all, interval{p.Calls[i].Begin, p.Calls[i].End})
	}
	for i := range p.Device {
		if s := &p.Device[i]; s.Kind != timeline.Others {
			all = append(all, interval{s.Begin, s.End})
		}
	}
	joined := join(all)
	idle := joined[len(joined)-1].end - joined[0].begin - joined.within(joined[0].begin, joined[len(joined)-1].end)
	return Cost{idle, fmt.Sprintf("%s: the program did its own work between the first and the last call, and the GPU had nothing to do: give the GPU work before it is needed", brief(idle))}, idle > 0
}

type interval struct{ begin, end int64 }

// intervals are sorted, and do not overlap or touch.
type intervals []interval

// join merges intervals that overlap or touch.
func join(all []interval) intervals {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.begin, b.begin) })
	var joined intervals
	for _, i := range all {
		if n := len(joined); n > 0 && i.begin <= joined[n-1].end {
			joined[n-1].end = max(joined[n-1].end, i.end)
			continue
		}
		joined = append(joined, i)
	}
	return joined
}

// within is how much of the time from begin to end lies in the intervals.
func (a intervals) within(begin, end int64) int64 {
	i, _ := slices.BinarySearchFunc(a, begin, func(i interval, at int64) int { return cmp.Compare(i.end, at) })
	sum := int64(0)
	for ; i < len(a) && a[i].begin < end; i++ {
		sum += min(a[i].end, end) - max(a[i].begin, begin)
	}
	return sum
}

// busy is the union of the spans that are costs of their own.
func (p *Process) busy() intervals {
	var all []interval
	for i := range p.Device {
		if s := &p.Device[i]; s.counts() {
			all = append(all, interval{s.Begin, s.End})
		}
	}
	return join(all)
}
