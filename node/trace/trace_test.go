package trace

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/seeds"
	"muster/node/trace/tracetest"
	"muster/wire/timeline"
)

var update = flag.Bool("update", false, "rewrite golden files")

const ms, us = 1_000_000, 1_000

// tiny is a program of two processes whose node is on another machine, with a clock that is 5 s
// ahead.
func tiny() []*timeline.File {
	const later = 5000 * ms
	add := timeline.Hash("add")
	parent := &timeline.File{
		Pid: 100, Parent: 99, Program: "tiny", Boot: "here", Ended: true, Opened: 1000 * ms, OpenedAt: 7_000_000 * ms,
		Functions: map[uint32]string{1: "cuMemcpyHtoD_v2", 2: "cuLaunchKernel", 3: "cuMemcpyDtoH_v2"},
		Names:     map[uint32]string{add: "add", timeline.Hash("a GPU"): "a GPU", timeline.Hash("move from device 1 to device 0"): "move from device 1 to device 0", timeline.Hash("other (client 7)"): "other (client 7)"},
		Calls: []timeline.Record{
			{Mark: 1, Kind: timeline.Call, Name: 1, Row: 100, Begin: 1000 * ms, End: 1001 * ms, Bytes: 4096, First: 5, Last: 5},
			{Mark: 2, Kind: timeline.Call, Name: 2, Row: 100, Begin: 1002 * ms, End: 1002*ms + 500, Kernel: add, First: 6, Last: 6},
			{Mark: 3, Kind: timeline.Call, Name: 3, Row: 101, Begin: 1003 * ms, End: 1010 * ms, Bytes: 4, First: 7, Last: 7, Waited: 6000<<3 | timeline.ForAnswer, Result: 700},
		},
		CallsMade: 3,
		Node: []timeline.Record{
			{Mark: 1, Kind: timeline.Clock, Begin: 999 * ms, End: 1001 * ms, Bytes: 1000*ms + later},
			{Mark: 2, Kind: timeline.Device, Name: timeline.Hash("a GPU"), Begin: 1000 * ms, End: 1000 * ms},
			{Mark: 3, Kind: timeline.Others, Name: timeline.Hash("other (client 7)"), Begin: 1000 * ms, End: 1001 * ms},
			{Mark: 4, Kind: timeline.Others, Name: timeline.Hash("other (client 7)"), Begin: 1001 * ms, End: 1002 * ms},
			{Mark: 5, Kind: timeline.Wait, Begin: 1000 * ms, End: 1002 * ms, First: 6},
			{Mark: 6, Kind: timeline.SwapIn, Begin: 1002 * ms, End: 1003 * ms, Bytes: 4096, First: 6},
			{Mark: 7, Kind: timeline.Kernel, Name: add, Row: 3, Begin: 1003 * ms, End: 1008 * ms, First: 6},
			{Mark: 8, Kind: timeline.CopyOut, Row: 3, Begin: 1008 * ms, End: 1008*ms + 4*us, Bytes: 4, First: 7},
			{Mark: 9, Kind: timeline.Transfer, Name: timeline.Hash("move from device 1 to device 0"), Begin: 1009 * ms, End: 1010 * ms, Bytes: 2 << 20, First: 7},
		},
		NodeMade: 9,
		Totals:   map[string]timeline.Total{"cuMemcpyHtoD_v2": {Count: 1}, "cuLaunchKernel": {Count: 1}, "cuMemcpyDtoH_v2": {Count: 1}},
	}
	for i := range parent.Node {
		if r := &parent.Node[i]; r.Kind != timeline.Clock {
			r.Begin, r.End = r.Begin+later, r.End+later
		}
	}
	child := &timeline.File{
		Pid: 102, Parent: 100, Program: "tiny", Boot: "here", Opened: 1004 * ms, OpenedAt: 7_000_004 * ms,
		Functions: map[uint32]string{1: "cuInit"},
		Calls:     []timeline.Record{{Mark: 1, Kind: timeline.Call, Name: 1, Row: 102, Source: timeline.FromProgram, Begin: 1004 * ms, End: 1005 * ms}},
		CallsMade: 1, Totals: map[string]timeline.Total{"cuInit": {Count: 1}},
	}
	return []*timeline.File{child, parent}
}

