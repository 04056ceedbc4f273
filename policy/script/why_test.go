package script

import (
	"strings"
	"testing"

	"muster/policy"
)

// why is the script's word for a job that waits; it may not propose, and what fails is
// asked once.
func TestWhy(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"its word": {"return 'job ' + job.id + ' waits for ' + str(view.waiting)", "job a waits for 1"},
		"nothing":  {"return None", "it fits, but policy test.star has not started it"},
		"a number": {"return 7", "it fits, but policy test.star has not started it"},
		"walking":  {"view.fitting()", "view.fitting: only decide may walk over them"},
		"loops":    {"[i for i in range(10000000)]", "(why of policy test.star failed: test.star:5:"},
		"too long": {"return 'a' * 1000", strings.Repeat("a", 500)},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, "plan = []\ndef decide(view, p):\n  state['n'] = 1 if view.restarted else state['n'] + 1\ndef why(view, job):\n  "+c.body+"\n")
			s := policy.NewState(smallCluster(1), p)
			id, err := s.Submit(oneNode("a", 1))
			if err != nil {
				t.Fatal(err)
			}
			s.Step(0)
			for range 2 {
				if got := s.Why(id); !strings.Contains(got, c.want) {
					t.Errorf("it says %q, not %q", got, c.want)
				}
			}
			s.Step(1) // what failed has not spoilt the state
			if tr := p.Trouble(); tr.Last != nil {
				t.Error(tr.Last)
			}
		})
	}
}

// A plan that was kept proposes nothing outside of its step.
func TestKeptPlan(t *testing.T) {
	p := load(t, "def decide(view, plan):\n  state['plan'] = plan\ndef why(view, job):\n  state['plan'].start(job)\n")
	s := policy.NewState(smallCluster(1), p)
	id, err := s.Submit(oneNode("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	s.Step(0)
	if got := s.Why(id); !strings.Contains(got, "test.star:4:22: plan.start: only decide may propose") {
		t.Errorf("it says %q", got)
	}
	if s.View().Held(id) != nil {
		t.Error("it was started")
	}
}
