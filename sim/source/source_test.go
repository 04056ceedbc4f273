package source

import (
	"maps"
	"os"
	"strings"
	"testing"

	"muster/internal/misuse"
	"muster/workload"
)

// A word is a file, a name, or a generator with parameters, in this order. A folder of a workload's
// name does not hide it.
func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("small", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("congested", []byte("run,nodes\n60,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs := func(arg string) (int, bool) {
		t.Helper()
		s, err := Open(nil, arg, workload.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wl, report, err := s(1)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, _ := s(1); report != nil && again != wl {
			t.Errorf("%s is read twice", arg)
		}
		return len(wl.Jobs), report != nil
	}
	for _, c := range []struct {
		arg    string
		jobs   int
		isALog bool
	}{{"small", 158, true}, {"congested", 1, true}, {"congested:jobs=7", 7, false}} {
		if n, isALog := jobs(c.arg); n != c.jobs || isALog != c.isALog {
			t.Errorf("%s: %d jobs, a log: %v", c.arg, n, isALog)
		}
	}
}

func TestParameters(t *testing.T) {
	got, err := parameters("general", "jobs=10:gpu_mix=1:2:1:seed=3")
	if want := map[string]string{"jobs": "10", "gpu_mix": "1:2:1", "seed": "3"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// What is wrong with the parameters is the user's mistake; what is wrong with a file is not.
func TestMistakes(t *testing.T) {
	t.Chdir(t.TempDir())
	for arg, want := range map[string]string{
		"congested:10": "given as congested:key=value", "congested:jobs=1:jobs=2": "given twice", "congested:=1": "given as key=value", "congested:jbos=1": "jobs",
		"smal": "did you mean small?", "none/at/all": "there is no file none/at/all", "log.swf": "there is no file log.swf",
	} {
		s, err := Open(nil, arg, workload.ReadOptions{})
		if err == nil {
			_, _, err = s(1)
		}
		if err == nil || !strings.Contains(err.Error(), want) || misuse.Is(err) != strings.HasPrefix(arg, "congested") {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

func TestStandardInput(t *testing.T) {
	s, err := Open(strings.NewReader("run,nodes\n60,1\n30,2\n"), "-", workload.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it can be read once only
		wl, report, err := s(1)
		if err != nil || len(wl.Jobs) != 2 || report == nil {
			t.Errorf("got %+v, %+v, %v", wl, report, err)
		}
	}
}

func TestGenerate(t *testing.T) {
	wl, err := Generate("congested:jobs=7", []string{"max_nodes=2"}, 1)
	if err != nil || len(wl.Jobs) != 7 {
		t.Errorf("got %+v, %v", wl, err)
	}
	for want, more := range map[string]string{"given twice": "jobs=3", "given as key=value": "jobs", "jobs": "jbos=3"} {
		if _, err := Generate("congested:jobs=7", []string{more}, 1); err == nil || !misuse.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
}

func TestReading(t *testing.T) {
	good := Reading{Format: "SACCT", SkipBad: true, CoresPerNode: 8}
	if opt, err := good.Options(); err != nil || opt != (workload.ReadOptions{Format: workload.Sacct, SkipBad: true, CoresPerNode: 8}) {
		t.Errorf("got %+v, %v", opt, err)
	}
	for want, r := range map[string]Reading{
		"--cores-per-node and --gpus-per-node must not be negative":       {GPUsPerNode: -1},
		`--from: there is no log format "sacc": did you mean sacct?`:      {Format: "sacc"},
		`--from: there is no log format "parquet": use one of swf, sacct`: {Format: "parquet"},
	} {
		if _, err := r.Options(); err == nil || !misuse.Is(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestOutputFormat(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       workload.Format
	}{
		{"", "", workload.SWF}, {"", "a.csv", workload.CSV}, {"", "a.csv.gz", workload.CSV}, {"", "a.gz", workload.SWF}, {"CSV", "a.swf", workload.CSV},
		{"", "a.submit", ""}, {"sacct", "", ""},
	} {
		got, err := OutputFormat(c.name, c.file)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && !misuse.Is(err) {
			t.Errorf("%q, %q: got %q, %v", c.name, c.file, got, err)
		}
	}
}
