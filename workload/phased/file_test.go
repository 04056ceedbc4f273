package phased

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

func TestReadExample(t *testing.T) {
	const ms = time.Millisecond
	want := &Workload{Name: "example", Apps: []App{
		{Name: "weather", Nodes: 8, PerNode: 6, Iterations: 2000, Barrier: true, Reuse: 0.9, Steps: []Step{
			{Kernel: "advect", CPU: Time{ConstantOf(120 * ms)}, GPU: Time{LognormalOf(400*ms, 0.3)}, In: Size{PerSecond: 10e6}, Out: Size{PerSecond: 5e6}},
			{Kernel: "radiation", CPU: Time{ErlangOf(50*ms, 3)}, GPU: Time{WeibullOf(1500*ms, 1.4)},
				In: Size{Bytes: ConstantOf[int64](22.5e6)}, Out: Size{Bytes: ConstantOf[int64](4e6)}},
		}},
		{Name: "service", Nodes: 4, Critical: true, Steps: []Step{{
			CPU: Time{ExponentialOf(300 * ms)}, GPU: Time{HyperexponentialOf(40*ms, 3)},
			In: Size{Bytes: ExponentialOf[int64](200e3)}, Out: Size{Bytes: EmpiricalOf[int64](1e3, 1e3, 1e3, 400e3)},
		}}},
		{Name: "filler", Nodes: 12, Async: true, Steps: []Step{{
			CPU: Time{UniformOf(1000*ms, 3000*ms)}, GPU: Time{ParetoOf(50*ms, 30_000*ms, 1.3)}, In: Size{PerSecond: 2e6},
		}}},
	}}
	got, err := ReadFile("testdata/example.yaml")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v, %v\nwant %+v", got, err, want)
	}
	again, err := Read(strings.NewReader(got.String()), "again")
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("reads back as %+v, %v, from\n%s", again, err, got)
	}
}

// The page for people shows the same file.
func TestExampleIsDocumented(t *testing.T) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/kernel-workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```yaml\n"+string(example)+"```\n") {
		t.Error("docs/kernel-workloads.md does not show testdata/example.yaml: copy it there")
	}
	for _, form := range Families(Nanoseconds) {
		if !strings.Contains(string(page), form) {
			t.Errorf("docs/kernel-workloads.md does not show %s", form)
		}
	}
	for _, e := range List() {
		for _, o := range e.Options {
			if !strings.Contains(string(page), "`"+o.Name+"`") {
				t.Errorf("docs/kernel-workloads.md does not show the setting %s", o.Name)
			}
		}
	}
}

