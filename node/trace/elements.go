package trace

import (
	"cmp"
	"fmt"
	"slices"

	"muster/wire/timeline"
)

// Elements of programs with shared memory (IVM): what each asked its node for, and which node had
// which object since when.

// Rows of elements and of the objects of nodes, in processes that no real one has the number of.
const (
	elementPid = 20_000_000
	objectsPid = 30_000_000
)

// What elements ask for, by the numbers of their protocol.
const (
	opCreate   = 3
	opWait     = 6
	opWaitAny  = 7
	opBarrier  = 9
	opMalloc   = 10
	opMap      = 12
	opPut      = 13
	opGet      = 14
	opPutGroup = 15
	opGetGroup = 16
)

var elementOps = [...]string{
	1: "enter", 2: "exit", opCreate: "create elements", 4: "kill elements", 5: "set the greatest number", opWait: "wait for element", opWaitAny: "wait for any element",
	8: "signal", opBarrier: "barrier", opMalloc: "allocate", 11: "free", opMap: "map", opPut: "put", opGet: "get", opPutGroup: "put to all mirrors", opGetGroup: "get from all mirrors",
	17: "ask for nodes", 18: "ask for devices",
}

// object is one that elements share.
type object struct {
	name string
	size uint64
}

// masterNode is the node of an object's master, which its number contains.
func masterNode(number uint64) uint64 { return number >> 40 }

// AddElements adds what elements did. It comes after New: the clock is that of the first process, or
// of the first element where there is none.
func (t *Trace) AddElements(all []*timeline.Element) {
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *timeline.Element) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.OpenedAt, b.OpenedAt))
	})
	boot, day := all[0].Boot, all[0].OpenedAt-all[0].Opened
	if len(t.Processes) > 0 {
		first := t.Processes[0]
		boot, day = first.Boot, first.OpenedAt-first.Opened
	}
	begin, end := int64(0), int64(0)
	some := len(t.Processes) > 0
	if some {
		begin, end = t.Begin, t.End
	}
	for _, e := range all {
		shift := int64(0)
		if e.Boot != boot {
			shift = e.OpenedAt - e.Opened - day
		}
		for i := range e.Calls {
			c := &e.Calls[i]
			c.Begin, c.End = c.Begin+shift, c.End+shift
			if !some {
				begin, end, some = c.Begin, c.End, true
			}
			begin, end = min(begin, c.Begin), max(end, c.End)
		}
	}
	t.Begin, t.End, t.Elements = begin, end, all
}

// objects are those that elements allocated or mapped, by their numbers.
func (t *Trace) objects() map[uint64]object {
	known := map[uint64]object{}
	for _, e := range t.Elements {
		for _, c := range e.Calls {
			switch {
			case c.Result != 0:
			case c.Op == opMalloc:
				known[c.Answer[0]] = object{c.Name, c.Args[0]}
			case c.Op == opMap && known[c.Answer[0]].name == "":
				known[c.Answer[0]] = object{name: c.Name}
			}
		}
	}
	return known
}

// elements writes a row for each element's calls, what it moved so far, and a row for each object
// of a node.
func (o *perfetto) elements(t *Trace) {
	objects := t.objects()
	for i, e := range t.Elements {
		pid := elementPid + i
		name := fmt.Sprintf("element %d on node %d", e.Number, e.Node)
		if e.GPU >= 0 {
			name += fmt.Sprintf(", GPU %d", e.GPU)
		}
		o.named("process", pid, 0, fmt.Sprintf("%s (%s, process %d)", name, e.Program, e.Pid), elementPid+i)
		slices.SortFunc(e.Calls, func(a, b timeline.ElementCall) int { return cmp.Compare(a.Begin, b.Begin) })
		var rows []callRow
		var put, got uint64
		for _, c := range e.Calls {
			before := put + got
			row := slices.IndexFunc(rows, func(r callRow) bool { return r.thread == c.Thread && r.free <= c.Begin })
			if row < 0 {
				row = len(rows)
				rows = append(rows, callRow{thread: c.Thread})
				o.named("thread", pid, row+1, fmt.Sprintf("thread %d: IVM calls", c.Thread), row)
			}
			rows[row].free = c.End
			o.elementCall(pid, row+1, &c, objects)
			switch c.Op {
			case opPut, opGetGroup:
				put += c.Answer[0]
			case opGet, opPutGroup:
				got += c.Answer[0]
			case opMap:
				got += c.Answer[1]
			}
			if put+got == before {
				continue
			}
			o.emit(event{Name: "bytes that moved", Phase: "C", Time: o.at(c.End), Pid: pid, Args: map[string]any{"put": put, "got": got}})
		}
	}
	o.copies(t, objects)
}

