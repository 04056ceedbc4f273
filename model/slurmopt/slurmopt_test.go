package slurmopt

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/model"
)

const mib = 1 << 20

func spread(tasks, cores int) model.Request {
	return model.Request{Cores: tasks * cores, CoresPerProcess: cores, Processes: tasks}
}

func onNodes(nodes, tasks, coresPerNode int) model.Request {
	return model.Request{Nodes: nodes, Processes: tasks, CoresPerNode: coresPerNode}
}

func with(r model.Request, change func(*model.Request)) model.Request {
	change(&r)
	return r
}

func gpus(r model.Request, n int) model.Request { r.GPUs = n; return r }

func shared(r model.Request, count int, memory int64) model.Request {
	r.Remote = &model.RemoteGPUs{Count: count, Memory: memory, Shared: true}
	return r
}

func whole(r model.Request, count int, memory int64) model.Request {
	r.Remote = &model.RemoteGPUs{Count: count, Memory: memory}
	return r
}

// TestPaperLaunchLines has every line of Tables III and IV of the paper on
// Slurm with rCUDA, and the srun lines of its section III.
func TestPaperLaunchLines(t *testing.T) {
	for line, want := range map[string]model.Request{
		// Table III, with CUDA and with rCUDA.
		"-N1 -n1 -c6 --gres=gpu:1":        gpus(onNodes(1, 1, 6), 1),
		"-N1 -n1 -c6 --gres=rgpu:1:1686M": shared(onNodes(1, 1, 6), 1, 1686*mib),
		"-N5 -n5 -c1 --gres=gpu:1":        gpus(onNodes(5, 5, 1), 1),
		"-N5 -n5 -c1 --gres=rgpu:5:3275M": shared(onNodes(5, 5, 1), 5, 3275*mib),
		"-N4 -n4 -c1 --gres=gpu:1":        gpus(onNodes(4, 4, 1), 1),
		"-n4 -c1 --gres=rgpu:4:163M":      shared(spread(4, 1), 4, 163*mib),
		"-N2 -n2 -c12":                    onNodes(2, 2, 12),
		// Table IV, where it differs.
		"-n1 -c6 --gres=gpu:1":        gpus(spread(1, 6), 1),
		"-n1 -c6 --gres=rgpu:1:1686M": shared(spread(1, 6), 1, 1686*mib),
		"-n5 -c1 --gres=gpu:1":        gpus(spread(5, 1), 1),
		"-n5 -c1 --gres=rgpu:5:3275M": shared(spread(5, 1), 5, 3275*mib),
		"-n5 -c1 --gres=rgpu:4:3275M": shared(spread(5, 1), 4, 3275*mib),
		// Section III.
		"srun -N1 --gres=rgpu:4:1G job.sh": shared(onNodes(1, 1, 1), 4, 1024*mib),
		`srun -w "node3" --gres=rgpu:4:1G job.sh`: with(shared(onNodes(1, 1, 1), 4, 1024*mib), func(r *model.Request) {
			r.NodeList = []string{"node3"}
		}),
		"srun --rcuda-mode=excl --gres=rgpu:4 job.sh": whole(spread(1, 1), 4, 0),
	} {
		o, err := ParseLine(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !reflect.DeepEqual(o.Request, want) || len(o.Notes) > 0 {
			t.Errorf("%s\ngot  %+v, notes %q\nwant %+v", line, o.Request, o.Notes, want)
		}
		if strings.HasPrefix(line, "srun") && (o.Tool != "srun" || !reflect.DeepEqual(o.Command, []string{"job.sh"})) {
			t.Errorf("%s: tool %q, command %q", line, o.Tool, o.Command)
		}
	}
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		line string
		want model.Request
	}{
		// How options may be written.
		{"", spread(1, 1)},
		{"-N 2", onNodes(2, 2, 1)},
		{"--nodes=2", onNodes(2, 2, 1)},
		{"--nodes 2", onNodes(2, 2, 1)},
		{"--ntasks 3 --cpus-per-task 2", spread(3, 2)},
		{"-vvQn3 -c2", spread(3, 2)},
		{"--contig --cpus-per-t=2", with(spread(1, 2), func(r *model.Request) { r.Contiguous = true })},
		{"-n 1 -n 2", spread(2, 1)},
		{"-n2 -- -n 4", spread(2, 1)},
		{"-n2 a.out -n 4", spread(2, 1)},
		{"-o out.%j -e err -D /tmp --mail-type=END --export=ALL -J x -n2", spread(2, 1)},
		{"srun -W 5 -l --mpi=pmix -K -n2 a", spread(2, 1)},
		{"sbatch -W -n2 a", spread(2, 1)},

		// Nodes, tasks and cores.
		{"-N2 -n5", onNodes(2, 5, 3)},
		{"-N2 -n5 -c4", onNodes(2, 5, 12)},
		{"-N3 --ntasks-per-node=4 -c2", onNodes(3, 12, 8)},
		{"--tasks-per-node=4", onNodes(1, 4, 4)},
		{"-n10 --ntasks-per-node=4", onNodes(3, 10, 4)},
		{"-N4 -n10 --ntasks-per-node=4", onNodes(4, 10, 4)},
		{"-N2 -n2 --ntasks-per-node=4 -c2", onNodes(2, 2, 8)},
		{"-N1 -n1 --ntasks-per-node=4", onNodes(1, 1, 1)},
		{"-N1k", onNodes(1024, 1024, 1)},
		{"-N2-2", onNodes(2, 2, 1)},
		{"-n7 -c3", spread(7, 3)},

		// Memory.
		{"--mem=100", with(spread(1, 1), func(r *model.Request) { r.Memory = 100 * mib })},
		{"--mem=3k", with(spread(1, 1), func(r *model.Request) { r.Memory = mib })},
		{"--mem=2GB", with(spread(1, 1), func(r *model.Request) { r.Memory = 2 << 30 })},
		{"--mem-per-cpu=1T", with(spread(1, 1), func(r *model.Request) { r.MemoryPerCore = 1 << 40 })},

		// GPUs.
		{"-N2 --gres=gpu", gpus(onNodes(2, 2, 1), 1)},
		{"--gres=gpu:k20", with(spread(1, 1), func(r *model.Request) { r.GPUs, r.GPUType = 1, "k20" })},
		{"--gres=gpu:2080ti:3", with(spread(1, 1), func(r *model.Request) { r.GPUs, r.GPUType = 3, "2080ti" })},
		{"--gres=gpu:2,rgpu:4", gpus(whole(spread(1, 1), 4, 0), 2)},
		{"--gres=gpu:2 --gres=none", spread(1, 1)},
		{"--gpus-per-node=a100:4 -N2", with(onNodes(2, 2, 1), func(r *model.Request) { r.GPUs, r.GPUType = 4, "a100" })},
		{"-N4 -G8", gpus(onNodes(4, 4, 1), 2)},
		{"--gpus=3", gpus(spread(1, 1), 3)},
		{"-G0 --gres=gpu:0,rgpu:0", spread(1, 1)},
		{"--gpus-per-node=k20", with(spread(1, 1), func(r *model.Request) { r.GPUs, r.GPUType = 1, "k20" })},
		{"-N2 --ntasks-per-node=3 --gpus-per-task=2", gpus(onNodes(2, 6, 3), 6)},
		{"-n4 --gres=gpu:2:1G", with(gpus(spread(4, 1), 2), func(r *model.Request) { r.GPUMemory = 1 << 30 })},
		{"-n4 --gres=gpu:k20:1+:1G", with(gpus(spread(4, 1), 1), func(r *model.Request) { r.GPUMemory, r.MoreGPUs, r.GPUType = 1<<30, true, "k20" })},
		{"--gres=rgpu", whole(spread(1, 1), 1, 0)},
		{"--gres=rgpu:4:512", shared(spread(1, 1), 4, 512*mib)},
		{"--gres=rgpu:k20:4:1G", with(shared(spread(1, 1), 4, 1<<30), func(r *model.Request) { r.GPUType = "k20" })},
		{"--gres=rgpu:4:1G --rcuda-mode=shar", shared(spread(1, 1), 4, 1<<30)},
		{"--gres=rgpu:4:1G --rcuda-mode=excl", whole(spread(1, 1), 4, 1<<30)},

		// Where.
		{"--exclusive", with(onNodes(1, 1, 1), func(r *model.Request) { r.Exclusive = true })},
		{"-N2 --contiguous --exclusive", with(onNodes(2, 2, 1), func(r *model.Request) { r.Contiguous, r.Exclusive = true, true })},
		{"-w n[1-3]", with(onNodes(3, 3, 1), func(r *model.Request) { r.NodeList = []string{"n1", "n2", "n3"} })},
		{"-w n[1-3] -n6 -c2", with(onNodes(3, 6, 4), func(r *model.Request) { r.NodeList = []string{"n1", "n2", "n3"} })},
	} {
		o, err := ParseLine(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if !reflect.DeepEqual(o.Request, c.want) || len(o.Notes) > 0 {
			t.Errorf("%s\ngot  %+v, notes %q\nwant %+v", c.line, o.Request, o.Notes, c.want)
		}
	}
}

// TestNotes has what is taken otherwise than it is written.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		line, note string
		want       model.Request
	}{
		{"-N2-4", "taken as 2", onNodes(2, 2, 1)},
		{"-N4 -n2", "taken as 2", onNodes(2, 2, 1)},
		{"srun -w a,b,c -N2", "the first 2", with(onNodes(2, 2, 1), func(r *model.Request) { r.NodeList = []string{"a", "b"} })},
		{"-w a,b,c -N2-4", "taken as 3", with(onNodes(3, 3, 1), func(r *model.Request) { r.NodeList = []string{"a", "b", "c"} })},
		{"-w n10,n9,n8 -n2", "the first 2", with(onNodes(2, 2, 1), func(r *model.Request) { r.NodeList = []string{"n8", "n9"} })},
		{"-w a,b,c -n1", "the first 1", with(onNodes(1, 1, 1), func(r *model.Request) { r.NodeList = []string{"a"} })},
		{"--exclusive=user", "taken as --exclusive", with(onNodes(1, 1, 1), func(r *model.Request) { r.Exclusive = true })},
	} {
		o, err := ParseLine(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if !reflect.DeepEqual(o.Request, c.want) || len(o.Notes) != 1 || !strings.Contains(o.Notes[0], c.note) {
			t.Errorf("%s: got %+v, notes %q", c.line, o.Request, o.Notes)
		}
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Minute, "90": 90 * time.Minute, "30:00": 30 * time.Minute, "0:30": time.Minute, "10:01": 11 * time.Minute,
		"1:30:00": 90 * time.Minute, "00:00:01": time.Minute, "2-0": 48 * time.Hour, "1-12": 36 * time.Hour, "1-02:03": 26*time.Hour + 3*time.Minute,
		"1-02:03:04": 26*time.Hour + 4*time.Minute, "100:00:00": 100 * time.Hour,
		"2-": 48 * time.Hour, "0": 0, "UNLIMITED": 0, "infinite": 0, "-1": 0,
	} {
		o, err := Parse([]string{"-t", text})
		if err != nil || o.Time != want || o.Unlimited != (want == 0) {
			t.Errorf("%s: got %v, %v, %+v", text, o, err, want)
		}
	}
	for _, text := range []string{"", "x", "1:2:3:4", "-", "-1-2", "1-2:3:4:5", ":", "1:", "1.5", "+3", "1e3", "99999999999999", "9999999999-0"} {
		if o, err := Parse([]string{"-t", text}); err == nil {
			t.Errorf("%q was taken as %v", text, o.Time)
		}
	}
}