func write(t *testing.T, tr *Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tr.WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is said of a timeline has at most five costs, and ends with where it is.
func TestWrite(t *testing.T) {
	say := func(tr *Trace) string {
		var b strings.Builder
		tr.Write(&b, "t.json")
		return b.String()
	}
	if got, want := say(New(nil, 0)), "muster: the program called no function of CUDA; the timeline in t.json is empty\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	tr := New(tiny(), 1)
	want := "muster: where the time went, from the first call to the last (" + tr.Duration() + "):\n"
	for i, c := range tr.Costs() {
		if i < 5 {
			want += "  " + c.Sentence + "\n"
		}
	}
	for _, s := range tr.LeftOut() {
		want += "left out: " + s + "\n"
	}
	const where = "muster: the timeline is in t.json: open it at https://ui.perfetto.dev\n"
	want += "muster: " + tr.Clocks() + "\n" + where
	if got := say(tr); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	var elements Trace
	elements.AddElements([]*timeline.Element{{Pid: 7}})
	if got, want := say(&elements), "muster: "+elements.ElementWords()+"\n"+where; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestGolden(t *testing.T) {
	tr := New(tiny(), 1)
	var b bytes.Buffer
	b.Write(write(t, tr))
	fmt.Fprintf(&b, "--- %s ---\n", tr.Duration())
	for _, c := range tr.Costs() {
		fmt.Fprintln(&b, c.Sentence)
	}
	for _, s := range tr.LeftOut() {
		fmt.Fprintln(&b, "left out:", s)
	}
	fmt.Fprintln(&b, tr.Clocks())
	path := filepath.Join("testdata", "tiny.golden")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	tracetest.Check(t, write(t, tr))
}

// Nothing that was recorded below the limit is lost; rows nest; kernels of a stream do not overlap,
// because they did not.
func TestEverythingIsInTheTimeline(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		files := randomFiles(r)
		calls, works := 0, 0
		for _, f := range files {
			calls += len(f.Calls)
			for _, n := range f.Node {
				if n.Kind >= timeline.Kernel && n.Kind < timeline.Others {
					works++
				}
			}
		}
		tr := New(files, 0)
		gotCalls, gotWorks := 0, 0
		for _, e := range tracetest.Check(t, write(t, tr)) {
			switch e.Cat {
			case "call":
				gotCalls++
			case "device", "node":
				gotWorks++
			}
		}
		if gotCalls != calls || gotWorks != works {
			t.Fatalf("%d of %d calls, %d of %d things that the node did", gotCalls, calls, gotWorks, works)
		}
		checkCosts(t, tr)
	}
}

// checkCosts: no time is counted twice. All costs of a process with one thread and one
// stream together take no longer than it.
func checkCosts(t *testing.T, tr *Trace) {
	t.Helper()
	for _, p := range tr.Processes {
		sum, first, last := int64(0), int64(1)<<62, int64(0)
		for _, c := range p.costs() {
			if c.Took < 0 {
				t.Errorf("%s", c.Sentence)
			}
			sum += c.Took
		}
		for _, c := range p.Calls {
			first, last = min(first, c.Begin), max(last, c.End)
		}
		for _, s := range p.Device {
			first, last = min(first, s.Begin), max(last, s.End)
		}
		if len(p.Calls) > 0 && sum > last-first {
			t.Errorf("costs of %d in a time of %d", sum, last-first)
		}
	}
}

// randomFiles are processes with one thread and one stream each.
func randomFiles(r *rand.Rand) []*timeline.File {
	var files []*timeline.File
	for i := range 1 + r.IntN(3) {
		f := &timeline.File{Pid: 100 + i, Boot: "here", Ended: true, OpenedAt: int64(i), Totals: map[string]timeline.Total{},
			Functions: map[uint32]string{1: "cuMemcpyHtoD_v2", 2: "cuLaunchKernel", 3: "cuStreamSynchronize", 4: "cuMemcpyDtoHAsync_v2"}, Names: map[uint32]string{9: "k"}}
		offset := int64(r.IntN(2)) * int64(r.IntN(1e9)) // of the node's clock
		at := int64(1000 + r.IntN(1000))
		for seq := range uint32(r.IntN(60)) {
			c := timeline.Record{Mark: f.CallsMade + 1, Kind: timeline.Call, Name: 1 + r.Uint32N(4), Row: uint32(f.Pid), Begin: at, End: at + int64(r.IntN(5000)), First: seq, Last: seq}
			c.Bytes = uint64(r.IntN(2)) * r.Uint64N(1<<20)
			c.Waited = uint32(r.IntN(10))<<3 | timeline.ForAnswer
			f.Calls, f.CallsMade, at = append(f.Calls, c), f.CallsMade+1, c.End+int64(r.IntN(3000))
		}
		at = 1000
		for seq := range uint32(r.IntN(60)) {
			kinds := []timeline.Kind{timeline.Kernel, timeline.CopyIn, timeline.CopyOut, timeline.SwapIn, timeline.SwapOut, timeline.Wait, timeline.OnHost, timeline.Open}
			n := timeline.Record{Mark: f.NodeMade + 1, Kind: kinds[r.IntN(len(kinds))], Name: 9, Begin: at + offset, End: at + offset + int64(r.IntN(4000)), First: seq, Bytes: r.Uint64N(100)}
			f.Node, f.NodeMade = append(f.Node, n), f.NodeMade+1
			at = n.End - offset + int64(r.IntN(1000))
		}
		clock := timeline.Record{Mark: f.NodeMade + 1, Kind: timeline.Clock, Begin: 900, End: 1100, Bytes: uint64(1000 + offset)}
		f.Node, f.NodeMade = append(f.Node, clock), f.NodeMade+1
		files = append(files, f)
	}
	return files
}

// The report says what was left out in the middle, and the sums include it.
func TestLeftOut(t *testing.T) {
	f := &timeline.File{Pid: 7, Functions: map[uint32]string{1: "cuCtxSynchronize"}, CallsMade: 1000, NodeLost: 12,
		Totals: map[string]timeline.Total{"cuCtxSynchronize": {Count: 1000, Took: 2000 * ms}}}
	for _, i := range []int64{0, 1, 998, 999} {
		f.Calls = append(f.Calls, timeline.Record{Mark: uint64(i + 1), Kind: timeline.Call, Name: 1, Begin: 1000 * ms * i, End: 1000*ms*i + ms})
	}
	tr := New([]*timeline.File{f}, 3)
	want := []string{
		"996 of 1,000 calls of process 7 between 1 s and 16m38s: the sums count them; raise --limit to have more",
		"12 kernels and copies of process 7, which came faster than they could be recorded",
		"what the node did in the last 10 ms of process 7, perhaps: it ended without exit()",
		"3 processes, of which nothing could be recorded",
	}
	if got := tr.LeftOut(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	costs := tr.Costs()
	if len(costs) != 1 || !strings.HasPrefix(costs[0].Sentence, "2 s: 1,000 calls of cuCtxSynchronize (2 ms each)") {
		t.Errorf("%+v", costs)
	}
}

// Where it is not known when the missing records of the node are from, each call is taken to lack as
// much as all do: half of the node's work in this call of 10 ms is not recorded.
func TestLeftOutAnywhere(t *testing.T) {
	f := &timeline.File{
		Pid: 7, Functions: map[uint32]string{1: "cuCtxSynchronize"}, CallsMade: 1, NodeMade: 2, Ended: true,
		Totals: map[string]timeline.Total{"cuCtxSynchronize": {Count: 1, Took: 10 * ms}},
		Calls:  []timeline.Record{{Mark: 1, Kind: timeline.Call, Name: 1, Begin: 1000 * ms, End: 1010 * ms}},
		Node:   []timeline.Record{{Mark: 1, Kind: timeline.Kernel, Begin: 1001 * ms, End: 1005 * ms}},
	}
	var own []string
	for _, c := range New([]*timeline.File{f}, 0).Costs() {
		if strings.Contains(c.Sentence, "cuCtxSynchronize") {
			own = append(own, c.Sentence)
		}
	}
	if len(own) != 1 || !strings.HasPrefix(own[0], "2 ms: ") {
		t.Errorf("%q", own)
	}
}

// The node's clock is found to half of the shortest round trip, also while it drifts.
func TestClocksAreAligned(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 2))
	const ppm, best = 40, 30 * us
	node := func(at int64) int64 { return at + 123456789 + at*ppm/1e6 }
	var records []timeline.Record
	for at := int64(0); at < 600_000*ms; at += 500 * ms {
		there, back := best/2+r.Int64N(2*ms), best/2+r.Int64N(2*ms)
		if r.IntN(2) == 0 {
			there, back = best/2, best/2
		}
		records = append(records, timeline.Record{Kind: timeline.Clock, Begin: at, End: at + there + back, Bytes: uint64(node(at + there))})
	}
	c := clockOf(records)
	if c.error > 3*best {
		t.Errorf("times are said to be right within %d only", c.error)
	}
	for at := int64(20_000 * ms); at < 580_000*ms; at += 7919 * ms {
		if wrong := c.program(node(at)) - at; max(wrong, -wrong) > c.error+best {
			t.Errorf("at %d: wrong by %d, and %d is said", at, wrong, c.error)
		}
	}
	same := clockOf([]timeline.Record{{Begin: 100, End: 200, Bytes: 150}, {Begin: 300, End: 400, Bytes: 310}})
	if same.program(12345) != 12345 || same.error != 0 {
		t.Error("one clock is taken for two")
	}
}

// What a node says may overlap as it likes: rows are bounded, and so is the work to find one.
func TestOverlapsAreBounded(t *testing.T) {
	f := &timeline.File{Pid: 7, Program: "p", CallsMade: 1, NodeMade: 5000, Calls: []timeline.Record{{Mark: 1, Begin: 1, End: 2, Kind: timeline.Call, Source: timeline.FromProgram}}}
	for i := range 5000 {
		f.Node = append(f.Node, timeline.Record{Mark: uint64(i + 1), Begin: int64(i), End: 1 << 40, Kind: timeline.Kernel})
	}
	var out strings.Builder
	if err := New([]*timeline.File{f}, 0).WritePerfetto(&out); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out.String(), `"thread_name"`); rows > 100 {
		t.Errorf("%d rows", rows)
	}
}
