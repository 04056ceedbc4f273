package history_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
)

var update = flag.Bool("update", false, "write testdata/story.jsonl again: read the difference before you commit it")

func two() *model.Cluster {
	return &model.Cluster{
		Name: "two", GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}},
		Nodes: []model.Node{{Name: "a", Cores: 4, Memory: 100, GPUs: []int{0, 0}}, {Name: "b", Cores: 4, Memory: 100}},
	}
}

func easy(t *testing.T, c *model.Cluster) *policy.State {
	t.Helper()
	p, err := catalog.New("easy")
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewState(c, p)
}

// story records a state that lives through all kinds of events.
func story(t *testing.T, w io.Writer, h history.Header, r *policy.State) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	job := func(id string, r model.Request) *model.Job {
		return &model.Job{ID: id, User: "u", Run: 10 * time.Second, WallTime: time.Minute, Request: r}
	}
	recorder := history.Record(w, h, r)
	one, err := r.Submit(job("one", model.Request{Nodes: 1, CoresPerNode: 3, GPUs: 1, Memory: 10}))
	must(err)
	share, err := r.Submit(job("share", model.Request{Nodes: 1, CoresPerNode: 1, Remote: &model.RemoteGPUs{Count: 1, Memory: 4, Shared: true}}))
	must(err)
	if _, err := r.Submit(job("large", model.Request{Nodes: 3, CoresPerNode: 4})); !errors.Is(err, policy.ErrImpossible) {
		t.Fatal(err)
	}
	r.Step(time.Second)
	c, err := r.AddNode(model.Node{Name: "c", Cores: 4, Memory: 50, GPUs: []int{0}}, model.GPUType{Name: "new", Memory: 16, Speed: 2})
	must(err)
	large, err := r.Submit(job("large", model.Request{Nodes: 3, CoresPerNode: 4}))
	must(err)
	must(r.Rank(large, 5))
	must(r.SetNode(1, policy.NodeDraining))
	must(r.SetDevice(c, 0, false))
	must(r.AddDevices(1, []int{1}))
	r.Step(2 * time.Second)
	_, err = r.Adopt(job("old", model.Request{Nodes: 1, CoresPerNode: 2}), 0, &model.Allocation{Parts: []model.Part{{Node: 1, Cores: 2}}}, -5*time.Second)
	must(err)
	must(r.Suspended(one))
	if r.End(99) == nil {
		t.Fatal("there is no job 99")
	}
	must(r.Measure(one, model.Measured{CPU: 1.5, GPU: 0.25, Kernels: 7, CopiedIn: 4096}))
	if r.Measure(large, model.Measured{GPU: 1}) == nil || r.Measure(one, model.Measured{GPU: -1}) == nil {
		t.Fatal("a job that waits was measured, or a time below 0")
	}
	keep := 0
	must(r.Configured(1, model.NodeSettings{VGPUs: 2, Sharing: model.Shared, Policy: "sjf", Keep: &keep, Profiling: 1}))
	must(r.Weigh(0, 3))
	if r.Weigh(9, 1) == nil || r.Weigh(0, -1) == nil {
		t.Fatal("there is no node 9, nor a weight below 0")
	}
	must(r.Hear(1, policy.Heard{Alive: true, At: 2 * time.Second, Reported: policy.Never, Assigned: 3, Waiting: 1}))
	if r.Configured(9, model.NodeSettings{}) == nil || r.Configured(1, model.NodeSettings{VGPUs: -1}) == nil || r.Hear(9, policy.Heard{}) == nil || r.Hear(1, policy.Heard{Waiting: -1}) == nil {
		t.Fatal("there is no node 9, nor fewer than no programs")
	}
	r.Step(3 * time.Second)
	must(r.Resumed(one))
	must(r.SetNode(1, policy.NodeUp))
	must(r.Requeue(share))
	r.Step(4 * time.Second)
	must(r.SetWindows([]policy.Window{{Name: "upkeep", From: 6 * time.Second, Until: time.Hour, Nodes: []int32{1}, Users: []string{"admin"}}}))
	if r.SetWindows([]policy.Window{{Name: "never", From: 2, Until: 1}}) == nil {
		t.Fatal("a window ends before it begins")
	}
	inside := job("inside", model.Request{Nodes: 1, CoresPerNode: 1})
	inside.Reservation, inside.QOS = "upkeep", "low"
	_, err = r.Submit(inside)
	must(err)
	must(r.End(one))
	must(r.Cancel(large))
	r.Step(5 * time.Second)
	must(recorder.Err())
}

