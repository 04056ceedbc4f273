package kernels

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/workload/phased"
)

// Process is a process of an application: its rank, and its node.
type Process struct{ App, Rank, Node int32 }

// Processes lists the processes of a workload in the order in which the simulator numbers them.
func Processes(c *model.Cluster, w *phased.Workload) []Process {
	var list []Process
	node := int32(0)
	for app := range w.Apps {
		rank := int32(0)
		for range w.Apps[app].Nodes {
			per := w.Apps[app].PerNode
			if per == 0 {
				per = c.Nodes[node].Cores
			}
			for range per {
				list = append(list, Process{int32(app), rank, node})
				rank++
			}
			node++
		}
	}
	return list
}

// Trace writes a line of CSV for each stage of each call. There are millions of lines, so they are
// built without encoding/csv.
type Trace struct {
	w    *bufio.Writer
	line []byte
	err  error
}

// NewTrace begins a trace with the names of its columns.
func NewTrace(w io.Writer) *Trace {
	t := &Trace{w: bufio.NewWriterSize(w, 1<<16)}
	_, t.err = t.w.WriteString("policy,seed,nodes,at_s,stage,call,app,rank,node,device,device_node,bytes\n")
	return t
}

// Flush writes what is buffered, and returns the first error since NewTrace.
func (t *Trace) Flush() error { return errors.Join(t.err, t.w.Flush()) }

// tracer writes the lines of one run.
type tracer struct {
	*Trace
	run     string   // the first fields of its lines
	process []string // by process: application, rank and node
	device  []string // by device: its number on its node, and the node
}

// Of is the observer that traces a run. Runs of one trace must not be observed at the same time.
func (t *Trace) Of(p Point) Observer {
	one := &tracer{Trace: t, run: fields(p.Mapper, strconv.FormatUint(p.Seed, 10), strconv.Itoa(len(p.Cluster.Nodes))) + ","}
	for _, each := range Processes(p.Cluster, p.Workload) {
		one.process = append(one.process, fields(p.Workload.Apps[each.App].Name, strconv.Itoa(int(each.Rank)), p.Cluster.Nodes[each.Node].Name)+",")
	}
	for n := range p.Cluster.Nodes {
		for k := range p.Cluster.Nodes[n].GPUs {
			one.device = append(one.device, fields(strconv.Itoa(k), p.Cluster.Nodes[n].Name)+",")
		}
	}
	return one
}

// fields formats fields as CSV does.
func fields(list ...string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write(list) // writing to a strings.Builder cannot fail
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// stageNames are those of the trace, by stage.
var stageNames = [...]string{
	Launched: "launched", Queued: "queued", Holding: "holding", Sending: "sending",
	Running: "running", Returning: "returning", Released: "released", Done: "done",
}

func (t *tracer) Event(e Event) {
	b := append(t.line[:0], t.run...)
	b = appendSeconds(b, e.At)
	b = append(append(append(b, ','), stageNames[e.Stage]...), ',')
	b = append(strconv.AppendInt(b, e.Call+1, 10), ',') // numbered from 1, as in a Moment
	b = append(b, t.process[e.Process]...)
	if e.Device >= 0 {
		b = append(b, t.device[e.Device]...)
	} else {
		b = append(b, ",,"...)
	}
	b = append(strconv.AppendInt(b, e.Bytes, 10), '\n')
	t.line = b
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// Rate is not traced.
func (t *tracer) Rate(time.Duration, int64, int64) {}

// appendSeconds writes a time exactly, without zeros at the end.
func appendSeconds(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	rest := int64(d % time.Second)
	if rest == 0 {
		return b
	}
	b = append(b, '.')
	for unit := int64(time.Second) / 10; rest > 0; unit /= 10 {
		b = append(b, byte('0'+rest/unit))
		rest %= unit
	}
	return b
}
