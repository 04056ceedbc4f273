package driver_test

import (
	"fmt"
	"testing"

	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

// The book has what Slurm gives to jobs, on each release, also if their tasks cannot be divided
// equally, and with memory: nothing has to be corrected when they start.
func TestSharesAreWhatSlurmGives(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, Nodes: 4, JobSubmit: holdAll, Extra: "SelectTypeParameters=CR_Core_Memory\nDefMemPerNode=1000"})
			w := newWhere(t, c)
			d := drive(t, connect(t, c), driver.Config{Spec: "first-fit"})
			shapes := [][]string{
				{"-n5", "-N2"}, {"-n7", "-N3"}, {"-n10", "-N4"}, {"-n5", "-N4"}, {"-n5", "-c2", "-N2"}, {"-n5", "-c3", "-N3"}, {"-N2", "--ntasks-per-node=3"},
				{"-n5", "-N2", "--mem=500"}, {"-n2", "--mem-per-cpu=200"}, {"-n2", "-N2", "--mem=2000"}, {"-n3", "-N2", "--exclusive"}, {"-n1", "--exclusive", "--mem-per-cpu=50"},
			}
			for _, shape := range shapes {
				w.submit(0.6, append(shape, "-t1")...)
			}
			eventually(t, "all jobs ran", func() bool { return d.Status().Counts.Ended >= len(shapes) })
			if n := d.Status().Counts; n.Uneven != 0 || n.Wrong != 0 || n.Recalled != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// Jobs that ask for a part of a node leave the rest to others.
func TestJobsShareNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	for name, x := range map[string]struct {
		extra string
		args  []string
		most  int
	}{
		"cores":             {"SelectTypeParameters=CR_Core", []string{"-n2"}, 4},
		"memory":            {"SelectTypeParameters=CR_Core_Memory", []string{"-n2", "--mem=5000"}, 3},
		"memory by default": {"SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1000", []string{"-n2"}, 4},
		"all memory":        {"SelectTypeParameters=CR_Core_Memory", []string{"-n2"}, 1}, // as in Slurm
		"whole nodes":       {"SelectType=select/linear\nSelectTypeParameters=CR_Memory\nGresTypes=rgpu\nDefMemPerCPU=10", []string{"-n2"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			emulatetest.Need(t, release.Newest())
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Nodes: 1, JobSubmit: holdAll, Extra: x.extra})
			w := newWhere(t, c)
			d := drive(t, connect(t, c), driver.Config{})
			for range x.most + 1 {
				w.submit(100, append(x.args, "-t2")...)
			}
			eventually(t, "as many run as fit", func() bool { s := d.Status(); return s.Running == x.most && s.Waiting == 1 && len(w.ran()) >= x.most })
			if n := d.Status().Counts; n.Recalled+n.Refused+n.Uneven+n.Wrong != 0 || len(w.ran()) != x.most {
				t.Errorf("%+v; ran: %v", n, w.ran())
			}
		})
	}
}

// A job that asks only for processors gets them wherever they are free, on each node as many as the
// book says, on releases that can distinguish it from one that asks for a number of nodes.
func TestCoresAreSpread(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	for _, r := range release.All() {
		if !r.TellsOpenNodes {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, Nodes: 4, JobSubmit: holdAll})
			w := newWhere(t, c)
			for i, cpus := range []int{5, 3, 7, 8} { // 3, 5, 1 and 0 are left
				w.submit(100, "-J", "slurms", fmt.Sprintf("-n%d", cpus), fmt.Sprintf("-wn%d", i+1))
			}
			eventually(t, "the others run", func() bool { return len(w.ran()) == 4 })
			d := drive(t, connect(t, c), driver.Config{})
			wide := w.submit(100, "-n9", "-t1")
			eventually(t, "the job runs", func() bool { return w.ran()[wide] == 1 && d.Status().Running == 1 })
			if n := d.Status().Counts; n.Uneven+n.Wrong+n.Recalled != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}