// callRow is a row of calls, one after the other. A thread has several if calls of it overlap: those
// that it did not wait for, and all of goroutines, which have no threads of their own.
type callRow struct {
	thread int
	free   int64 // when the last call has ended
}

func (o *perfetto) elementCall(pid, row int, c *timeline.ElementCall, objects map[uint64]object) {
	title := fmt.Sprintf("call %d", c.Op)
	if int(c.Op) < len(elementOps) && elementOps[c.Op] != "" {
		title = elementOps[c.Op]
	}
	args := map[string]any{}
	switch c.Op {
	case opPut, opGet:
		title += " " + objects[c.Args[0]].name
		args["offset"], args["bytes"], args["moved"] = c.Args[1], c.Args[2], c.Answer[0]
	case opPutGroup, opGetGroup:
		title += " " + objects[c.Args[0]].name
		args["moved"] = c.Answer[0]
	case opMalloc:
		title += " " + c.Name
		args["bytes"] = c.Args[0]
	case opMap:
		title += " " + c.Name
		args["offset"], args["bytes"], args["fetched"] = c.Args[0], c.Args[1], c.Answer[1]
	case opWait:
		title += fmt.Sprint(" ", c.Args[0])
	}
	if c.Result != 0 {
		args["result"] = c.Result
	}
	o.emit(event{Name: title, Phase: "X", Cat: "ivm", Time: o.at(c.Begin), Took: microseconds(c.End - c.Begin), Pid: pid, Tid: row, Args: args})
}

// copies writes a row for each master and mirror, from when its node had it on.
func (o *perfetto) copies(t *Trace, objects map[uint64]object) {
	type copied struct {
		node   int
		number uint64
	}
	since := map[copied]int64{}
	for _, e := range t.Elements {
		for _, c := range e.Calls {
			if (c.Op == opMalloc || c.Op == opMap) && c.Result == 0 {
				at := copied{e.Node, c.Answer[0]}
				if begin, there := since[at]; !there || c.End < begin {
					since[at] = c.End
				}
			}
		}
	}
	var all []copied
	for at := range since {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b copied) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(since[a], since[b]), cmp.Compare(a.number, b.number))
	})
	named := map[int]bool{}
	for row, at := range all {
		pid := objectsPid + at.node
		if !named[at.node] {
			named[at.node] = true
			o.named("process", pid, 0, fmt.Sprintf("node %d: masters and mirrors", at.node), objectsPid+at.node)
		}
		name := objects[at.number].name
		title := "master of " + name
		if master := masterNode(at.number); master != uint64(at.node) {
			title = fmt.Sprintf("mirror of %s, whose master is on node %d", name, master)
		}
		o.named("thread", pid, row+1, name, row)
		o.emit(event{Name: title, Phase: "X", Cat: "ivm", Time: o.at(since[at]), Took: microseconds(t.End - since[at]), Pid: pid, Tid: row + 1})
	}
}

// ElementWords sums up what elements did; "" if there were none.
func (t *Trace) ElementWords() string {
	if len(t.Elements) == 0 {
		return ""
	}
	nodes := map[int]bool{}
	type sum struct {
		times uint64
		bytes uint64
		took  int64
	}
	var put, get, maps, wait sum
	for _, e := range t.Elements {
		nodes[e.Node] = true
		for _, c := range e.Calls {
			to, bytes := &wait, uint64(0)
			switch c.Op {
			case opPut, opGetGroup:
				to, bytes = &put, c.Answer[0]
			case opGet, opPutGroup:
				to, bytes = &get, c.Answer[0]
			case opMap:
				to, bytes = &maps, c.Answer[1]
			case opWait, opWaitAny, opBarrier:
			default:
				continue
			}
			to.times, to.bytes, to.took = to.times+1, to.bytes+bytes, to.took+c.End-c.Begin
		}
	}
	of := func(s sum) string { return fmt.Sprintf("%s in %s", size(s.bytes), brief(s.took)) }
	return fmt.Sprintf("%s on %s: %s moved %s, %s %s, %s %s; they waited for each other %s in all",
		plural(uint64(len(t.Elements)), "element", "elements"), plural(uint64(len(nodes)), "node", "nodes"),
		plural(put.times, "put", "puts"), of(put), plural(get.times, "get", "gets"), of(get), plural(maps.times, "map", "maps"), of(maps), brief(wait.took))
}
