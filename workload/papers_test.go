package workload

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
)

// TestRGPULaunchLines: the lines of Tables III and IV come out of the
// applications' own memory and what driver and server take, to the megabyte.
func TestRGPULaunchLines(t *testing.T) {
	remote := model.Remote{DriverMemory: 10 * megabyte, ClientMemory: 63 * megabyte}
	for _, c := range []struct {
		launcher
		want []string
	}{
		{launcher{"cuda", true, 8, remote}, []string{
			"-N1 -n1 -c6 --gres=gpu:1", "-N5 -n5 -c1 --gres=gpu:1", "-N4 -n4 -c1 --gres=gpu:1", "-N2 -n2 -c12"}},
		{launcher{"rcuda", true, 8, remote}, []string{
			"-N1 -n1 -c6 --gres=rgpu:1:1686M", "-N5 -n5 -c1 --gres=rgpu:5:3275M", "-n4 -c1 --gres=rgpu:4:163M", "-N2 -n2 -c12"}},
		{launcher{"cuda", false, 8, remote}, []string{
			"-n1 -c6 --gres=gpu:1", "-n5 -c1 --gres=gpu:1", "-N4 -n4 -c1 --gres=gpu:1", "-N2 -n2 -c12"}},
		{launcher{"rcuda", false, 6, remote}, []string{
			"-n1 -c6 --gres=rgpu:1:1686M", "-n5 -c1 --gres=rgpu:5:3275M", "-n4 -c1 --gres=rgpu:4:163M", "-N2 -n2 -c12"}},
		{launcher{"rcuda", false, 4, remote}, []string{
			"-n1 -c6 --gres=rgpu:1:1686M", "-n5 -c1 --gres=rgpu:4:3275M", "-n4 -c1 --gres=rgpu:4:163M", "-N2 -n2 -c12"}},
		{launcher{"exclusive", false, 8, remote}, []string{
			"-n1 -c6 --rcuda-mode=excl --gres=rgpu:1", "-n5 -c1 --rcuda-mode=excl --gres=rgpu:5",
			"-n4 -c1 --rcuda-mode=excl --gres=rgpu:4", "-N2 -n2 -c12"}},
	} {
		var got []string
		for i := range applications {
			got = append(got, c.line(&applications[i]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q\nwant %q", got, c.want)
		}
	}
}

func howMany(wl *Workload, so func(*model.Job) bool) int {
	n := 0
	for i := range wl.Jobs {
		if so(&wl.Jobs[i]) {
			n++
		}
	}
	return n
}

func TestRGPUCounts(t *testing.T) {
	for hours, jobs := range map[int]int{2: 71, 4: 168, 8: 327} {
		wl := generate(t, "rgpu", 5, fmt.Sprint("hours=", hours))
		if len(wl.Jobs) != jobs {
			t.Errorf("%d hours: %d jobs, the paper has %d", hours, len(wl.Jobs), jobs)
		}
		var sum time.Duration
		for i, a := range applications {
			n := howMany(wl, func(j *model.Job) bool { return j.Logged.Executable == a.name })
			if n != tableII[hours][i] {
				t.Errorf("%d hours: %d of %s, Table II has %d", hours, n, a.name, tableII[hours][i])
			}
			sum += time.Duration(n) * a.run
		}
		// The generator of the paper stops as soon as the time is exceeded.
		if over := sum - time.Duration(hours)*time.Hour; over < 0 || over > 167*time.Second {
			t.Errorf("%d hours: the times of Tables I and II add up to %v", hours, sum)
		}
	}
	wl := generate(t, "rgpu", 5, "hours=200", "counts=drawn")
	for _, a := range applications {
		n := howMany(wl, func(j *model.Job) bool { return j.Logged.Executable == a.name })
		within(t, a.name, float64(n)/float64(len(wl.Jobs)), 0.25, 0.05)
	}
}

// TestRGPUOrder: the order of jobs depends on the seed alone.
func TestRGPUOrder(t *testing.T) {
	names := func(settings ...string) (out []string) {
		wl := generate(t, "rgpu", 9, settings...)
		for i := range wl.Jobs {
			out = append(out, wl.Jobs[i].Logged.Executable)
		}
		return out
	}
	want := names()
	for _, settings := range [][]string{{"gpus=cuda"}, {"gpus=exclusive"}, {"launch=performance"}, {"cluster_gpus=4"}, {"delay=1"}} {
		if !slices.Equal(names(settings...), want) {
			t.Errorf("%v: another order", settings)
		}
	}
}

func TestRGPUJobs(t *testing.T) {
	find := func(name string, settings ...string) model.Job {
		wl := generate(t, "rgpu", 1, settings...)
		return wl.Jobs[slices.IndexFunc(wl.Jobs, func(j model.Job) bool { return j.Logged.Executable == name })]
	}
	if s := Describe(generate(t, "rgpu", 1)); s.RemoteGPUs != 48 || s.SharedGPUs != 48 {
		t.Errorf("%d jobs ask for remote GPUs, %d for shares, 48 do", s.RemoteGPUs, s.SharedGPUs)
	}
	meme := find("MCUDA-MEME")
	want := model.Request{Cores: 4, CoresPerProcess: 1, Processes: 4, Remote: &model.RemoteGPUs{Count: 4, Memory: 163 * megabyte, Shared: true}}
	if !reflect.DeepEqual(meme.Request, want) || meme.Run != 165*time.Second || meme.Traffic != (model.Traffic{}) || meme.WallTime != 0 {
		t.Errorf("got %s", dump(meme))
	}
	within(t, "twelve on the same GPUs", float64(12*165)*meme.GPULoad(), 1884, 0.001)
	if g := find("GROMACS"); g.Intensity != 0 || g.Request.TotalGPUs() != 0 || g.Request.CoresPerNode != 12 {
		t.Errorf("got %s", dump(g))
	}
	if l := find("LAMMPS", "cluster_gpus=4"); l.Request.Remote.Count != 4 || l.Request.Remote.Memory != 3275*megabyte {
		t.Errorf("got %s", dump(l))
	}
	if l := find("LAMMPS", "gpus=exclusive", "estimates=2"); l.Request.Remote.Shared || l.Request.Remote.Memory != 0 || l.WallTime != 30*time.Second {
		t.Errorf("got %s", dump(l))
	}
	if l := find("LAMMPS", "gpus=cuda", "lammps_on_one_gpu=40"); l.Run != 40*time.Second || l.Request.Nodes != 0 || l.Request.GPUs != 1 {
		t.Errorf("got %s", dump(l))
	}
	if l := find("LAMMPS", "gpus=cuda", "lammps_on_one_gpu=40", "launch=performance"); l.Run != 15*time.Second || l.Request.Nodes != 5 {
		t.Errorf("got %s", dump(l))
	}
	wl := generate(t, "rgpu", 1, "delay=3")
	n := len(wl.Jobs)
	if first, last := wl.Jobs[1].Submit, wl.Jobs[n-1].Submit-wl.Jobs[n-2].Submit; first > 100*time.Millisecond || last != 3*time.Second {
		t.Errorf("delays from %v to %v", first, last)
	}
}

// kindOf is the column of Table 4.
func kindOf(r *model.Request) int {
	if r.Nodes == 0 {
		return 0
	}
	return 1 + r.GPUs
}

func TestAUCSCHEDWorkloads(t *testing.T) {
	shares := map[string][]float64{
		"I": {1, 0, 0, 0}, "II": {0, 1, 0, 0}, "III": {0.5, 0.5, 0, 0}, "IV": {0.4, 0.4, 0.2, 0}, "V": {1. / 3, 1. / 3, 1. / 6, 1. / 6},
	}
	for name, want := range shares {
		wl := generate(t, "aucsched", 1, "workload="+name, "hours=40", "contiguous=50")
		var kinds [4]int
		contiguous, coreSeconds := 0, 0.0
		perNode := map[[2]int]bool{}
		for i := range wl.Jobs {
			j := &wl.Jobs[i]
			r := &j.Request
			kinds[kindOf(r)]++
			if r.Contiguous {
				contiguous++
			}
			cores := r.TotalCores()
			coreSeconds += j.Run.Seconds() * float64(cores)
			if r.Nodes > 128 || cores > 64 || cores < 8 || cores%8 != 0 || j.Run < time.Minute || j.Run > 10*time.Minute ||
				j.Run%time.Second != 0 || j.Submit != 0 || j.WallTime != 0 || j.Priority != 0 {
				t.Fatalf("%s: got %s", name, dump(j))
			}
			if r.Nodes > 0 {
				perNode[[2]int{r.GPUs, r.CoresPerNode}] = true
			}
		}
		for k, share := range want {
			within(t, fmt.Sprint(name, " kind ", k), float64(kinds[k])/float64(len(wl.Jobs))+1, share+1, 0.03)
		}
		within(t, name+" contiguous", float64(contiguous)/float64(len(wl.Jobs)), 0.5, 0.1)
		within(t, name+" theoretical run time", coreSeconds/(128*8), 40*3600, 0.005)
		if name == "V" && !reflect.DeepEqual(perNode, map[[2]int]bool{{0, 4}: true, {0, 8}: true, {1, 1}: true, {1, 2}: true, {2, 2}: true, {2, 4}: true}) {
			t.Errorf("GPUs and cores a node: got %v", perNode)
		}
	}
}

// TestAUCSCHEDVersions: versions of a workload differ in what they are named after
// and in nothing else.
func TestAUCSCHEDVersions(t *testing.T) {
	base := generate(t, "aucsched", 3)
	for _, c := range []struct {
		setting string
		undo    func(j, was *model.Job)
	}{
		{"contiguous=100", func(j, _ *model.Job) {
			if !j.Request.Contiguous {
				t.Fatal("a job is not contiguous")
			}
			j.Request.Contiguous = false
		}},
		{"contiguous=50", func(j, _ *model.Job) { j.Request.Contiguous = false }},
		{"priority=size", func(j, _ *model.Job) {
			if j.Priority != int64(j.Request.TotalCores()) {
				t.Fatalf("priority %d of %d cores", j.Priority, j.Request.TotalCores())
			}
			j.Priority = 0
		}},
		{"estimates=3", func(j, _ *model.Job) {
			if j.WallTime != 3*j.Run {
				t.Fatalf("wall time %v, run %v", j.WallTime, j.Run)
			}
			j.WallTime = 0
		}},
		{"remote=yes", func(j, was *model.Job) {
			if gpus := was.Request.GPUs; gpus > 0 {
				if *j.Request.Remote != (model.RemoteGPUs{Count: gpus * j.Request.Nodes}) || j.Request.GPUs != 0 {
					t.Fatalf("got %+v", j.Request)
				}
				j.Request.Remote, j.Request.GPUs = nil, gpus
			}
		}},
		{"remote=spread", func(j, was *model.Job) {
			if was.Request.GPUs > 0 {
				if j.Request.Remote.Count != was.Request.TotalGPUs() || j.Request.Nodes != 0 || j.Request.TotalCores() != was.Request.TotalCores() {
					t.Fatalf("got %+v", j.Request)
				}
				j.Request = was.Request
			}
		}},
		{"alternatives=100", func(j, was *model.Job) {
			if (len(j.Alternatives) == 1) != (was.Request.GPUs > 0) {
				t.Fatalf("got %s", dump(j))
			}
			for _, a := range j.Alternatives {
				if !reflect.DeepEqual(a, model.Request{Cores: was.Request.TotalCores(), Run: 4 * was.Run}) {
					t.Fatalf("got %+v", a)
				}
			}
			j.Alternatives = nil
		}},
	} {
		wl := generate(t, "aucsched", 3, c.setting)
		if len(wl.Jobs) != len(base.Jobs) {
			t.Fatalf("%s: %d jobs, was %d", c.setting, len(wl.Jobs), len(base.Jobs))
		}
		for i := range wl.Jobs {
			j := wl.Jobs[i]
			c.undo(&j, &base.Jobs[i])
			if !reflect.DeepEqual(j, base.Jobs[i]) {
				t.Fatalf("%s: got %s\nwas %s", c.setting, dump(j), dump(base.Jobs[i]))
			}
		}
	}
	checkRoundTrips(t, generate(t, "aucsched", 3, "alternatives=50", "estimates=2"))
	half := generate(t, "aucsched", 3, "hours=40", "alternatives=50")
	gpuJobs := howMany(half, func(j *model.Job) bool { return j.Request.GPUs > 0 })
	within(t, "alternatives", float64(howMany(half, func(j *model.Job) bool { return len(j.Alternatives) > 0 }))/float64(gpuJobs), 0.5, 0.1)
}

func TestPaperGeneratorErrors(t *testing.T) {
	for _, c := range []struct{ name, settings, want string }{
		{"rgpu", "hours=3", "2, 4 and 8"},
		{"rgpu", "hours=2.5", "2, 4 and 8"},
		{"rgpu", "gpus=opencl", "use one of cuda"},
		{"rgpu", "gpus=cuda cluster_gpus=4 launch=performance", "LAMMPS runs on 5 nodes"},
		{"rgpu", "estimates=0.5", "use exact, or a number from 1"},
		{"rgpu", "meme_intensity=2", "give a number"},
		{"aucsched", "workload=VI", "use one of I, II"},
		{"aucsched", "nodes=1", "up to 4 nodes"},
		{"aucsched", "cores_per_node=3", "divisors of 8"},
		{"aucsched", "cores_per_gpu=3", "must divide 8"},
		{"aucsched", "max_cores=4", "multiples of 8"},
		{"aucsched", "max_cores=1025", "from 0 to 1024"},
		{"aucsched", "min_run=700", "not be below min_run"},
		{"aucsched", "estimates=never", "use exact"},
	} {
		given := map[string]string{}
		for _, s := range strings.Fields(c.settings) {
			key, value, _ := strings.Cut(s, "=")
			given[key] = value
		}
		if _, err := Generate(c.name, given, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want ...%s...", c.name, c.settings, err, c.want)
		}
	}
}
