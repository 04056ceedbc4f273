package catalog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
)

// TestPoliciesAreExchanged lets other policies decide in the middle of random lives: the
// books stay right, and the new one decides as if it had been there from a snapshot on.
func TestPoliciesAreExchanged(t *testing.T) {
	specs := []string{"first-fit", "easy", "fcfs", "g-queue", "r-queue", "conservative", "sjf", "auction"}
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		if err := exchanged(specs, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func exchanged(specs []string, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 31))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range 1 + rng.IntN(5) {
		c.Nodes = append(c.Nodes, randomNode(rng, i))
	}
	p, err := catalog.New(specs[0])
	if err != nil {
		return err
	}
	s := policy.NewState(c, p)
	l := &life{State: s, record: history.Record(&bytes.Buffer{}, history.Header{Policy: specs[0]}, s), book: newBook(s.Cluster()), rng: rng, wake: policy.Never, jobs: map[policy.JobID]*model.Job{}}
	for i := range 200 {
		l.now += time.Duration(rng.IntN(3)) * time.Second
		if err := l.something(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if i%10 == 9 {
			spec := specs[rng.IntN(len(specs))]
			if p, err = catalog.New(spec); err != nil {
				return err
			}
			s.SetPolicy(p)
			if err := l.likeFromSnapshot(spec); err != nil {
				return fmt.Errorf("event %d: %s: %w", i, spec, err)
			}
			continue
		}
		if err := l.step(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return nil
}

// likeFromSnapshot takes a step, and compares it with that of a state which was made of
// a snapshot for the same policy.
func (l *life) likeFromSnapshot(spec string) error {
	var snapshot bytes.Buffer
	if err := history.Snapshot(&snapshot, history.Header{Policy: spec}, l.State); err != nil {
		return err
	}
	other, err := history.Restore(&snapshot, catalog.New)
	if err != nil { // some who wait are impossible under this policy, and would not be taken
		return l.step()
	}
	want := started(other.Step(l.now))
	had := map[policy.JobID]bool{}
	for id := range l.book.held {
		had[id] = true
	}
	if err := l.step(); err != nil {
		return err
	}
	var got []string
	for id, h := range l.book.held {
		if !had[id] {
			got = append(got, fmt.Sprint(h.alloc))
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("it starts %v, from a snapshot %v", got, want)
	}
	return nil
}

// started lists what a plan takes.
func started(p *policy.Plan) (out []string) {
	for i := range p.Starts {
		if st := &p.Starts[i]; st.Err == nil {
			out = append(out, fmt.Sprint(*st.Alloc))
		}
	}
	slices.Sort(out)
	return out
}
