package noderuntime

import (
	"testing"

	"muster/exp/bench/benchtest"
	"muster/internal/need"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// workshop is a lab with real tools, or skips the test.
func workshop(t *testing.T) *lab {
	t.Helper()
	found, err := withMPIOf(benchtest.Tools(t, "mm"), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMeasured([]uint64{1})
	m.Scale = maxScale
	return &lab{t.Context(), found, m, 0}
}

// withMPI skips a test where there is none.
func withMPI(t *testing.T) *lab {
	t.Helper()
	l := workshop(t)
	if l.tools.mpiexec == "" {
		need.Missing(t, need.MPI, noMPI)
	}
	return l
}
