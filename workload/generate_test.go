package workload

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model"
)

func generate(t testing.TB, name string, seed uint64, settings ...string) *Workload {
	t.Helper()
	given := make(map[string]string)
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		given[key] = value
	}
	wl, err := Generate(name, given, seed)
	if err != nil {
		t.Fatal(err)
	}
	return wl
}

func written(t *testing.T, wl *Workload) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, wl, SWF); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGeneratorsRepeat(t *testing.T) {
	small := map[string][]string{"tsubame": {"days=7"}, "general": {"jobs=2000", "traffic=yes"}, "congested": nil, "rgpu": nil, "aucsched": nil}
	for _, g := range Generators() {
		t.Run(g.Name, func(t *testing.T) {
			settings := small[g.Name]
			wl := generate(t, g.Name, 1, settings...)
			checkInvariants(t, wl)
			checkRoundTrips(t, wl)
			one := written(t, wl)
			if !bytes.Equal(one, written(t, generate(t, g.Name, 1, settings...))) {
				t.Error("the same seed gave other jobs")
			}
			if bytes.Equal(dropHeader(one), dropHeader(written(t, generate(t, g.Name, 2, settings...)))) {
				t.Error("another seed gave the same jobs")
			}
			for _, p := range g.Parameters {
				if p.Help == "" || p.Default == "" {
					t.Errorf("parameter %s: help %q, default %q", p.Name, p.Help, p.Default)
				}
			}
		})
	}
}

// TestGeneratedBytes fixes the output: it must be the same on every machine, and
// a change of it changes every result that was made from it.
func TestGeneratedBytes(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings []string
		want     string
	}{
		{"tsubame", []string{"days=30"}, "715e64ee87e0df39"},
		{"general", []string{"run=lognormal", "max_run=12h", "size=powers", "contiguous=50"}, "745eb116876d13ce"},
		{"congested", []string{"spread=1h"}, "60c0795077d780b2"},
		{"rgpu", []string{"hours=8", "counts=drawn", "delay=2", "estimates=1.5"}, "a14734e67caecc5b"},
		{"rgpu", nil, "bb33a932daaa1cb8"},
		{"aucsched", []string{"contiguous=50"}, "2e38c2732ab17991"},
		{"aucsched", []string{"nodes=1024", "workload=IV", "remote=spread", "estimates=2", "priority=size"}, "31e2542b9aa7576e"},
	} {
		got := fmt.Sprintf("%x", sha256.Sum256(written(t, generate(t, c.name, 42, c.settings...))))
		if got[:16] != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got[:16], c.want)
		}
	}
}

func within(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: got %v, want %v within %v%%", what, got, want, 100*tolerance)
	}
}

func TestGeneralLoad(t *testing.T) {
	for _, c := range []struct {
		settings []string
		load     func(Load) float64
	}{
		{[]string{"load_of=cores"}, func(l Load) float64 { return l.Cores }},
		{[]string{"load_of=gpus"}, func(l Load) float64 { return l.GPUs }},
		{[]string{"load_of=nodes", "size=powers"}, func(l Load) float64 { return l.Nodes }},
		{[]string{"arrival=fixed", "run=fixed"}, func(l Load) float64 { return max(l.Cores, l.GPUs) }},
		{[]string{"run=lognormal", "sigma=1.5", "max_run=1d"}, func(l Load) float64 { return max(l.Cores, l.GPUs) }},
		{[]string{"run=uniform", "gpu_mix=0:0:1", "max_nodes=3"}, func(l Load) float64 { return max(l.Cores, l.GPUs) }},
	} {
		settings := append(c.settings, "jobs=50000", "nodes=100", "load=0.8")
		s := Describe(generate(t, "general", 3, settings...))
		within(t, strings.Join(settings, " "), c.load(s.Load(100, 800, 200)), 0.8, 0.03)
		within(t, "mean run time", s.Run.Mean, 3600, 0.03)
	}
}