func TestAttributes(t *testing.T) {
	o, err := Parse([]string{"/usr/bin/sbatch", "-J", "a b", "-p", "gpu", "--account=phys", "-qlong", "--priority=7", "-x", "n[1-2],m", "-t5", "run.sh", "-n", "9"})
	if err != nil {
		t.Fatal(err)
	}
	want := &Options{Tool: "sbatch", Request: spread(1, 1), Name: "a b", Partition: "gpu", Account: "phys", QOS: "long", Priority: 7,
		Time: 5 * time.Minute, Exclude: []string{"n1", "n2", "m"}, Command: []string{"run.sh", "-n", "9"}}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v", o)
	}
	j := model.Job{ID: "1", User: "u", Queue: "old", Group: "old"}
	o.Apply(&j)
	if j.Queue != "gpu" || j.Group != "phys" || j.Priority != 7 || j.WallTime != 5*time.Minute || j.Validate() != nil {
		t.Errorf("got %+v", j)
	}
	if err := o.Avoid([]string{"m", "n1", "n2", "n3", "n4"}); err != nil || !reflect.DeepEqual(o.Request.NodeList, []string{"n3", "n4"}) {
		t.Errorf("got %v, %v", o.Request.NodeList, err)
	}
	if err := o.Avoid([]string{"n1"}); err == nil {
		t.Error("a node that is not there was excluded")
	}
	if o, err = ParseLine("--wrap 'sleep 5; date'"); err != nil || !reflect.DeepEqual(o.Command, []string{"sh", "-c", "sleep 5; date"}) {
		t.Errorf("got %v, %v", o, err)
	}
}

