package slurm_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/slurm"
)

// steps lets a core and a fake Slurm run for a while.
func (f *fake) steps(c *slurm.Core, rounds int) {
	for range rounds {
		c.Observe(f.now, f.picture())
		c.Step(f.now)
		f.perform(c, c.Take(), false)
		f.tick(time.Second)
	}
}

// record records what a policy is told and decides. It returns a function that replays it.
func record(t *testing.T, c *slurm.Core, spec string) (replays func()) {
	t.Helper()
	var text bytes.Buffer
	c.Record(&text, history.Header{Policy: spec})
	return func() {
		t.Helper()
		if r, err := history.Replay(&text, catalog.New); err != nil || r.Difference != nil || r.Steps == 0 {
			t.Errorf("playing the record again: %+v, %v", r, err)
		}
	}
}

// A policy that preempts makes Slurm suspend, requeue and cancel jobs, and suspended ones are
// resumed when their place is free.
func TestJobsMakeWay(t *testing.T) {
	for how, want := range map[string]string{"suspend": "SUSPENDED", "requeue": "PENDING", "cancel": "COMPLETED"} {
		t.Run(how, func(t *testing.T) {
			f := newFake(t, 1, 1, 4, 0)
			f.alone = true
			c := newCore(t, "easy:preempt="+how+":qos=low<high", false)
			replays := record(t, c, "easy:preempt="+how+":qos=low<high")
			low := f.submit("muster:req", 1, 4, 30*time.Second)
			low.QOS = "low"
			f.steps(c, 6)
			if low.State != "RUNNING" {
				t.Fatalf("the first job: %s", low.State)
			}
			high := f.submit("muster:req", 1, 4, 10*time.Second)
			high.QOS = "high"
			f.steps(c, 4)
			if high.State != "RUNNING" || low.State != want {
				t.Fatalf("%s, and the other %s", high.State, low.State)
			}
			replays()
			if how == "suspend" {
				s := c.Status(10).Jobs[0]
				if s.State != "suspended" || s.Why != "it is suspended to make way for job 2, and goes on when its place is free" {
					t.Errorf("%+v", s)
				}
				c = newCore(t, "easy:preempt=suspend:qos=low<high", false) // the driver is killed
			}
			f.steps(c, 60)
			if f.ended[low.ID] != 1 || f.ended[high.ID] != 1 || strings.Contains(low.AdminComment, "paused") {
				t.Errorf("ended %d and %d times: %+v", f.ended[low.ID], f.ended[high.ID], low.Job)
			}
		})
	}
}

// Jobs of Slurm's own are not stopped, and a job that an administrator has suspended is not
// resumed.
func TestOthersJobsAreLeftAlone(t *testing.T) {
	f := newFake(t, 1, 2, 4, 0)
	c := newCore(t, "easy:preempt=requeue:qos=low<high", false)
	own := f.submit("", 1, 4, time.Minute)
	f.tick(time.Second)
	low := f.submit("muster:req", 1, 4, time.Minute)
	low.QOS = "high" // so that no class preempts it
	f.steps(c, 6)
	f.halt(low, slurm.Stop{How: policy.Suspend, Comment: low.AdminComment})
	high := f.submit("muster:req", 1, 4, time.Second)
	high.QOS = "high"
	f.steps(c, 3)
	if own.State != "RUNNING" {
		t.Errorf("a job of Slurm's: %s", own.State)
	}
	c = newCore(t, "easy:preempt=suspend:qos=low<high", false)
	f.halt(high, slurm.Stop{How: policy.Cancel})
	f.steps(c, 20)
	if low.State == "RUNNING" {
		t.Error("a job that an administrator has suspended goes on")
	}
}

// A job with GPUs keeps them while it is suspended, so it is requeued instead. One that must not be
// requeued is cancelled if the policy requeues, and left alone if it suspends.
func TestHowJobsAreStopped(t *testing.T) {
	for _, x := range []struct {
		how, gres string
		noRequeue bool
		want      string
	}{
		{"suspend", "gres/gpu:1", false, "PENDING"}, {"suspend", "gres/gpu:1", true, "RUNNING"}, {"requeue", "", true, "COMPLETED"}, {"suspend", "", true, "SUSPENDED"},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			f := newFake(t, 1, 1, 4, 2)
			c := newCore(t, "easy:preempt="+x.how+":qos=low<high", false)
			low := f.submit("muster:req", 1, 4, time.Hour)
			low.TRESPerNode, low.NoRequeue = x.gres, x.noRequeue
			f.steps(c, 6)
			if x.gres != "" {
				low.Uses = []slurm.Use{{Node: "n1", CPUs: 4, GPUs: 1}}
			}
			high := f.submit("muster:req", 1, 4, time.Hour)
			high.QOS = "high"
			f.steps(c, 8)
			if low.State != x.want {
				t.Errorf("%s, want %s", low.State, x.want)
			}
		})
	}
}

// A suspended job is also resumed under a policy that never preempts, because the driver was
// restarted with another one.
func TestSuspendedJobsGoOnUnderAnyPolicy(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	f.alone = true
	c := newCore(t, "easy:preempt=suspend:qos=low<high", false)
	low := f.submit("muster:req", 1, 4, 20*time.Second)
	f.steps(c, 6)
	high := f.submit("muster:req", 1, 4, 10*time.Second)
	high.QOS = "high"
	f.steps(c, 4)
	if low.State != "SUSPENDED" {
		t.Fatalf("%s", low.State)
	}
	f.steps(newCore(t, "easy", false), 60)
	if f.ended[low.ID] != 1 || f.ended[high.ID] != 1 {
		t.Errorf("%+v", low.Job)
	}
}

// Requests to stop and resume jobs are refused, lost and late, and drivers die: no processor has
// two jobs, and all jobs end.
func TestStoppingUnderFaults(t *testing.T) {
	runs := need.Rounds(10, 30)
	for seed := range uint64(runs) {
		for _, how := range []string{"suspend", "requeue"} {
			t.Run(fmt.Sprintf("%s/%d", how, seed), func(t *testing.T) { stopAtRandom(t, seed, "easy:preempt="+how+":qos=low<mid<high") })
		}
	}
}

func stopAtRandom(t *testing.T, seed uint64, spec string) {
	f := newFake(t, seed, 4, 4, 0)
	f.alone, f.faults = true, 0.2
	c := newCore(t, spec, false)
	var all []uint64
	for step := range 600 {
		if step < 150 && f.random.IntN(3) == 0 {
			j := f.submit("muster:req", 1+f.random.IntN(2), 1+f.random.IntN(4), time.Duration(1+f.random.IntN(20))*time.Second)
			j.QOS = []string{"low", "mid", "high"}[f.random.IntN(3)]
			all = append(all, j.ID)
		}
		if step == 200 {
			f.faults = 0
		}
		p := f.picture()
		f.tick(time.Duration(f.random.IntN(300)) * time.Millisecond)
		c.Observe(f.now, p)
		c.Step(f.now)
		dies := step < 200 && f.random.IntN(20) == 0
		f.perform(c, c.Take(), dies)
		if dies {
			c = newCore(t, spec, false)
		}
		f.tick(time.Duration(100+f.random.IntN(2000)) * time.Millisecond)
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, id := range all {
		if f.ended[id] != 1 {
			t.Errorf("job %d ended %d times: %+v; %s", id, f.ended[id], f.jobs[id], c.Why(id))
		}
	}
	if s := c.Status(10); s.Waiting+s.Placed+s.Running != 0 {
		t.Errorf("left: %+v", s)
	}
}