func TestGeneralShape(t *testing.T) {
	s := Describe(generate(t, "general", 4, "jobs=50000", "contiguous=30"))
	for i, share := range []float64{0.5, 0.35, 0.15} {
		within(t, fmt.Sprint(i, " GPUs"), s.GPUMix[i].Share, share, 0.05)
	}
	if s.Nodes.Min != 1 || s.Nodes.Max != 16 || s.Accuracy.Max > 1 {
		t.Errorf("nodes %v to %v, run over wall time up to %v", s.Nodes.Min, s.Nodes.Max, s.Accuracy.Max)
	}
	within(t, "mean nodes", s.Nodes.Mean, 8.5, 0.02)
	within(t, "contiguous jobs", float64(s.Contiguous), 50000*0.3*15/16, 0.05)
	within(t, "interarrival", Describe(generate(t, "general", 4, "jobs=50000", "interarrival=5")).Interarrival.Mean, 5, 0.02)
}

func TestTSUBAMEYear(t *testing.T) {
	wl := generate(t, "tsubame", 1)
	s := Describe(wl)
	within(t, "load", s.Load(480, 480*8, 480*3).Nodes, 0.69, 0.05)
	within(t, "mean run time", s.Run.Mean, 15150, 0.02)
	if s.Run.Max > 86400 || s.Nodes.Max > 16 || s.Nodes.Median != 1 {
		t.Errorf("run up to %v, nodes up to %v, median %v", s.Run.Max, s.Nodes.Max, s.Nodes.Median)
	}
	within(t, "span", s.Span, 365*86400, 0.01)
	within(t, "noon over midnight", float64(s.ByHour[12])/float64(s.ByHour[0]), 3, 0.2)
	within(t, "Monday over Sunday", float64(s.ByWeekday[0])/float64(s.ByWeekday[6]), 2, 0.2)
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		r := &j.Request
		if r.CoresPerNode > 8 || r.GPUs > 3 || r.GPUs > r.CoresPerNode || r.Memory > 22e9 {
			t.Fatalf("job %s asks for more than a node has: %+v", j.ID, r)
		}
		if x := j.Traffic; x.NetBytes != r.Memory || x.GPUBytes != r.Memory || x.NetConns < 100 || x.GPUConns > 100_000 {
			t.Fatalf("job %s: traffic %+v is not that of Table 1", j.ID, x)
		}
		if j.WallTime < j.Run {
			t.Fatalf("job %s would be killed: run %v, wall time %v", j.ID, j.Run, j.WallTime)
		}
	}
}

// Users who ask for the whole node change their requests, and nothing else.
func TestTSUBAMEWholeNodes(t *testing.T) {
	some, more := generate(t, "tsubame", 1, "days=60", "whole_nodes=0"), generate(t, "tsubame", 1, "days=60", "whole_nodes=75")
	whole := 0
	for i := range some.Jobs {
		a, b := some.Jobs[i], more.Jobs[i]
		if r := b.Request; r.GPUs == 3 && r.CoresPerNode == 8 && r.Memory == 22e9 {
			whole++
			a.Request.GPUs, a.Request.CoresPerNode, a.Request.Memory = 3, 8, 22e9
			a.Traffic.NetBytes, a.Traffic.GPUBytes = 22e9, 22e9
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("got %+v\nwant %+v", b, a)
		}
	}
	within(t, "whole nodes", float64(whole)/float64(len(some.Jobs)), 0.75, 0.05)
}

func TestCongestedQueue(t *testing.T) {
	wl := generate(t, "congested", 1, "jobs=3000")
	s := Describe(wl)
	if s.Span != 0 || s.Run.Min < 600 || s.Run.Max > 7200 || s.Nodes.Max != 4 {
		t.Errorf("span %v, run %v to %v, nodes up to %v", s.Span, s.Run.Min, s.Run.Max, s.Nodes.Max)
	}
	for i := range 3 {
		within(t, fmt.Sprint(i+1, " GPUs"), s.GPUMix[i].Share, 1./3, 0.1)
	}
	for i := range wl.Jobs { // three jobs of one GPU fit on a node
		if r := wl.Jobs[i].Request; r.CoresPerNode != r.GPUs || r.Memory > int64(r.GPUs)*22e9/3 {
			t.Fatalf("got %+v", r)
		}
	}
}