func TestAvoidRefuses(t *testing.T) {
	for line, all := range map[string][]string{
		"-x n1 -w n1":      {"n1", "n2"},
		"-x n[1-2]":        {"n1", "n2"},
		"-x n1 --or=-wn1 ": {"n1", "n2"},
	} {
		o, err := ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		if o.Avoid(all) == nil {
			t.Errorf("%s on %v was taken", line, all)
		}
	}
}

func TestAlternatives(t *testing.T) {
	o, err := ParseLine(`-N4 --ntasks-per-node=2 --gres=gpu:2 -t 30 --or='-n64 -t 2:00:00 --run 100m' --or="-N2 --gres=gpu:2"`)
	if err != nil {
		t.Fatal(err)
	}
	slow := spread(64, 1)
	slow.WallTime, slow.Run = 2*time.Hour, 100*time.Minute
	if !reflect.DeepEqual(o.Alternatives, []model.Request{slow, gpus(onNodes(2, 2, 1), 2)}) {
		t.Errorf("got %+v", o.Alternatives)
	}
	if o.Time != 30*time.Minute || o.Request.WallTime != 0 {
		t.Errorf("got %v and %v", o.Time, o.Request.WallTime)
	}
}

func TestScripts(t *testing.T) {
	script := `#!/bin/bash
#SBATCH -N 2 --gres=gpu:1   # two of them
#SBATCH --job-name="a # b"
# SBATCH -n 77

#SBATCH --mem=4G
echo hello
#SBATCH -n 99
`
	o, err := ParseScript(script, []string{"/usr/bin/sbatch", "--mem=1G", "-n4", "job.sh", "x"})
	if err != nil {
		t.Fatal(err)
	}
	want := gpus(onNodes(2, 4, 2), 1)
	want.Memory = 1 << 30
	if !reflect.DeepEqual(o.Request, want) || o.Name != "a # b" || !reflect.DeepEqual(o.Command, []string{"job.sh", "x"}) {
		t.Errorf("got %+v", o)
	}
	if o, err = ParseScript("#!x\n#SBATCH --gres=gpu:2\n", []string{"--gres=gpu:1"}); err != nil || o.Request.GPUs != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	for text, place := range map[string][2]int{
		"#!x\n#SBATCH -N1\n#SBATCH -n 0\n":       {3, 12},
		"#!x\n#SBATCH -N1 run\n":                 {2, 13},
		"#!x\n#SBATCHED -N1\n":                   {2, 8},
		"#!x\n#SBATCH --or='-n1\n":               {2, 14},
		"#!x\n\n#SBATCH --mem=1 --mem-per-cpu=1": {3, 17},
		"#SBATCH -N1\n":                          {1, 1},
	} {
		_, err := ParseScript(text, nil)
		var e *Error
		if !errors.As(err, &e) || e.Line != place[0] || e.Column != place[1] {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		line   string
		column int
		want   string
	}{
		{"-n2 --nodez=3", 5, "did you mean --nodes?"},
		{"--gpu=3", 1, "may be any of --gpus, --gpus-per-node"},
		{"--frobnicate", 1, "see the manual of sbatch"},
		{"srun --array=1-3", 6, "--array is no option"},
		{"-N1n2", 1, `"1n2"`},
		{"-n", 1, "-n needs a value: write -n16"},
		{"--ntasks", 1, "write --ntasks=16"},
		{"-n -5", 4, `"-5" is no whole number`},
		{"-n 2147483648", 4, "no whole number"},
		{"-c 2147483647 -n2", 4, "more than any machine has"},
		{"-y", 1, "-y is no option"},
		{"--contiguous=yes", 1, "takes no value"},
		{"-N 4-2", 4, "runs backwards"},
		{"-N 1,3", 4, "list of node counts"},
		{"-N4 -n10 --ntasks-per-node=2", 10, "ask for more nodes"},
		{"-w n1 -N2", 4, "names 1 of 2 nodes"},
		{"-w ./nodes", 4, "node files are not read"},
		{"-w n1,n2 -N1", 4, "name no more"},
		{"--mem=1X", 1, "units are K, M, G and T"},
		{"--mem=1MiB", 1, "units are K, M, G and T"},
		{"--mem=1.5G", 1, "is no size"},
		{"--gpus-per-task=1", 1, "say how many tasks"},
		{"--gres=gpu:2080ti", 1, "no whole number"},
		{"--mem=", 1, "is no size"},
		{"--mem=0", 1, "give a size, or --exclusive"},
		{"--mem=9999999999T", 1, "more than any machine has"},
		{"--gres=gpus:2", 1, "did you mean gpu?"},
		{"--gres=fpga:2", 1, "write gpu:2"},
		{"--gres=gpu:1,gpu:2", 1, "there twice"},
		{"--gres=gpu:1:2", 1, "too many parts"},
		{"--gres=gpu:1:0G", 1, "a share of 0 bytes"},
		{"--gres=gpu:1+", 1, "say how much memory of each"},
		{"--gres=gpu:65", 1, "at most 64"},
		{"--gres=gpu:a:1,rgpu:b:1", 1, "one type"},
		{"--gres=rgpu:-1", 1, "no whole number"},
		{"--gres=rgpu:4:0", 1, "share of 0 bytes"},
		{"--gres=rgpu:4:1G:2", 1, "too many parts"},
		{"--gres=", 1, "empty name"},
		{"--rcuda-mode=excl", 1, "ask for them with --gres=rgpu:4"},
		{"--rcuda-mode=none --gres=rgpu:1", 1, "use excl or shar"},
		{"--gres=rgpu:2 --rcuda-mode=shar", 15, "--gres=rgpu:2:1G"},
		{"--gres=gpu:1 --gpus-per-node=1", 14, "asked for twice"},
		{"-n2 -G2", 5, "say how many nodes with -N"},
		{"-N2 -G3", 5, "divided evenly"},
		{"-n2 --exclusive", 5, "say how many nodes"},
		{"--exclusive=me", 1, "neither user nor mcs"},
		{"--begin=now+1h", 1, "when it may begin"},
		{"-C fast", 4, "not modelled"},
		{"--priority=-1", 1, "no whole number from 1 to 4294967293"},
		{"--priority=auto", 1, "0 for the priority that the scheduler computes"},
		{"--priority=4294967294", 1, "no whole number"},
		{"--run=0", 1, "above 0"},
		{"--or=", 1, "it is empty"},
		{"--or='-n2 x'", 1, "options alone"},
		{"-n1 --or='--priority=2'", 5, "inside --or"},
		{"-n1 --or='--or=-n1'", 5, "inside --or"},
		{"-n1 --or='-n0'", 5, "no whole number"},
		{"--wrap=x y", 10, "has the command already"},
		{"-J 'x", 4, "does not close"},
	} {
		_, err := ParseLine(c.line)
		var e *Error
		if !errors.As(err, &e) || e.Column != c.column || !strings.Contains(e.Reason, c.want) {
			t.Errorf("%s: got %v, want column %d: ...%s...", c.line, err, c.column, c.want)
		}
	}
	_, err := Parse([]string{"srun", "-n", "x"})
	var e *Error
	if !errors.As(err, &e) || e.Word != 2 || e.Column != 0 {
		t.Errorf("got %+v", e)
	}
}

func TestWords(t *testing.T) {
	words, err := Words(` a  'b "c' "d\"e\\f\g" h\ i'j'  ''`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var columns []int
	for _, w := range words {
		got, columns = append(got, w.Text), append(columns, w.Column)
	}
	if !reflect.DeepEqual(got, []string{"a", `b "c`, `d"e\f\g`, "h ij", ""}) || !reflect.DeepEqual(columns, []int{2, 5, 12, 24, 33}) {
		t.Errorf("got %q at %v", got, columns)
	}
}

// checkFormat: what Format writes says the same, and is written the same again.
func checkFormat(t interface {
	Helper()
	Fatalf(string, ...any)
}, o *Options) {
	t.Helper()
	line, err := o.Format()
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	back, err := ParseLine(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	want := *o
	want.Notes = nil // the canonical form states explicitly what the notes were about
	if !reflect.DeepEqual(*back, want) {
		t.Fatalf("%s\ngot  %+v\nwant %+v", line, *back, want)
	}
	if again, err := back.Format(); err != nil || again != line {
		t.Fatalf("got %s, %v, then %s", line, err, again)
	}
}

func TestFormatRoundTrips(t *testing.T) {
	memory := rapid.SampledFrom([]string{"1", "100K", "3275M", "4G", "1T"})
	count := rapid.IntRange(1, 8)
	pieces := map[string]*rapid.Generator[string]{
		"-N": rapid.Map(count, func(n int) string { return string(rune('0' + n)) }),
		"-n": rapid.Map(count, func(n int) string { return string(rune('0' + n)) }),
		"-c": rapid.Map(count, func(n int) string { return string(rune('0' + n)) }),
		"-t": rapid.SampledFrom([]string{"30", "1:30:00", "2-12", "UNLIMITED", "7:07"}),
		"-w": rapid.SampledFrom([]string{"n[01-12]", "a,b,c,d,e,f,g,h", "x[1-3]y[1-3]"}),
		"-J": rapid.SampledFrom([]string{"x", "a b", "it's", `"q"`, "-n"}),
		"-x": rapid.SampledFrom([]string{"m1", "m[1-3,7]"}), "-p": rapid.Just("gpu"), "-A": rapid.Just("phys"), "-q": rapid.Just("long"),
		"--mem": memory, "--mem-per-cpu": memory, "--ntasks-per-node": rapid.SampledFrom([]string{"1", "2", "16"}),
		"--gres":       rapid.SampledFrom([]string{"gpu", "gpu:2", "gpu:2:1G", "gpu:1+:1G", "gpu:k20:1:5M", "gpu:k20:1", "rgpu:4", "rgpu:4:1G", "gpu:1,rgpu:2:163M", "rgpu:v100:3:5M"}),
		"--rcuda-mode": rapid.SampledFrom([]string{"excl", "shar"}), "--gpus": rapid.SampledFrom([]string{"8", "t4:2"}),
		"--priority": rapid.SampledFrom([]string{"0", "7"}), "--run": rapid.SampledFrom([]string{"165", "1.5"}),
		"--or": rapid.SampledFrom([]string{"-n64 -t 2:00:00", "-N2 --gres=gpu:2 --run=9", "-w 'a,b' --exclusive"}),
	}
	names := slices.Sorted(maps.Keys(pieces))
	parsed := 0
	seeds.Check(t, func(t *rapid.T) {
		var argv []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 7, rapid.ID[string]).Draw(t, "options") {
			argv = append(argv, name, pieces[name].Draw(t, name))
		}
		for _, name := range []string{"--contiguous", "--exclusive"} {
			if rapid.Bool().Draw(t, name) {
				argv = append(argv, name)
			}
		}
		if rapid.Bool().Draw(t, "command") {
			argv = append(argv, "--", "sbatch", "-n", "a b")
		}
		o, err := Parse(argv)
		if err != nil {
			return
		}
		parsed++
		checkFormat(t, o)
	})
	if parsed == 0 {
		t.Error("no line was good: the test shows nothing")
	}
}

func TestFormat(t *testing.T) {
	o, err := ParseLine(`srun -N4-8 --ntasks-per-node 2 --gres=gpu:2 -t 90 --or='-n 64 -t 2:00:00' -J "two words" a.out -x`)
	if err != nil {
		t.Fatal(err)
	}
	want := `srun -N 4 -n 8 -c 1 --gres=gpu:2 --time=01:30:00 '--or=-n 64 -c 1 --time=02:00:00' '--job-name=two words' -- a.out -x`
	if got, err := o.Format(); err != nil || got != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	for _, r := range []model.Request{
		{},
		{Nodes: 3, CoresPerNode: 2, Processes: 7},
		{Nodes: 3, CoresPerNode: 4, Processes: 2},
		{Cores: 6, CoresPerProcess: 3, Processes: 6},
		{Cores: 1, Memory: 100},
		{Cores: 1, Memory: 1024, MemoryPerCore: 1024},
		{Nodes: 1, GPUs: 1, GPUMemory: 5},
		{Nodes: 1, GPUs: 1, GPUType: "k 20"},
		{Nodes: 1, NodeList: []string{"a", "b"}},
		{Cores: 1, WallTime: time.Second},
		{Cores: 1, Remote: &model.RemoteGPUs{Count: 1, Memory: 5, Shared: true}},
	} {
		if got, err := FormatRequest(&r); err == nil {
			t.Errorf("%+v was written as %s", r, got)
		}
	}
	if got, err := FormatRequest(&model.Request{Nodes: 2, Cores: 7}); err != nil || got != "-N 2 -n 2 -c 4" {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := FormatRequest(&model.Request{Nodes: 3, CoresPerNode: 4, Processes: 7}); err != nil || got != "-N 3 -n 7 --ntasks-per-node=4 -c 1" {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestTable: no two options of one tool share a spelling.
func TestTable(t *testing.T) {
	for _, tool := range tools {
		long, short := map[string]bool{}, map[byte]bool{}
		for i := range table {
			o := &table[i]
			if !o.of(tool) {
				continue
			}
			if long[o.long] || (o.short != 0 && short[o.short]) {
				t.Errorf("%s: --%s or -%c is there twice", tool, o.long, o.short)
			}
			long[o.long], short[o.short] = true, true
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, line := range []string{
		"-N5 -n5 -c1 --gres=rgpu:5:3275M", `srun -w "node3" --gres=rgpu:4:1G job.sh`, "--rcuda-mode=excl --gres=rgpu:4",
		"-N2-4 --ntasks-per-node=4 --mem-per-cpu=2G -t 1-2:03:04 --exclusive --contiguous", "--or='-n64 -t 2:00:00' -x n[1-3] -J 'a b'",
		"--gpus=k20:4 -N2 -p gpu -A me -q long --priority 5 -- a -b", "-N1k -vvv --wrap='sleep 1'", "--run 1.5 -G2",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, err := ParseLine(line)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Column < 0 || e.Column > len(line)+1 || e.Reason == "" {
				t.Fatalf("%q: %#v", line, err)
			}
			return
		}
		if err := o.Request.Validate(); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		checkFormat(t, o)
	})
}

func FuzzParseScript(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -N2 # x\n#SBATCH --job-name='a b'\necho\n#SBATCH -n3\n")
	f.Add("#!x\n#SBATCH\t--mem=1\n\n#SBATCH --mem-per-cpu=2")
	f.Fuzz(func(t *testing.T, script string) {
		o, err := ParseScript(script, []string{"-n2"})
		if err == nil {
			checkFormat(t, o)
		}
	})
}
