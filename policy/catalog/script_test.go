package catalog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/policy/script"
)

// bundledScript makes a policy of a script that comes with Muster.
func bundledScript(name, settings string) (policy.Policy, *script.Policy, error) {
	b, err := script.FindBundled(name)
	if err != nil {
		return nil, nil, err
	}
	return catalog.Script(b.Name, b.Source, settings)
}

// TestScriptsDecideAsTheBuiltIn plays what built-in policies decided in random lives of
// clusters to the scripts that say the same: event by event, they start the same jobs on
// the same nodes for the same reasons.
func TestScriptsDecideAsTheBuiltIn(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for _, c := range []struct{ spec, script, settings string }{
		{"first-fit", "first-fit.star", ""},
		{"easy", "easy.star", ""},
		{"easy:depth=2", "easy.star", "depth=2"},
		{"easy:depth=0:bf_window=3s", "easy.star", "depth=0:bf_window=3s"},
	} {
		t.Run(c.spec, func(t *testing.T) {
			for seed := range seeds {
				if err := sameDecisions(c.spec, c.script, c.settings, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func sameDecisions(spec, name, settings string, seed uint64) error {
	var written bytes.Buffer
	if err := liveRecorded(spec, seed, &written); err != nil {
		return err
	}
	var inner *script.Policy
	got, err := history.Replay(&written, func(string) (p policy.Policy, err error) {
		p, inner, err = bundledScript(name, settings)
		return p, err
	})
	switch {
	case err != nil:
		return err
	case got.Difference != nil:
		return fmt.Errorf("line %d: %s decided\n%s\nthe script\n%s", got.Difference.Line, spec, got.Difference.Then, got.Difference.Now)
	case inner.Trouble().Failures > 0:
		return fmt.Errorf("the script failed: %v", inner.Trouble().Last)
	case got.Starts < 20:
		return fmt.Errorf("only %d starts: that shows little", got.Starts)
	}
	return nil
}

// liveRecorded is a random life of a cluster, as it was recorded.
func liveRecorded(spec string, seed uint64, written *bytes.Buffer) error {
	rng := rand.New(rand.NewPCG(seed, 23))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range rng.IntN(5) {
		c.Nodes = append(c.Nodes, randomNode(rng, i))
	}
	p, err := catalog.New(spec)
	if err != nil {
		return err
	}
	s := policy.NewState(c, p)
	l := &life{Recorder: history.Record(written, history.Header{Policy: spec}, s), book: newBook(s.Cluster()), rng: rng, wake: policy.Never, jobs: map[policy.JobID]*model.Job{}}
	for i := range 250 {
		l.now += time.Duration(rng.IntN(3)) * time.Second
		if err := l.something(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if rng.IntN(4) == 0 {
			continue // several things between two steps
		}
		if err := l.step(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return l.Err()
}