func TestWriteForm(t *testing.T) {
	w, err := Load("W4", 24)
	if err != nil {
		t.Fatal(err)
	}
	const want = `name: W4
applications:
  - name: H
    nodes: 6
    cpu: exponential(750ms)
    gpu: exponential(2.25s)
    upload: 10KB/ms
    download: 5KB/ms
  - name: L
    nodes: 18
    cpu: exponential(2.25s)
    gpu: exponential(750ms)
    upload: 10KB/ms
    download: 5KB/ms
`
	if got := w.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadErrors(t *testing.T) {
	app := func(lines string) string { return "applications:\n  - name: a\n    nodes: 2\n" + lines }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f:1:1: the file is empty: describe applications, as applications: [{name: a, nodes: 4, cpu: 1s, gpu: exponential(2s)}]"},
		{"no applications", "name: x\n", "f:1:1: there are no applications: write applications: and below it - {name: a, nodes: 4"},
		{"not a list", "applications: 5\n", "f:1:15: applications must be a list, not a plain value: add - {name: a"},
		{"none", "applications: []\n", "f:1:15: the list of applications is empty: add - {name: a"},
		{"unknown key", app("    gpus: 1s\n"), `f:4:5: "gpus" is no key of an application: did you mean gpu?`},
		{"no name", "applications:\n  - nodes: 2\n    gpu: 1s\n", "f:2:5: this application has no name: add name: solver"},
		{"no nodes", "applications:\n  - name: a\n    gpu: 1s\n", "f:2:5: this application has no nodes: add nodes: 4"},
		{"nothing to do", app(""), "f:2:5: application a does nothing: add cpu: 1s and gpu: exponential(2s), or steps"},
		{"no kernel", app("    cpu: 1s\n"), "f:2:5: there is no kernel: add gpu: exponential(2s)"},
		{"no kernel in a step", app("    steps:\n      - cpu: 1s\n"), "f:5:9: there is no kernel: add gpu: exponential(2s)"},
		{"both", app("    gpu: 1s\n    steps:\n      - gpu: 1s\n"), "f:2:5: application a has steps, and a step beside them: move it into the list"},
		{"no steps", app("    steps: []\n"), "f:4:12: steps must be a list of 1 to 1000: add - {cpu: 1s, gpu: exponential(2s)}"},
		{"unknown key of a step", app("    steps:\n      - {gpu: 1s, kernal: x}\n"), `f:5:19: "kernal" is no key of a step: did you mean kernel?`},
		{"bad time", app("    gpu: exponential(2x)\n"), `f:4:10: gpu: exponential(2x): mean: time "2x": "x" is no unit of time`},
		{"comma between braces", "applications:\n  - {name: a, nodes: 1, gpu: uniform(1ms, 5ms)}\n",
			`f:2:43: not valid YAML: "5ms)" has no value: write a colon and a blank behind a key, and a value with a comma in quotes`},
		{"bad size", app("    gpu: 1s\n    upload: 10KB/day\n"), `f:5:13: upload: "10KB/day" is no amount of data for each time of the kernel: write it as 10KB/ms`},
		{"iterations", app("    gpu: 1s\n    iterations: 0\n"), `f:5:17: iterations: must be a whole number from 1, not "0": leave it out for no end`},
		{"reuse", app("    gpu: 1s\n    reuse: 2\n"), `f:5:12: reuse: must be a number from 0 to 1, not "2"`},
		{"barrier", app("    gpu: 1s\n    barrier: yes\n"), `f:5:14: barrier: must be true or false, not "yes"`},
		{"barrier and async", app("    gpu: 1s\n    cpu: 1s\n    barrier: true\n    async: true\n"), "f:2:5: application a: it has barriers and launches asynchronously"},
		{"no time", app("    gpu: 0\n"), "f:2:5: application a: its steps take no time and have no end"},
		{"endless launches", app("    gpu: 1s\n    async: true\n"), "f:2:5: application a: it would launch kernels without end at one instant"},
		{"twice", app("    gpu: 1s\n  - {name: a, nodes: 1, gpu: 1s}\n"), "f:5:5: application a is described twice, first on line 2: give each a name of its own"},
		{"processes", app("    gpu: 1s\n    processes: 0\n"), "f:5:16: processes: must be a whole number from 1 to 65536, not \"0\""},
	} {
		if w, err := Read(strings.NewReader(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v\nwant %s", c.name, w, err, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	step := []Step{{GPU: Time{ConstantOf(time.Second)}}}
	good := App{Name: "a", Nodes: 3, Steps: step}
	with := func(change func(*App)) *Workload {
		a := good
		change(&a)
		return &Workload{Apps: []App{a}}
	}
	if err := (&Workload{Apps: []App{good}}).Validate(3); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		w     *Workload
		nodes int
		want  string
	}{
		{&Workload{}, 0, "a workload has from 1 to 1000 applications, not 0"},
		{&Workload{Name: "a b", Apps: []App{good}}, 0, "the name of a workload must be made of letters"},
		{&Workload{Apps: []App{good}}, 2, "the applications have 3 nodes, and the cluster has 2"},
		{&Workload{Apps: []App{good, good}}, 0, "two applications are called a: give each a name of its own"},
		{with(func(a *App) { a.Name = "" }), 0, "the name of application 1 must be made of letters"},
		{with(func(a *App) { a.Nodes = 0 }), 0, "application a: it needs from 1 to 16777216 nodes, not 0"},
		{with(func(a *App) { a.PerNode = -1 }), 0, "application a: it may have up to 65536 processes on a node, not -1"},
		{with(func(a *App) { a.Steps = nil }), 0, "application a: it needs from 1 to 1000 steps, not 0"},
		{with(func(a *App) { a.Iterations = -1 }), 0, "application a: it cannot make -1 steps: 0 is without end"},
		{with(func(a *App) { a.Reuse = 1.5 }), 0, "application a: what it uses again must be from 0 to 1 of its input, not 1.5"},
		{with(func(a *App) { a.Steps = []Step{{Kernel: "a b"}} }), 0, "application a: step 1: the name of a kernel must be made of letters"},
		{with(func(a *App) { a.Steps = []Step{{GPU: Time{Dist{Kind: Lognormal, Mean: 1e9}}}} }), 0, "step 1: gpu: cv must be above 0"},
		{with(func(a *App) { a.Steps = []Step{{GPU: Time{Dist{Kind: 99}}}} }), 0, "step 1: gpu: there is no distribution 99"},
		{with(func(a *App) { a.Steps = []Step{{GPU: Time{Dist{Mean: -1}}}} }), 0, "step 1: gpu: values are whole nanoseconds or bytes"},
		{with(func(a *App) { a.Steps = []Step{{In: Size{PerSecond: -1}}} }), 0, "step 1: data of -1 bytes a second"},
		{with(func(a *App) { a.Steps = []Step{{In: Size{PerSecond: 1, Bytes: Dist{Mean: 1}}}} }), 0, "step 1: data are so much a second, or drawn, but not both"},
	} {
		if err := c.w.Validate(c.nodes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v\nwant ...%s...", err, c.want)
		}
	}
}

func anyDist(t *rapid.T, label string) Dist {
	mean := rapid.Int64Range(1, 1e12).Draw(t, label)
	more := mean + rapid.Int64Range(1, 1e12).Draw(t, label+" more")
	cv := rapid.Float64Range(1, 100).Draw(t, label+" shape")
	return rapid.SampledFrom([]Dist{
		ConstantOf(mean), ExponentialOf(mean), UniformOf(mean, more), ErlangOf(mean, int(cv)), HyperexponentialOf(mean, cv),
		LognormalOf(mean, cv/100), WeibullOf(mean, cv/10), ParetoOf(mean, more, cv/10), EmpiricalOf(mean, more, mean),
	}).Draw(t, label+" kind")
}

func anySize(t *rapid.T, label string) Size {
	if rapid.Bool().Draw(t, label+" per second") {
		return Size{PerSecond: rapid.Int64Range(0, 1e15).Draw(t, label)}
	}
	return Size{Bytes: anyDist(t, label)}
}

func anyWorkload(t *rapid.T) *Workload {
	name := rapid.StringMatching(`[A-Za-z0-9._+-]{1,8}`)
	w := &Workload{}
	if rapid.Bool().Draw(t, "named") {
		w.Name = name.Draw(t, "name")
	}
	for _, n := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "applications") {
		a := App{
			Name: n, Nodes: rapid.IntRange(1, 1000).Draw(t, "nodes"), PerNode: rapid.IntRange(0, 64).Draw(t, "processes"),
			Iterations: rapid.Int64Range(0, 1e18).Draw(t, "iterations"), Barrier: rapid.Bool().Draw(t, "barrier"),
			Reuse: rapid.Float64Range(0, 1).Draw(t, "reuse"), Critical: rapid.Bool().Draw(t, "critical"),
		}
		a.Async = !a.Barrier && rapid.Bool().Draw(t, "async")
		for range rapid.IntRange(1, 3).Draw(t, "steps") {
			s := Step{
				CPU: Time{anyDist(t, "cpu")}, GPU: Time{anyDist(t, "gpu")}, In: anySize(t, "upload"), Out: anySize(t, "download"),
			}
			if rapid.Bool().Draw(t, "named kernel") {
				s.Kernel = name.Draw(t, "kernel")
			}
			a.Steps = append(a.Steps, s)
		}
		w.Apps = append(w.Apps, a)
	}
	return w
}

func TestEveryWorkloadReadsBack(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		w := anyWorkload(t)
		text := w.String()
		again, err := Read(strings.NewReader(text), "again")
		if err != nil || !reflect.DeepEqual(again, w) {
			t.Fatalf("%v: reads back as\n%+v\nwant\n%+v\nfrom\n%s", err, again, w, text)
		}
	})
}

