package ivm

import (
	"os/exec"
	"testing"

	"muster/exp/bench/benchtest"
	"muster/internal/need"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// Both kinds of programs run on real nodes, check their results, and say what is read of them.
func TestProgramsOfBothKinds(t *testing.T) {
	tools := benchtest.Tools(t, programs()...)
	benchtest.WithElements(t, tools)
	mpiexec, err := exec.LookPath("mpiexec")
	if err != nil {
		need.Missing(t, need.MPI, "there is no mpiexec")
	}
	l, err := startCluster(t.Context(), tools, mpiexec, together, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	for _, c := range []command{
		{program: "mpi-nbody", args: []string{"--size", "100", "--repeat", "3"}},
		{program: "mpi-dmm", args: []string{"--size", "50"}},
		{program: "mpi-nw", args: []string{"--size", "41"}},
		{program: "mpi-himeno", args: []string{"--size", "20", "--width", "7", "--repeat", "4"}},
	} {
		c.mpi = len(hosts)
		if out, err := l.run(t.Context(), c); err != nil || out.Elements != 0 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	out, err := l.run(t.Context(), command{program: "ivm-nw", args: []string{"--size", "90", "--way", "guided"}})
	if err != nil {
		t.Fatal(err)
	}
	done := int64(0)
	for _, n := range out.Work {
		done += n
	}
	if out.Elements != smallest || done != 90 || out.Created <= 0 || out.Traffic <= 0 {
		t.Errorf("%+v", out)
	}
}
