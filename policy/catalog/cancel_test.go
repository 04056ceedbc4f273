package catalog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/script"
)

// TestJobsComeGoAndAreCancelled drives every policy as a daemon would: jobs are
// submitted, cancelled and ended at random. Nothing may be refused, and when
// nobody comes any more and everybody ends, nobody may be left waiting.
func TestJobsComeGoAndAreCancelled(t *testing.T) {
	seeds := uint64(need.Rounds(6, 200))
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			for seed := range seeds {
				if err := comeAndGo(e.Name, seed); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func comeAndGo(name string, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 9))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range 1 + rng.IntN(6) {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("n", i), Cores: 1 + rng.IntN(6), Memory: 10, GPUs: make([]int, rng.IntN(4))})
	}
	p, err := catalog.New(name)
	if err != nil {
		return err
	}
	s := policy.NewState(c, p)
	now := time.Duration(0)
	var waiting, running []policy.JobID
	wake := policy.Never
	step := func() error {
		plan := s.Step(now)
		wake = plan.Wake
		for _, st := range plan.Starts {
			if st.Err != nil {
				return st.Err
			}
			for i, id := range waiting {
				if id == st.Job {
					waiting = append(waiting[:i], waiting[i+1:]...)
					break
				}
			}
			running = append(running, st.Job)
		}
		return nil
	}
	pick := func(list *[]policy.JobID) policy.JobID {
		i := rng.IntN(len(*list))
		id := (*list)[i]
		*list = append((*list)[:i], (*list)[i+1:]...)
		return id
	}
	for range 300 {
		now += time.Duration(rng.IntN(3)) * time.Second
		switch what := rng.IntN(10); {
		case what < 5:
			j := &model.Job{ID: "j", Run: time.Duration(rng.IntN(9)) * time.Second, Priority: rng.Int64N(3), Request: request(rng)}
			id, err := s.Submit(j)
			if err == nil {
				waiting = append(waiting, id)
			} else if !errors.Is(err, policy.ErrImpossible) {
				return err
			}
		case what < 7 && len(waiting) > 0:
			if err := s.Cancel(pick(&waiting)); err != nil {
				return err
			}
		case len(running) > 0:
			s.End(pick(&running))
		}
		if err := step(); err != nil {
			return err
		}
		for _, id := range waiting {
			if s.Why(id) == "" {
				return fmt.Errorf("no reason why job %d waits", id)
			}
		}
	}
	for len(running) > 0 || wake != policy.Never {
		now += time.Minute
		if len(running) > 0 {
			s.End(pick(&running))
		}
		if err := step(); err != nil {
			return err
		}
	}
	if err := scriptFailure(p); err != nil {
		return err
	}
	if s.Waiting() != 0 || len(waiting) != 0 {
		return fmt.Errorf("%d jobs are left waiting on an idle cluster", s.Waiting())
	}
	return nil
}

func request(rng *rand.Rand) model.Request {
	if rng.IntN(5) == 0 {
		return model.Request{Cores: 1 + rng.IntN(8)}
	}
	r := model.Request{
		Nodes: 1 + rng.IntN(3), CoresPerNode: 1 + rng.IntN(3), GPUs: rng.IntN(3), Memory: rng.Int64N(6),
		Contiguous: rng.IntN(6) == 0, Exclusive: rng.IntN(6) == 0,
	}
	switch rng.IntN(6) {
	case 0:
		r.GPUs, r.GPUMemory = 1, 1+rng.Int64N(8)
	case 1:
		r.Remote = &model.RemoteGPUs{Count: 1 + rng.IntN(3), Memory: 1 + rng.Int64N(8), Shared: rng.IntN(2) == 0}
	}
	return r
}

// scriptFailure is the latest failure of a policy that is a script: another has decided then.
func scriptFailure(p policy.Policy) error {
	if s, ok := p.(*script.Policy); ok && s.Trouble().Failures > 0 {
		return s.Trouble().Last
	}
	return nil
}
