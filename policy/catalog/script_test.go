package catalog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/internal/need"
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
	seeds := uint64(need.Rounds(6, 15))
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
	return liveUnder(func() (policy.Policy, error) { return catalog.New(spec) }, seed, written)
}

func liveUnder(made func() (policy.Policy, error), seed uint64, written *bytes.Buffer) error {
	rng := rand.New(rand.NewPCG(seed, 23))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range rng.IntN(5) {
		c.Nodes = append(c.Nodes, randomNode(rng, i))
	}
	p, err := made()
	if err != nil {
		return err
	}
	s := policy.NewState(c, p)
	l := &life{State: s, record: history.Record(written, history.Header{Policy: "recorded"}, s), book: newBook(s.Cluster()), rng: rng, wake: policy.Never, jobs: map[policy.JobID]*model.Job{}}
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
	return l.record.Err()
}

// replayedBy plays a recorded life to a script, and says where it decides otherwise.
func replayedBy(written *bytes.Buffer, source string) (*script.Policy, error) {
	var inner *script.Policy
	got, err := history.Replay(written, func(string) (p policy.Policy, err error) {
		p, inner, err = catalog.Script("test.star", []byte(source), "")
		return p, err
	})
	if err == nil && got.Difference != nil {
		err = fmt.Errorf("line %d: decided was\n%s\nand is\n%s", got.Difference.Line, got.Difference.Then, got.Difference.Now)
	}
	return inner, err
}

// TestFailingScriptsLeaveNoTrace lets scripts fail in every step, after they have
// proposed what they could: what is decided is what the fallback alone decides, to the
// letter.
func TestFailingScriptsLeaveNoTrace(t *testing.T) {
	seeds := uint64(need.Rounds(4, 8))
	for name, source := range map[string]string{
		"starts all":     "def decide(view, plan):\n  for job in view.queue():\n    plan.start(job)\n  fail('now')\n",
		"starts fitting": "def decide(view, plan):\n  for job in view.fitting():\n    plan.start(job)\n  fail('now')\n",
		"stops all": "def decide(view, plan):\n  for job in view.running():\n    plan.stop(job, how='cancel')\n  for job in view.suspended():\n    plan.resume(job)\n" +
			"  for job in view.queue():\n    view.reserve(job)\n    plan.start(job, beside=True)\n  plan.wake(view.now + 1)\n  1 // 0\n",
		"loops": "def decide(view, plan):\n  for job in view.queue():\n    if plan.start(job): break\n  for i in range(10000000): pass\n",
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				var written bytes.Buffer
				if err := liveRecorded("easy", seed, &written); err != nil {
					t.Fatal(err)
				}
				p, err := replayedBy(&written, source)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if !p.Trouble().Failing {
					t.Fatal("it does not fail")
				}
				if name == "loops" && seed > 1 {
					return // each costs many steps
				}
			}
		})
	}
}

// TestScriptsThatPassOver compares walks over what may fit with walks over the whole
// queue, by scripts that leave out jobs as they please.
func TestScriptsThatPassOver(t *testing.T) {
	const script = `
order = "submission"
def decide(view, plan):
    left = 3
    for job in %s:
        if left == 0:
            break
        if (job.cores + job.nodes + view.now // SECOND) %% 3 == 0:
            continue
        if plan.start(job):
            left -= 1
`
	for seed := range uint64(10) {
		var written bytes.Buffer
		if err := liveUnder(func() (policy.Policy, error) {
			p, _, err := catalog.Script("test.star", fmt.Appendf(nil, script, "view.queue()"), "")
			return p, err
		}, seed, &written); err != nil {
			t.Fatal(err)
		}
		p, err := replayedBy(&written, fmt.Sprintf(script, "view.fitting()"))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if p.Trouble().Failures > 0 {
			t.Fatal(p.Trouble().Last)
		}
	}
}

// TestScriptsThatFailNowAndThen lets scripts and their fallbacks take turns at
// random: the books stay right.
func TestScriptsThatFailNowAndThen(t *testing.T) {
	const source = `
def decide(view, plan):
    for job in view.fitting():
        if random(3) == 0:
            plan.start(job)
        if random(20) == 0:
            fail("now")
`
	for seed := range uint64(10) {
		var inner *script.Policy
		err := liveUnder(func() (p policy.Policy, err error) {
			p, inner, err = catalog.Script("test.star", []byte(source), fmt.Sprintf("seed=%d", seed))
			return p, err
		}, seed, &bytes.Buffer{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if tr := inner.Trouble(); tr.Failures == 0 || tr.Failures == tr.Steps {
			t.Errorf("seed %d: %+v", seed, tr)
		}
	}
}
