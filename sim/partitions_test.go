package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy/catalog"
	"muster/policy/preempt"
	"muster/sim"
)

// divided is a cluster of three nodes with GPUs (g0 to g2) and three without (c0 to c2).
func divided(partitions ...model.Partition) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}, Partitions: partitions}
	for i := range 3 {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("g", i), Cores: 4, Memory: 8, GPUs: []int{0, 0}})
	}
	for i := range 3 {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprint("c", i), Cores: 4, Memory: 8})
	}
	return c
}

func part(name string, nodes ...string) model.Partition {
	return model.Partition{Name: name, Nodes: nodes, PriorityTier: 1}
}

func inQueue(queue string, r model.Request) model.Job {
	return model.Job{ID: queue, User: "alice", Queue: queue, Run: 10 * time.Second, WallTime: time.Minute, Request: r}
}

// sites notes on which nodes jobs were, and whose GPUs they had.
type sites struct {
	c           *model.Cluster
	on, lenders map[int][]string
	at          map[int]time.Duration
}

func (w *sites) Started(now time.Duration, job int, a *model.Allocation) {
	w.on[job], w.lenders[job], w.at[job] = nil, nil, now
	for _, p := range a.Parts {
		w.on[job] = append(w.on[job], w.c.Nodes[p.Node].Name)
	}
	for _, g := range a.Grants {
		w.lenders[job] = append(w.lenders[job], w.c.Nodes[g.Node].Name)
	}
}

func (w *sites) Ended(time.Duration, int) {}

func runDivided(t *testing.T, spec string, c *model.Cluster, jobs ...model.Job) (*sim.Result, *sites) {
	t.Helper()
	w := &sites{c, map[int][]string{}, map[int][]string{}, map[int]time.Duration{}}
	return run(t, spec, sim.Config{Cluster: c, Jobs: jobs, Observe: w}), w
}

// Under every policy a job is on nodes of its partition, and has GPUs of these and of the lenders.
func TestJobsStayInTheirPartition(t *testing.T) {
	first, second := part("first", "g2", "c1"), part("second", "c0", "c2")
	first.Default, second.Lenders = true, []string{"g1"}
	c := divided(first, second)
	var jobs []model.Job
	for range 4 {
		jobs = append(jobs,
			inQueue("first", model.Request{Nodes: 1, CoresPerNode: 2}), inQueue("", model.Request{Cores: 3}), inQueue("second", model.Request{Nodes: 2, CoresPerNode: 3}),
			inQueue("first", model.Request{Nodes: 1, GPUs: 1}), inQueue("first", model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 2}}),
			inQueue("second", model.Request{Nodes: 1, Remote: &model.RemoteGPUs{Count: 1, Memory: 4, Shared: true}}), inQueue("second", model.Request{Cores: 2, Remote: &model.RemoteGPUs{Count: 2}}))
	}
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			r, w := runDivided(t, e.Name, c, jobs...)
			if r.Refused > 0 {
				t.Errorf("%d starts were refused", r.Refused)
			}
			for i, o := range r.Outcomes {
				on, from := first.Nodes, first.Nodes
				if jobs[i].Queue == "second" {
					on, from = second.Nodes, second.Reach()
				}
				switch {
				case e.Name == "g-queue" && jobs[i].Request.Remote != nil && o.State == sim.Impossible: // it borrows nothing
				case o.State != sim.Finished:
					t.Errorf("job %d is %s: %s", i, o.State, r.Reasons[i])
				case slices.ContainsFunc(w.on[i], func(n string) bool { return !slices.Contains(on, n) }):
					t.Errorf("job %d of %q ran on %v", i, jobs[i].Queue, w.on[i])
				case slices.ContainsFunc(w.lenders[i], func(n string) bool { return !slices.Contains(from, n) }):
					t.Errorf("job %d of %q had GPUs of %v", i, jobs[i].Queue, w.lenders[i])
				}
			}
		})
	}
}

