package sim

import (
	"fmt"
	"slices"

	"muster/model"
	"muster/policy/preempt"
)

// placed is the partition of a job, by the job's index, and what jobs of each may use.
type placed struct {
	of      []*model.Partition
	refused map[int]error
	classes bool // partitions stop each other's jobs: policies take them as the class of a job
}

// divide finds the partition of each job, and limits the job to it. A head would refuse jobs that no partition
// takes: they are impossible.
func (r *run) divide() {
	list := r.Cluster.Partitions
	if len(list) == 0 {
		return
	}
	r.parts = placed{make([]*model.Partition, len(r.Jobs)), map[int]error{}, preempt.FromPartitions(list) != nil}
	r.Jobs = slices.Clone(r.Jobs)
	reach := map[string][]string{}
	for i := range list {
		reach[list[i].Name] = list[i].Reach()
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		p, err := model.PartitionOf(list, j.Queue)
		if err == nil {
			j.Queue = p.Name
			if j.WallTime == 0 {
				j.WallTime = p.UsualTime()
			}
			if err = p.Takes(j); err == nil && !p.State.Starts() {
				err = fmt.Errorf("partition %s is %s", p.Name, p.State)
			}
		}
		if err != nil {
			r.parts.refused[i] = err
			continue
		}
		r.parts.of[i] = p
		j.Confine(p.Nodes, reach[p.Name])
	}
}

// partition is that of a job; nil if the cluster is not divided.
func (p *placed) partition(i int) *model.Partition {
	if i >= len(p.of) {
		return nil
	}
	return p.of[i]
}

// shown is a job as the policy sees it.
func (p *placed) shown(j *model.Job) *model.Job {
	if !p.classes {
		return j
	}
	as := *j
	as.QOS = j.Queue
	return &as
}
