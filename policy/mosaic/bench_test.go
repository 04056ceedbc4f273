package mosaic_test

import (
	"context"
	"fmt"
	"testing"

	"muster/sim"
	"muster/workload"
)

// BenchmarkWorkloadV is a whole run of the paper's workload V: all jobs are there
// from the beginning, and one plan is made.
func BenchmarkWorkloadV(b *testing.B) {
	for _, x := range []struct {
		nodes  int
		hours  string
		effort string
	}{{128, "4", "effort=0"}, {128, "4", "effort=500"}, {1024, "4", "effort=0"}, {1024, "4", "effort=500"}, {1024, "12", "effort=0"}} {
		w, err := workload.Generate("aucsched", map[string]string{"nodes": fmt.Sprint(x.nodes), "hours": x.hours}, 1)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d/%s", x.nodes, len(w.Jobs), x.effort), func(b *testing.B) {
			c := machine(x.nodes)
			for b.Loop() {
				if _, err := sim.Run(context.Background(), sim.Config{Cluster: c, Jobs: w.Jobs, Policy: make1(b, x.effort)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
