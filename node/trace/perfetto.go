package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"muster/wire/timeline"
)

// nodePid is the process ID for the rows of what nodes did. It is larger than any real process ID.
const nodePid = 10_000_000

// WritePerfetto writes the timeline as JSON that Perfetto (ui.perfetto.dev) and
// chrome://tracing open.
func (t *Trace) WritePerfetto(w io.Writer) error {
	out := &perfetto{w: bufio.NewWriterSize(w, 1<<16), from: t.Begin}
	out.text(`{"displayTimeUnit":"ns","otherData":`)
	out.json(t.about())
	out.text(`,"traceEvents":[`)
	for i, p := range t.Processes {
		out.process(p, i)
	}
	out.elements(t)
	out.text("\n]}\n")
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

// about describes the timeline and what it lacks.
func (t *Trace) about() map[string]string {
	about := map[string]string{"made by": "muster trace", "clocks": t.Clocks()}
	for i, sentence := range t.LeftOut() {
		about["left out "+strconv.Itoa(i+1)] = sentence
	}
	return about
}

// perfetto writes events, and keeps the first error.
type perfetto struct {
	w     *bufio.Writer
	from  int64
	some  bool
	flows int
	err   error
}

func (o *perfetto) text(s string) {
	if o.err == nil {
		_, o.err = o.w.WriteString(s)
	}
}

func (o *perfetto) json(v any) {
	b, err := json.Marshal(v)
	if o.err == nil {
		o.err = err
	}
	o.text(string(b))
}

// event is an event of the format, with the fields that are used here.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Cat   string         `json:"cat,omitempty"`
	Time  json.Number    `json:"ts,omitempty"`
	Took  json.Number    `json:"dur,omitempty"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	ID    int            `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

func (o *perfetto) emit(e event) {
	if o.some {
		o.text(",")
	}
	o.some = true
	o.text("\n")
	o.json(e)
}

// microseconds writes a time in the format's unit, exactly.
func microseconds(ns int64) json.Number {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return json.Number(fmt.Sprintf("%s%d.%03d", sign, ns/1000, ns%1000))
}

func (o *perfetto) at(ns int64) json.Number { return microseconds(ns - o.from) }

// named gives a process or one of its rows a name and a position.
func (o *perfetto) named(what string, pid, tid int, name string, place int) {
	o.emit(event{Name: what + "_name", Phase: "M", Pid: pid, Tid: tid, Args: map[string]any{"name": name}})
	o.emit(event{Name: what + "_sort_index", Phase: "M", Pid: pid, Tid: tid, Args: map[string]any{"sort_index": place}})
}

func (o *perfetto) process(p *Process, number int) {
	o.named("process", p.Pid, 0, fmt.Sprintf("%s (process %d)", p.Program, p.Pid), 2*number)
	threads := map[uint32]bool{}
	for i := range p.Calls {
		c := &p.Calls[i]
		if !threads[c.Row] {
			threads[c.Row] = true
			name := fmt.Sprintf("thread %d: CUDA calls", c.Row)
			if int(c.Row) == p.Pid {
				name = "main thread: CUDA calls"
			}
			o.named("thread", p.Pid, int(c.Row), name, len(threads))
		}
		o.call(p, c)
	}
	o.node(p, number)
}

func (o *perfetto) call(p *Process, c *Call) {
	args := map[string]any{}
	if c.Bytes > 0 {
		args["bytes"] = c.Bytes
		if c.End > c.Begin {
			args["GB/s"] = rate(c.Bytes, c.End-c.Begin)
		}
	}
	if c.Kernel != 0 {
		args["kernel"] = p.Names[c.Kernel]
	}
	if c.Result != 0 {
		args["result"] = c.Result
	}
	waited, what := c.Waits()
	o.emit(event{Name: c.Name, Phase: "X", Cat: "call", Time: o.at(c.Begin), Took: microseconds(c.End - c.Begin), Pid: p.Pid, Tid: int(c.Row), Args: args})
	if waited = min(waited, c.End-c.Begin); waited > 0 && what < len(waitedFor) {
		// The record has only the length of the wait. Draw it at the end of the call, where most
		// waits are.
		o.emit(event{Name: "waits for " + waitedFor[what], Phase: "X", Cat: "wait", Time: o.at(c.End - waited), Took: microseconds(waited), Pid: p.Pid, Tid: int(c.Row)})
	}
}

func rate(bytes uint64, ns int64) json.Number {
	return json.Number(fmt.Sprintf("%.3f", float64(bytes)/float64(ns)))
}

// rows assigns a number to each stream and each other row.
type rows struct {
	o     *perfetto
	p     *Process
	pid   int
	known map[rowKey]int
	busy  map[int]int64 // until when each row is occupied
}

type rowKey struct {
	kind   byte
	source uint16
	stream uint32
	lane   int
}

func (r *rows) row(key rowKey, name string) int {
	if n, ok := r.known[key]; ok {
		return n
	}
	n := len(r.known) + 1
	r.known[key] = n
	r.o.named("thread", r.pid, n, name, n)
	return n
}

// maxLanes limits the rows for overlapping spans. More of them overlap only if a node's records are
// wrong.
const maxLanes = 64

// lane finds a row for a span that may overlap others: the first free one of its kind, or else the
// last.
func (r *rows) lane(key rowKey, name string, s *Span) int {
	for key.lane = 0; ; key.lane++ {
		if n := r.row(key, name); r.busy[n] <= s.Begin || key.lane == maxLanes-1 {
			r.busy[n] = s.End
			return n
		}
	}
}

// node writes what the node did for a process.
func (o *perfetto) node(p *Process, number int) {
	if len(p.Device) == 0 {
		return
	}
	r := &rows{o: o, p: p, pid: nodePid + number, known: map[rowKey]int{}, busy: map[int]int64{}}
	o.named("process", r.pid, 0, fmt.Sprintf("the node, for process %d", p.Pid), 2*number+1)
	devices := map[uint32]string{}
	for i := range p.Device {
		if s := &p.Device[i]; s.Kind == timeline.Device {
			devices[s.Last] = s.Name
		}
	}
	for i := range p.Device {
		s := &p.Device[i]
		if s.Kind != timeline.Device {
			o.span(r, s, devices)
		}
	}
}

func (o *perfetto) span(r *rows, s *Span, devices map[uint32]string) {
	args := map[string]any{}
	if s.Last != timeline.NoDevice {
		args["device"] = fmt.Sprintf("%d (%s)", s.Last, devices[s.Last])
	}
	if s.Bytes > 0 {
		args["bytes"] = s.Bytes
		if s.End > s.Begin {
			args["GB/s"] = rate(s.Bytes, s.End-s.Begin)
		}
	}
	var tid int
	cat := "node"
	switch {
	case isWork(s.Kind):
		cat = "device"
		// A stream keeps its row when its program moves to another device.
		tid = r.lane(rowKey{'s', s.Source, s.Row, 0}, fmt.Sprintf("GPU %d, stream %d", s.Source, s.Row), s)
	case s.Kind == timeline.Others:
		cat = "others"
		tid = r.lane(rowKey{'o', 0, s.Last, 0}, fmt.Sprintf("device %d, used by others", s.Last), s)
	default:
		tid = r.lane(rowKey{'w', s.Source, 0, 0}, fmt.Sprintf("GPU %d: waits, moves and work on the host", s.Source), s)
	}
	o.emit(event{Name: s.title(), Phase: "X", Cat: cat, Time: o.at(s.Begin), Took: microseconds(s.End - s.Begin), Pid: r.pid, Tid: tid, Args: args})
	if s.call != nil && s.call.Begin <= s.Begin {
		o.flows++
		o.emit(event{Name: "does", Phase: "s", Cat: "flow", ID: o.flows, Time: o.at(s.call.Begin), Pid: r.p.Pid, Tid: int(s.call.Row)})
		o.emit(event{Name: "does", Phase: "f", Cat: "flow", ID: o.flows, Bind: "e", Time: o.at(s.Begin), Pid: r.pid, Tid: tid})
	}
}
