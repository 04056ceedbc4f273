package ivm

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/exp/bench"
)

func TestSpeedsAreThoseOfTable52(t *testing.T) {
	if n := len(speeds()); n != smallest || gpusOf(together.parts()) != "3,4,2" || gpusOf(eachApart.parts()) != "1,1,1,1,1,1,1,1,1" {
		t.Fatalf("%d GPUs, %s", n, gpusOf(together.parts()))
	}
	// By hand: (4.911 + 2 + 4 x 1.309 + 3.429 + 1) / 9.
	if b := bound(); math.Abs(b-1.842) > 0.001 {
		t.Errorf("no division can be more than %.3f times as fast as an even one", b)
	}
}

func TestParseReadsWhatProgramsPrint(t *testing.T) {
	began := time.Unix(1000, 0)
	got, err := parse("work hard\nfinished 1002.5\nwork 1 2 3\nhosts 3 4 2\nelements 9\ncreated 0.25\ndeviations 0.5 0.1\nnbody: 2 steps of 100 bodies right\n", began)
	want := outcome{Timing: bench.Timing{Seconds: 2.5}, Work: []int64{1, 2, 3}, Hosts: []int64{3, 4, 2}, Elements: 9, Created: 0.25, Deviations: []float64{0.5, 0.1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parse("nbody: right\n", began); err == nil {
		t.Error("a program that did not finish was taken")
	}
}

func TestProcessesOfMPIAreDealtOutToTheGPUs(t *testing.T) {
	l := &living{Daemons: bench.Daemons{Tools: bench.Tools{Programs: "/x"}}, nodes: eachApart.parts(), sockets: strings.Split("abcdefghi", ""), mpiexec: "mpiexec"}
	words := strings.Join(l.words(command{mpi: 11, program: "mpi-nw"}), " ")
	for _, c := range []struct {
		part string
		n    int
	}{{"MUSTER_SOCKET a /x/mpi-nw --patient", 2}, {"MUSTER_SOCKET b /x/mpi-nw --patient", 2}, {"MUSTER_SOCKET c", 1}, {"MUSTER_SOCKET i", 1}} {
		if n := strings.Count(words, c.part); n != c.n {
			t.Errorf("%q is there %d times, not %d: %s", c.part, n, c.n, words)
		}
	}
}

// By the model, one portion per GPU gives the measured time, and more portions approach the bound
// if creating elements is free.
func TestModel(t *testing.T) {
	a := apps[0]
	m := newMeasured([]uint64{1})
	m.Outcomes[a.spawn(smallest)] = []outcome{{Timing: bench.Timing{Seconds: 10}}}
	if p := predicted(m, a, smallest); math.Abs(p-10) > 1e-9 {
		t.Errorf("one portion a GPU takes %v s", p)
	}
	// By hand: with 49 portions a C2050 has three, which take 27/49 of what one of nine takes, and a GTX 480 four.
	if s := ideal(49); math.Abs(s-49.0/9/4*bench.GTX480.Power()) > 1e-9 {
		t.Errorf("49 portions are %.4f times as fast as 9", s)
	}
	if p := predicted(m, a, 10_000); math.Abs(10/p/bound()-1) > 0.01 {
		t.Errorf("10,000 portions are %.3f times as fast, and %.3f is possible", 10/p, bound())
	}
	m.Outcomes[a.spawn(smallest)] = []outcome{{Timing: bench.Timing{Seconds: 10}, Created: 1}}
	if predicted(m, a, 64) < predicted(m, a, 25) {
		t.Error("many portions must lose where creating an element takes a second")
	}
}

func TestOnlyWhatWasSavedIsLoaded(t *testing.T) {
	for name, text := range map[string]string{
		"another version": `{"version":9}`,
		"nothing":         `{"version":1,"scale":70}`,
		"no such figure":  `{"version":1,"scale":70,"figures":["5-9"],"seeds":[1]}`,
		"incomplete":      `{"version":1,"scale":70,"figures":["small"],"seeds":[1]}`,
		"no time":         `{"version":1,"scale":70,"figures":["small"],"seeds":[1],"outcomes":{"x":[{"seconds":-1}]}}`,
		"four hosts":      `{"version":1,"scale":70,"figures":["small"],"seeds":[1],"outcomes":{"x":[{"seconds":1,"work":[1,2,3,4]}]}}`,
		"no document":     `nothing`,
	} {
		path := filepath.Join(t.TempDir(), "saved")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := study().Frame().Load(path); err == nil {
			t.Errorf("%s: it was loaded", name)
		}
	}
}

// What an interrupt leaves is shown: the figures that are complete, and of all seeds those that all have.
func TestAnInterruptKeepsWhatIsComplete(t *testing.T) {
	m := newMeasured([]uint64{1, 2})
	m.Figures = []string{"small", "5-6"}
	for _, one := range smallFigure.Plan(m) {
		m.Outcomes[one.key] = []outcome{{Timing: bench.Timing{Seconds: 1}, Work: []int64{1, 1, 1}}}
	}
	if !study().Keep(m) || len(m.Figures) != 1 || len(m.Seeds) != 1 || !strings.Contains(m.Missing, "5-6") {
		t.Errorf("%v, seeds %v, missing %q", m.Figures, m.Seeds, m.Missing)
	}
	if r, err := study().Result(m); err != nil || r.Check() != nil {
		t.Error(err)
	}
}

func TestScaleIsANumber(t *testing.T) {
	for _, scale := range []string{"0", "many", "100000"} {
		if _, err := Experiment.Run(context.Background(), exp.Options{Flags: map[string]string{"scale": scale}}); err == nil || !strings.Contains(err.Error(), "--scale") {
			t.Errorf("--scale %s: %v", scale, err)
		}
	}
}
