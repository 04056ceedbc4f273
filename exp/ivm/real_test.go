package ivm

import (
	"os/exec"
	"testing"

	"muster/exp/bench/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// Both kinds of programs run on real nodes, and say what is read of them.
func TestOneProgramOfEachKind(t *testing.T) {
	tools := benchtest.Tools(t, "ivm-nw", "mpi-nw")
	benchtest.WithElements(t, tools)
	mpiexec, err := exec.LookPath("mpiexec")
	if err != nil {
		t.Skip("there is no mpiexec")
	}
	l, err := startCluster(t.Context(), tools, mpiexec, together, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	args := []string{"--size", "90"}
	mpi, err := l.run(t.Context(), command{mpi: len(hosts), program: "mpi-nw", args: args})
	if err != nil {
		t.Fatal(err)
	}
	elements, err := l.run(t.Context(), command{program: "ivm-nw", args: append(args, "--way", "guided")})
	if err != nil {
		t.Fatal(err)
	}
	done := int64(0)
	for _, n := range elements.Work {
		done += n
	}
	if mpi.Elements != 0 || elements.Elements != smallest || done != 90 || elements.Created <= 0 || elements.Traffic <= 0 {
		t.Errorf("%+v\n%+v", mpi, elements)
	}
}
