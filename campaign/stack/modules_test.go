package stack

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// phases runs the program with many modules, several times, and returns the shortest
// time of each kind of call.
func phases(t *testing.T, n *theNode, modules, times int) map[string]time.Duration {
	t.Helper()
	shortest := map[string]time.Duration{}
	for range times {
		for line := range strings.Lines(n.launch(made("modules"), fmt.Sprint(modules)).right()) {
			var name string
			var took time.Duration
			if _, err := fmt.Sscan(line, &name, &took); err != nil {
				if _, err := fmt.Sscanf(line, "%s %d", &name, &took); err != nil {
					continue
				}
			}
			if before, ok := shortest[name]; !ok || took < before {
				shortest[name] = took
			}
		}
	}
	return shortest
}

// The cost of calls does not depend on the number of modules and kernels: four times as many calls
// take about four times as long, where a linear search would take sixteen times.
func TestManyModules(t *testing.T) {
	t.Parallel()
	if err := compile("modules"); err != nil {
		t.Fatal(err)
	}
	node := newWorld(t).start("--devices", "soft:memory=64G")
	if phases(t, node, 100, 1); os.Getenv("MUSTER_SOAK") == "" {
		return // what takes how long is asked on a machine that has time
	}
	const few = 1000
	// Other processes may slow down either of the two. So there are several tries, and of each kind of
	// call the least ratio counts.
	least := map[string]float64{}
	for try := 0; ; try++ {
		one, four := phases(t, node, few, 2), phases(t, node, 4*few, 1)
		if len(one) != 12 {
			t.Fatalf("%d kinds of calls: %v", len(one), one)
		}
		var slow []string
		for name, took := range one {
			ratio := float64(four[name]) / float64(took)
			t.Logf("%-12s %8v each of %d, %8v each of %d: %.1f times as long", name, took/few, few, four[name]/(4*few), 4*few, ratio)
			if four[name] <= 50*time.Millisecond { // too short to tell
				ratio = 0
			}
			if before, ok := least[name]; !ok || ratio < before {
				least[name] = ratio
			}
			if least[name] > 10 {
				slow = append(slow, fmt.Sprintf("%s: 4 times as many take %.1f times as long", name, least[name]))
			}
		}
		if len(slow) == 0 {
			return
		}
		if try == 5 {
			t.Fatal(strings.Join(slow, "; "))
		}
	}
}

// A program that wants its modules loaded as a whole gets that, and is told so.
func TestEagerLoading(t *testing.T) {
	if err := compile("modules"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	way := []string{"--private"}
	lazy := w.launchWith(way, made("modules"), "mode").right()
	t.Setenv("CUDA_MODULE_LOADING", "EAGER")
	eager := w.launchWith(way, made("modules"), "mode").right()
	if !strings.Contains(lazy, "mode 2\n") || !strings.Contains(eager, "mode 1\n") {
		t.Errorf("it said %q and %q", lazy, eager)
	}
}