// TestTheFormat holds it to the letter: programs and people read it.
func TestTheFormat(t *testing.T) {
	var out bytes.Buffer
	story(t, &out, history.Header{Policy: "easy", Muster: "test"}, easy(t, two()))
	const file = "testdata/story.jsonl"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("the history is another one than %s:\n%s", file, &out)
	}
	r, err := history.Replay(&out, catalog.New)
	if err != nil || r.Difference != nil || r.Steps != 5 || r.Starts != 3 || r.Last != 5*time.Second || r.Cut {
		t.Errorf("played again: %+v, %v", r, err)
	}
}

// TestRecordingBeginsInTheMiddle: a state that has lived is recorded with a
// snapshot first, and its jobs keep their numbers in the file.
func TestRecordingBeginsInTheMiddle(t *testing.T) {
	var first, second bytes.Buffer
	s := easy(t, two())
	story(t, &first, history.Header{Policy: "easy"}, s)
	for range 600 { // some pages of jobs that are over
		id, err := s.Submit(&model.Job{ID: "x", Request: model.Request{Cores: 1}})
		if err == nil {
			err = s.Cancel(id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	history.Record(&second, history.Header{Policy: "easy"}, s)
	waits, err := s.Submit(&model.Job{ID: "later", Request: model.Request{Nodes: 3, CoresPerNode: 4}})
	if err != nil {
		t.Fatal(err)
	}
	s.Step(time.Minute)
	if err := s.Cancel(waits); err != nil {
		t.Fatal(err)
	}
	if s.End(0) == nil || s.End(4000) == nil {
		t.Error("ended what is over, or never was")
	}
	s.Step(2 * time.Minute)
	got, err := history.Replay(&second, catalog.New)
	if err != nil || got.Difference != nil || got.Steps != 2 {
		t.Errorf("%+v, %v", got, err)
		if got.Difference != nil {
			t.Errorf("%s\n%s", got.Difference.Then, got.Difference.Now)
		}
	}
}

// TestDifferencesAreFound changes a history, and expects the line to be named.
func TestDifferencesAreFound(t *testing.T) {
	text, err := os.ReadFile("testdata/story.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, from, to string
		line           int
	}{
		{"another policy", `"policy":"easy"`, `"policy":"g-queue"`, 5},
		{"another node", `"starts":[{"id":0,"alloc":{"parts":[{"node":0`, `"starts":[{"id":0,"alloc":{"parts":[{"node":1`, 5},
		{"another number", `"id":2}`, `"id":7}`, 7},
		{"an error", `{"do":"rank","id":2,"rank":5}`, `{"do":"rank","id":2,"rank":5,"error":"no"}`, 8},
	} {
		changed := strings.Replace(string(text), tc.from, tc.to, 1)
		if changed == string(text) {
			t.Fatalf("%s: there is no %s", tc.name, tc.from)
		}
		r, err := history.Replay(strings.NewReader(changed), catalog.New)
		if err != nil || r.Difference == nil || r.Difference.Line != tc.line {
			t.Errorf("%s: %+v, %v, want a difference in line %d", tc.name, r.Difference, err, tc.line)
		}
	}
	// A line that is still being written is left out.
	r, err := history.Replay(bytes.NewReader(text[:len(text)-5]), catalog.New)
	if err != nil || !r.Cut || r.Steps != 4 {
		t.Errorf("cut off: %+v, %v", r, err)
	}
}

func TestCompare(t *testing.T) {
	var out bytes.Buffer
	s := easy(t, two())
	history.Record(&out, history.Header{Policy: "easy"}, s)
	for _, id := range []string{"1", "2", "3"} {
		cores := map[string]int{"1": 3, "2": 4, "3": 1}[id]
		if _, err := s.Submit(&model.Job{ID: id, Run: time.Second, Request: model.Request{Nodes: 2, CoresPerNode: cores}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Step(0) // 1 starts, 2 waits, 3 overtakes
	c, err := history.Compare(bytes.NewReader(out.Bytes()), catalog.New, "fcfs", 10)
	if err != nil || c.Steps != 1 || c.Starts != 2 || c.Same != 1 || c.Waits != 1 || c.Different != 1 || c.First[0].Waits[0] != "3" {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = history.Compare(bytes.NewReader(out.Bytes()), catalog.New, "conservative", 10)
	if err != nil || c.Different != 0 || c.Same != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// speaker is a policy that says of nodes how they are to serve programs, another thing at each step.
type speaker struct {
	policy.Policy
	says []policy.NodeLine
}

func (p *speaker) Step(v *policy.View, plan *policy.Plan) {
	p.Policy.Step(v, plan)
	if len(p.says) > 0 {
		plan.Configure(p.says[0].Node, p.says[0].Settings)
		p.says = p.says[1:]
	}
}

// What a policy said of nodes is written with the plan, said again, and what another policy says instead does not
// count.
func TestWhatIsSaidOfNodes(t *testing.T) {
	all := []policy.NodeLine{
		{Node: 0, Settings: model.NodeSettings{VGPUs: 2, Policy: "sjf"}}, {Node: 1, Settings: model.NodeSettings{Sharing: model.Exclusive}},
		{Node: 7}, {Node: 0, Settings: model.NodeSettings{VGPUs: -1}}, {Node: 0, Settings: model.NodeSettings{VGPUs: 3}},
	}
	make := func(spec string) (policy.Policy, error) {
		inner, err := catalog.New("easy")
		says := all
		if spec != "speaker" {
			says = []policy.NodeLine{{Node: 1, Settings: model.NodeSettings{VGPUs: 9}}}
		}
		return &speaker{inner, says}, err
	}
	p, err := make("speaker")
	if err != nil {
		t.Fatal(err)
	}
	var out, now bytes.Buffer
	s := policy.NewState(two(), p)
	history.Record(&out, history.Header{Policy: "speaker"}, s)
	for i := range all {
		plan := s.Step(time.Duration(i))
		if len(plan.Nodes) != 1 || (plan.Nodes[0].Err != nil) != (i == 2 || i == 3) {
			t.Errorf("step %d: %+v", i, plan.Nodes)
		}
	}
	r, err := history.Replay(bytes.NewReader(out.Bytes()), make)
	if err != nil || r.Difference != nil || r.Steps != len(all) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = history.Replay(bytes.NewReader(out.Bytes()), always("easy")); err != nil || r.Difference == nil || r.Difference.Line != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if c, err := history.Compare(bytes.NewReader(out.Bytes()), make, "other", 1); err != nil || c.Steps != len(all) {
		t.Errorf("%+v, %v", c, err)
	}
	if err := history.Snapshot(&now, history.Header{Policy: "speaker"}, s); err != nil {
		t.Fatal(err)
	}
	again, err := history.Restore(&now, make)
	if err != nil || again.SettingsOf(0).String() != "vgpus 3" || again.SettingsOf(1).String() != "exclusive" {
		t.Errorf("%v, %v, %v", again.SettingsOf(0), again.SettingsOf(1), err)
	}
}

// always makes one policy, whatever is asked for.
func always(spec string) history.Maker {
	return func(string) (policy.Policy, error) { return catalog.New(spec) }
}

func TestWhatIsNoHistory(t *testing.T) {
	text, err := os.ReadFile("testdata/story.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "it has no header"},
		{"no JSON", "hello\n", `line 1: no header: a history begins with {"history":1`},
		{"another object", "{}\n", "line 1: no header"},
		{"version", `{"history":2}` + "\n", "line 1: it is of version 2"},
		{"unknown field", strings.Replace(head, `"policy"`, `"colour":1,"policy"`, 1) + "\n", `line 1: unknown field "colour"`},
		{"no policy", strings.Replace(head, `"easy"`, `"esay"`, 1) + "\n", `line 1: there is no policy "esay"`},
		{"bad cluster", strings.Replace(head, `"cores":4`, `"cores":-4`, 1) + "\n", "line 1: node a: cores must be"},
		{"unknown event", head + "\n" + `{"do":"dance"}` + "\n", `line 2: there is no event "dance"`},
		{"no event", head + "\n[1]\n", "line 2: "},
		{"another's field", head + "\n" + `{"do":"cancel","id":1,"rank":2}` + "\n", `line 2: unknown field "rank"`},
		{"two objects", head + "\n" + `{"do":"cancel","id":1} {}` + "\n", "line 2: "},
		{"a bad job", head + "\n" + `{"do":"submit","job":{"id":"x","request":{"nodes":-1}},"id":0}` + "\n", "line 2: job x: nodes must be"},
		{"a bad state", head + "\n" + `{"do":"set-node","number":0,"state":"asleep"}` + "\n", "line 2: a node is up, draining or down"},
		{"backwards", head + "\n" + `{"do":"step","at_ns":5,"plan":{}}` + "\n" + `{"do":"step","at_ns":4,"plan":{}}` + "\n", "line 3: the step at 4ns is before"},
		{"a wrong time", head + "\n" + `{"do":"step","at_ns":-5,"plan":{}}` + "\n", "line 2: at_ns -5 is out of range"},
	} {
		_, err := history.Replay(strings.NewReader(tc.text), catalog.New)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if rest == "" {
		t.Error("the story has no events")
	}
}

// TestWriters that fail are told of, and not written to any more.
func TestWritersThatFail(t *testing.T) {
	w := &short{left: 400}
	s := easy(t, two())
	r := history.Record(w, history.Header{Policy: "easy"}, s)
	for range 9 {
		if _, err := s.Submit(&model.Job{ID: "x", Request: model.Request{Cores: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if r.Err() == nil || w.after {
		t.Errorf("%v, written to after it failed: %v", r.Err(), w.after)
	}
}

type short struct {
	left   int
	failed bool
	after  bool
}

func (w *short) Write(b []byte) (int, error) {
	w.after = w.failed
	if w.left -= len(b); w.left < 0 {
		w.failed = true
		return 0, errors.New("full")
	}
	return len(b), nil
}

// FuzzReplay: whatever the bytes are, they are played or refused.
func FuzzReplay(f *testing.F) {
	text, err := os.ReadFile("testdata/story.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, name := range []string{"fcfs", "conservative", "slurm", "first-fit", "best-fit"} {
		f.Add(strings.Replace(string(text), `"policy":"easy"`, `"policy":"`+name+`"`, 1))
	}
	cheap := func(spec string) (policy.Policy, error) {
		if name, _, _ := strings.Cut(spec, ":"); name == "mosaic" || name == "auction" || len(spec) > 40 {
			return nil, errors.New("it thinks too long")
		}
		return catalog.New(spec)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		r, err := history.Replay(strings.NewReader(text), cheap)
		if err == nil && r.Difference == nil && r.Steps > 0 {
			if _, err := history.Compare(strings.NewReader(text), cheap, "fcfs", 3); err != nil {
				t.Errorf("it can be played, and not compared: %v", err)
			}
		}
	})
}
