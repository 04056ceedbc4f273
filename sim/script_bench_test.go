package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/script"
	"muster/sim"
)

// timed counts the steps of a policy, and how long they take.
type timed struct {
	policy.Policy
	steps int
	spent time.Duration
}

func (p *timed) Step(v *policy.View, plan *policy.Plan) {
	at := time.Now()
	p.Policy.Step(v, plan)
	p.spent += time.Since(at)
	p.steps++
}

// builtInOrScript makes a policy of the catalogue, or one of the bundled scripts.
func builtInOrScript(name string) (policy.Policy, error) {
	b, err := script.FindBundled(name)
	if err != nil || b.Name != name {
		return catalog.New(name)
	}
	p, _, err := catalog.Script(b.Name, b.Source, "")
	return p, err
}

// BenchmarkScript sets policies as scripts beside the built-in ones that decide the same:
// what one step costs, with little and with much that waits.
func BenchmarkScript(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10_000} {
		for _, load := range []float64{0.85, 1.2} {
			jobs := benchJobs(20_000, nodes, load, false)
			for _, name := range []string{"first-fit", "first-fit.star", "easy", "easy.star"} {
				b.Run(fmt.Sprintf("nodes=%d/load=%g/%s", nodes, load, name), func(b *testing.B) {
					t := timed{}
					for b.Loop() {
						p, err := builtInOrScript(name)
						if err != nil {
							b.Fatal(err)
						}
						t.Policy = p
						if _, err := sim.Run(context.Background(), sim.Config{Cluster: benchCluster(nodes), Jobs: jobs, Policy: &t}); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(t.spent.Nanoseconds())/float64(t.steps), "ns/step")
				})
			}
		}
	}
}
