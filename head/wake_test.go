package head_test

import (
	"testing"
	"time"

	"muster/policy"
)

// waker is a policy that does nothing but ask to be woken.
type waker func(now time.Duration) time.Duration

func (w waker) Traits() policy.Traits                 { return policy.Traits{} }
func (w waker) Step(v *policy.View, p *policy.Plan)   { p.Wake = w(v.Now()) }
func (w waker) Why(*policy.View, policy.JobID) string { return "" }

// A policy that asks for a step in hundreds of years, or at once and again at once, does not keep
// the head busy.
func TestPoliciesThatAskForSteps(t *testing.T) {
	for name, w := range map[string]waker{
		"far":   func(time.Duration) time.Duration { return policy.Never - 1 },
		"soon":  func(now time.Duration) time.Duration { return now + 1 },
		"never": func(time.Duration) time.Duration { return policy.Never },
	} {
		l := newLive(t, "fcfs")
		l.core.SetPolicy(w, name)
		for now, turns := began, 0; now < began+time.Second; turns++ {
			if turns > 100 {
				t.Fatalf("%s: the head turned more than 100 times in a second in which nothing happens: the next step is due at %v, now is %v", name, l.core.Next(), now)
			}
			l.core.Step(now)
			l.core.Take()
			now = max(now, l.core.Next())
		}
	}
}