func TestReadFileRefusesWhatIsNone(t *testing.T) {
	folder := t.TempDir()
	for path, want := range map[string]string{"/dev/zero": "/dev/zero is a device: name a file", folder: folder + " is a folder: name a file in it"} {
		if _, err := ReadFile(path); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// manySteps is as much as a workload may have in steps: n applications of 1000.
func manySteps(n int) string {
	var b strings.Builder
	b.WriteString("applications:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - name: a%d\n    nodes: 1\n    steps:\n", i)
		for range maxSteps {
			b.WriteString("      - {cpu: 1s, gpu: exponential(2s)}\n")
		}
	}
	return b.String()
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		text := manySteps(n)
		b.Run(fmt.Sprint(n*maxSteps, "-steps"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Read(strings.NewReader(text), "bench"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	var b strings.Builder
	if err := (&Workload{}).Write(&b); err == nil || b.Len() > 0 {
		t.Errorf("wrote %q, %v", b.String(), err)
	}
}

func TestPaper(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes int
		want  string
	}{
		{"W1", 24, "H 24 750ms 2.25s"},
		{"w2", 24, "H 18 750ms 2.25s, L 6 2.25s 750ms"},
		{"W3", 24, "H 12 750ms 2.25s, L 12 2.25s 750ms"},
		{"W4", 12, "H 3 750ms 2.25s, L 9 2.25s 750ms"},
		{"W4", 96, "H 24 750ms 2.25s, L 72 2.25s 750ms"},
		{"W5", 7, "L 7 2.25s 750ms"},
		{"W6", 24, "H 24 750ms 2.25s"},
		{"W9", 24, "H 6 750ms 2.25s, L 18 2.625s 325ms"},
		{"W10", 24, "L 24 2.625s 325ms"},
		{"W13", 2, "H 1 750ms 2.25s, L 1 1.815s 1.125s"},
		{"W15", 24, "L 24 1.815s 1.125s"},
	} {
		w, err := Paper(c.name, c.nodes)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var parts []string
		for _, a := range w.Apps {
			s := a.Steps[0]
			if s.CPU.Kind != Exponential || s.GPU.Kind != Exponential || s.In.PerSecond != 10e6 || s.Out.PerSecond != 5e6 || len(a.Steps) != 1 || a.PerNode != 0 {
				t.Errorf("%s: %+v", c.name, a)
			}
			parts = append(parts, fmt.Sprint(a.Name, " ", a.Nodes, " ", time.Duration(s.CPU.Mean), " ", time.Duration(s.GPU.Mean)))
		}
		if got := strings.Join(parts, ", "); got != c.want {
			t.Errorf("%s on %d nodes: %s, want %s", c.name, c.nodes, got, c.want)
		}
	}
	for _, c := range []struct {
		name  string
		nodes int
		want  string
	}{
		{"W4", 10, "W4 gives 6 of 24 nodes to H: take a multiple of 4 nodes, not 10"},
		{"W8", 3, "W8 gives 12 of 24 nodes to H: take a multiple of 2 nodes, not 3"},
		{"W1", 0, "W1 gives 24 of 24 nodes to H: take a multiple of 1 nodes, not 0"},
		{"W16", 24, `the paper has no workload "W16": it has W1 to W15`},
	} {
		if _, err := Paper(c.name, c.nodes); err == nil || err.Error() != c.want {
			t.Errorf("%s on %d nodes: got %v, want %s", c.name, c.nodes, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	load := func(spec string) *Workload {
		t.Helper()
		w, err := Load(spec, 24)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		return w
	}
	w := load("w4:ratio=0.5:reuse=0.9:barrier=yes:critical=L:iterations=5:processes=3:cv=0")
	for i, a := range w.Apps {
		s := a.Steps[0]
		if s.In.PerSecond != 500e3 || s.Out.PerSecond != 250e3 || a.Reuse != 0.9 || !a.Barrier || a.Critical != (i == 1) || a.Iterations != 5 || a.PerNode != 3 ||
			s.CPU.Kind != Constant || s.GPU.Kind != Constant {
			t.Errorf("%+v", a)
		}
	}
	if d := load("W5:cv=2:async=yes").Apps[0]; !d.Async || d.Steps[0].GPU.Dist != LognormalOf(750*time.Millisecond, 2) {
		t.Errorf("%+v", d)
	}
	if a := load("W1:critical=L").Apps[0]; a.Critical {
		t.Error("H is critical")
	}
	if !reflect.DeepEqual(load("W9"), mustPaper(t, "W9", 24)) {
		t.Error("W9 is not as the paper has it")
	}
	if a := load("mpi:barrier=no:reuse=0").Apps[0]; a.Barrier || a.Reuse != 0 || len(a.Steps) != 2 {
		t.Errorf("%+v", a)
	}

	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte("applications: [{name: a, nodes: 30, gpu: 1s}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if w, err := Load(path, 30); err != nil || w.Nodes() != 30 {
		t.Errorf("%+v, %v", w, err)
	}
	for spec, want := range map[string]string{
		path:                 path + ": the applications have 30 nodes, and the cluster has 24",
		path + "x":           `there is no file "` + path + `x"`,
		filepath.Dir(path):   filepath.Dir(path) + " is a folder: name a file in it",
		"none.yaml":          `there is no file "none.yaml"`,
		"trhee":              `there is no workload of kernels and no file called "trhee": did you mean three?`,
		"zebrafinch":         `there is no workload of kernels and no file called "zebrafinch": built in are W1, W2,`,
		"W4:ration=5":        `W4: "ration=5" is no setting of it: did you mean "ratio"?`,
		"W4:ratio=10KB":      "W4: ratio=10KB: give the KB for each ms, such as 10",
		"W4:reuse=2":         "W4: reuse=2: give a number from 0 to 1",
		"W4:barrier=maybe":   "W4: barrier=maybe: give yes or no",
		"W4:critical=X":      `W4: critical=X: there is no application "X": give none, or some of H,L`,
		"W4:iterations=-1":   "W4: iterations=-1: give a whole number; 0 is without end",
		"W4:processes=99999": "W4: processes=99999: give a whole number up to 65536; 0 is one a core",
		"W4:cv=x":            "W4: cv=x: give a number from 0 to 100",
		"async:barrier=yes":  "async: application pipeline: it has barriers and launches asynchronously",
	} {
		if _, err := Load(spec, 24); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Load(%q): got %v\nwant %s", spec, err, want)
		}
	}
	if _, err := Load("three", 2); err == nil || err.Error() != "three has 3 applications: take at least as many nodes, not 2" {
		t.Error(err)
	}
}

func TestBuiltInWorkloads(t *testing.T) {
	for _, e := range List() {
		for _, nodes := range []int{24, 48, 10_008} {
			w, err := Load(e.Name, nodes)
			if err != nil {
				t.Errorf("%s on %d nodes: %v", e.Name, nodes, err)
				continue
			}
			if w.Nodes() != nodes || w.Name != e.Name {
				t.Errorf("%s on %d nodes: %s has %d", e.Name, nodes, w.Name, w.Nodes())
			}
			again, err := Read(strings.NewReader(w.String()), e.Name)
			if err != nil || !reflect.DeepEqual(again, w) {
				t.Errorf("%s reads back as %+v, %v", e.Name, again, err)
			}
		}
		// A default said aloud is the same workload, but for those that leave it as it is.
		spec := e.Name
		for _, o := range e.Options {
			spec += ":" + o.Name + "=" + o.Default
		}
		plain, _ := Load(e.Name, 24)
		if spelt, err := Load(spec, 24); err != nil || !reflect.DeepEqual(spelt, plain) {
			t.Errorf("%s: %+v, %v", spec, spelt, err)
		}
		if e.Summary == "" || len(e.Options) == 0 {
			t.Errorf("%s does not say what it is", e.Name)
		}
	}
}

func FuzzRead(f *testing.F) {
	example, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("applications: [{name: a, nodes: 1, gpu: \"uniform(1ms, 5ms)\"}]")
	f.Add("applications:\n- name: \"n\"\n  nodes: 1\n  steps: [{gpu: 1}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Read(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		if err := w.Validate(0); err != nil {
			t.Fatalf("a workload was read that makes no sense: %v", err)
		}
		again, err := Read(strings.NewReader(w.String()), "again")
		if err != nil || !reflect.DeepEqual(again, w) {
			t.Fatalf("%v: reads back as %+v\nwant %+v\nfrom\n%s", err, again, w, w)
		}
	})
}
