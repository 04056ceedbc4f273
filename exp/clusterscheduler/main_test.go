package clusterscheduler

import (
	"testing"

	"muster/exp/bench/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// workshop is a lab with real tools, or skips the test.
func workshop(t *testing.T) *lab {
	t.Helper()
	l := &lab{ctx: t.Context(), tools: benchtest.Tools(t, programs...), m: newMeasured([]uint64{1})}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