// What a head would refuse is impossible, with the head's reason.
func TestPartitionsRefuse(t *testing.T) {
	small := part("small", "c0")
	small.MaxTime, small.MaxNodes, small.MaxCores, small.MaxGPUs, small.AllowUsers = 30*time.Second, 1, 2, 1, []string{"alice"}
	closed, down := part("closed", "c1"), part("down", "c1")
	closed.State, down.State = model.PartitionInactive, model.PartitionDown
	big := part("big")
	big.MinNodes, big.AllowAccounts, big.DenyQOS = 2, []string{"physics"}, []string{"low"}
	c := divided(small, closed, down, big)
	job := func(queue string, change func(*model.Job)) model.Job {
		j := inQueue(queue, model.Request{Nodes: 1})
		j.WallTime = 20 * time.Second
		change(&j)
		return j
	}
	for _, tc := range []struct {
		job  model.Job
		want string
	}{
		{job("small", func(j *model.Job) {}), ""},
		{job("small", func(j *model.Job) { j.WallTime = 0 }), ""},
		{job("small", func(j *model.Job) { j.WallTime = time.Minute }), "it asks for 1m0s, over the limit of time of a job in partition small, 30s (MaxTime)"},
		{job("small", func(j *model.Job) { j.Request.Nodes = 2 }), "2 nodes, over the limit of size of a job in partition small, 1 (MaxNodes)"},
		{job("small", func(j *model.Job) { j.Request = model.Request{Cores: 2} }), "say how many with -N"},
		{job("small", func(j *model.Job) { j.Request.CoresPerNode = 3 }), "3 cores, over the limit of size of a job in partition small, 2 (MaxCPUsPerJob)"},
		{job("small", func(j *model.Job) { j.Request.Remote = &model.RemoteGPUs{Count: 2} }), "2 GPUs, over the limit of size of a job in partition small, 1 (MaxGPUsPerJob)"},
		{job("small", func(j *model.Job) { j.User = "bob" }), "user bob may not use partition small (AllowUsers)"},
		{job("closed", func(j *model.Job) {}), "partition closed takes no jobs: its state is inactive"},
		{job("down", func(j *model.Job) {}), "partition down is down"},
		{job("none", func(j *model.Job) {}), `there is no partition "none": there are small, closed, down, big`},
		{job("", func(j *model.Job) {}), "name a partition: there is no default, and there are small, closed, down, big"},
		{job("big", func(j *model.Job) { j.Request.Nodes, j.Group = 2, "physics" }), ""},
		{job("big", func(j *model.Job) { j.Group = "physics" }), "fewer nodes than a job in partition big has, 2 (MinNodes)"},
		{job("big", func(j *model.Job) { j.Request.Nodes, j.Group = 2, "art" }), "account art may not use partition big: it is for physics (AllowAccounts)"},
		{job("big", func(j *model.Job) { j.Request.Nodes = 2 }), "partition big is for the account physics (AllowAccounts): name one"},
		{job("big", func(j *model.Job) { j.Request.Nodes, j.Group, j.QOS = 2, "physics", "low" }), "QOS low may not use partition big (DenyQos)"},
	} {
		r, _ := runDivided(t, "easy", c, tc.job)
		if (r.Outcomes[0].State == sim.Impossible) != (tc.want != "") || !strings.Contains(r.Reasons[0], tc.want) {
			t.Errorf("%+v: %s %s, want %s", tc.job, r.Outcomes[0].State, r.Reasons[0], tc.want)
		}
	}
}

// Jobs of a higher tier go first, and the jobs of a partition with a PreemptMode make way for them.
func TestTiers(t *testing.T) {
	low, high := part("low", "c0"), part("high", "c0")
	high.PriorityTier = 2
	whole := model.Request{Nodes: 1, CoresPerNode: 4}
	jobs := []model.Job{inQueue("low", whole), inQueue("low", whole), inQueue("high", whole)}
	jobs[2].Submit = time.Second
	for _, tc := range []struct {
		mode string
		want string // when the jobs start last
	}{{"", "0s 20s 10s"}, {"requeue", "11s 21s 1s"}} {
		low.PreemptMode = tc.mode
		c := divided(low, high)
		spec := catalog.WithClasses("easy", preempt.FromPartitions(c.Partitions))
		_, w := runDivided(t, spec, c, jobs...)
		if got := fmt.Sprint(w.at[0], " ", w.at[1], " ", w.at[2]); got != tc.want {
			t.Errorf("PreemptMode %q: %s, want %s", tc.mode, got, tc.want)
		}
	}
}

// Where nothing overtakes, jobs wait for those of their own nodes alone.
func TestPartitionsDoNotHoldEachOtherUp(t *testing.T) {
	first, second, both := part("first", "c0"), part("second", "c1"), part("both", "c0", "c1")
	whole := model.Request{Nodes: 1, CoresPerNode: 4}
	jobs := []model.Job{inQueue("first", whole), inQueue("first", whole), inQueue("second", whole), inQueue("both", whole), inQueue("second", whole)}
	for _, spec := range []string{"fcfs", "sjf"} {
		_, w := runDivided(t, spec, divided(first, second, both), jobs...)
		// The last fits at 10 s, but stands behind the job of both, which stands behind the second.
		if got := fmt.Sprint(w.at[0], w.at[1], w.at[2], w.at[3], w.at[4]); got != "0s 10s 0s 10s 20s" {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