func TestGenerateErrors(t *testing.T) {
	for _, c := range []struct {
		name, key, value, want string
	}{
		{"tsubami", "", "", `did you mean "tsubame"`},
		{"general", "job", "1", `did you mean "jobs"`},
		{"general", "jobs", "many", "jobs=many: give a whole number"},
		{"general", "jobs", "0", "from 1 to"},
		{"general", "load", "NaN", "give a number"},
		{"general", "run", "gauss", "use one of exponential"},
		{"general", "mean_run", "soon", "mean_run=soon"},
		{"general", "max_run", "1h", "below 0.9 of max_run"},
		{"general", "gpu_mix", "0:0", "above 0"},
		{"general", "cores", "1,x", "cores=1,x"},
		{"general", "load_of", "gpus ", ""},
		{"general", "memory_per_core", "x", "size"},
		{"congested", "min_run", "3h", "must not be below min_run"},
		{"tsubame", "load", "100000", "load"},
		{"tsubame", "memory", "1GB,lots", "size"},
		{"tsubame", "cycle", "often", "neither yes nor no"},
	} {
		_, err := Generate(c.name, map[string]string{c.key: c.value}, 1)
		if c.key == "" {
			_, err = Generate(c.name, nil, 1)
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s %s=%s: %v", c.name, c.key, c.value, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s=%s: got %v, want ...%s...", c.name, c.key, c.value, err, c.want)
		}
	}
	if _, err := Generate("general", map[string]string{"gpu_mix": "0:1", "node_gpus": "0", "load_of": "gpus"}, 1); err == nil {
		t.Error("a load of GPUs that are not there was taken")
	}
}

func TestRoundWallTime(t *testing.T) {
	for _, c := range []struct {
		run    time.Duration
		margin float64
		want   time.Duration
	}{
		{time.Second, 1, 10 * time.Minute},
		{time.Hour, 1, time.Hour},
		{time.Hour, 1.1, 2 * time.Hour},
		{20 * 24 * time.Hour, 1.01, 21 * 24 * time.Hour},
	} {
		if got := roundWallTime(c.run, c.margin); got != c.want {
			t.Errorf("%v x %v: got %v, want %v", c.run, c.margin, got, c.want)
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		wl := generate(b, "general", 1, "jobs=1000000", "load=0.95")
		if len(wl.Jobs) != 1_000_000 {
			b.Fatal(len(wl.Jobs))
		}
	}
	b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// swfLog is a log of n jobs as text, like those of the Parallel Workloads Archive.
func swfLog(b *testing.B, n int) []byte {
	wl := generate(b, "general", 1, fmt.Sprint("jobs=", n), "gpu_mix=1")
	for i := range wl.Jobs {
		r := &wl.Jobs[i].Request
		*r = model.Request{Cores: r.TotalCores()}
		wl.Jobs[i].User = strings.TrimPrefix(wl.Jobs[i].User, "u")
		wl.Jobs[i].Logged = &model.Logged{Wait: time.Duration(i) * time.Second, CPUTime: wl.Jobs[i].Run, UsedMemory: 1 << 20,
			Status: model.StatusCompleted, Executable: "3", Partition: "1"}
	}
	var out bytes.Buffer
	if err := Write(&out, wl, SWF); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func BenchmarkReadSWF(b *testing.B) {
	for _, opt := range []struct {
		name string
		ReadOptions
	}{{"all", ReadOptions{}}, {"without-logged", ReadOptions{SkipLogged: true}}} {
		b.Run(opt.name, func(b *testing.B) {
			const jobs = 200_000
			text := swfLog(b, jobs)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				wl, _, err := Read(bytes.NewReader(text), "x.swf", opt.ReadOptions)
				if err != nil || len(wl.Jobs) != jobs {
					b.Fatal(err)
				}
			}
			b.ReportMetric(jobs*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

func BenchmarkWriteSWF(b *testing.B) {
	wl := generate(b, "general", 1, "jobs=100000")
	for b.Loop() {
		var out bytes.Buffer
		if err := Write(&out, wl, SWF); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out.Len()))
	}
}
