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

// counted adds up what a script's steps take, as the interpreter counts it.
type counted struct {
	*script.Policy
	steps, work int
}

func (p *counted) Step(v *policy.View, plan *policy.Plan) {
	p.Policy.Step(v, plan)
	work, _ := p.Used()
	p.steps++
	p.work += int(work)
}

// The cost of a step of a script does not grow with the cluster: the script is told what has
// changed, and does not scan the nodes.
func TestScriptsCostWhatChanges(t *testing.T) {
	perStep := func(name string, nodes int) float64 {
		b, err := script.FindBundled(name)
		if err != nil {
			t.Fatal(err)
		}
		_, inner, err := catalog.Script(b.Name, b.Source, "")
		if err != nil {
			t.Fatal(err)
		}
		p := &counted{Policy: inner}
		if _, err := sim.Run(context.Background(), sim.Config{Cluster: benchCluster(nodes), Jobs: benchJobs(3000, nodes, 0.9, false), Policy: p}); err != nil {
			t.Fatal(err)
		}
		if tr := inner.Trouble(); tr.Last != nil {
			t.Fatal(tr.Last)
		}
		return float64(p.work) / float64(p.steps)
	}
	for _, name := range []string{"first-fit.star", "easy.star"} {
		small, large := perStep(name, 100), perStep(name, 1600)
		t.Logf("%s: %.0f steps of the interpreter for a step on 100 nodes, %.0f on 1600", name, small, large)
		if large > 2*small+200 {
			t.Errorf("%s takes %.0f on 1600 nodes, and %.0f on 100", name, large, small)
		}
	}
}
