package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Partition is a set of nodes, and what jobs that are submitted to it may ask for. The names are Slurm's.
type Partition struct {
	Name string
	// Nodes are where its jobs run; nil is all nodes. Lenders are further nodes whose GPUs its jobs may borrow.
	Nodes, Lenders []string
	// Default takes the jobs that name no partition.
	Default bool
	State   PartitionState
	// DefaultTime is the wall time of jobs that ask for none, and MaxTime the longest; 0 is no limit.
	DefaultTime, MaxTime time.Duration
	// The limits of one job; 0 is none.
	MinNodes, MaxNodes, MaxCores, MaxGPUs int
	// PriorityTier: jobs of a higher tier are considered before all others. PriorityJobFactor is one of the
	// factors of a job's priority; 0 if it was not given.
	PriorityTier, PriorityJobFactor int
	// PreemptMode is how jobs are stopped for those of a higher tier that find no room: off, suspend, move,
	// requeue or cancel; "" is off.
	PreemptMode string
	// Only these users, accounts and QOS may use it, if any are named; the denied ones may not.
	AllowUsers, AllowAccounts, AllowQOS, DenyAccounts, DenyQOS []string
}

// PartitionState says whether a partition takes jobs, and whether these start.
type PartitionState uint8

// Slurm's states of partitions.
const (
	PartitionUp       PartitionState = iota // jobs are taken, and start
	PartitionDown                           // jobs are taken, and wait
	PartitionDrain                          // no jobs are taken; those that wait start
	PartitionInactive                       // no jobs are taken, and none start
)

var partitionStates = []string{"up", "down", "drain", "inactive"}

func (s PartitionState) String() string { return partitionStates[s] }

// ParsePartitionState reads what String writes, in upper or lower case.
func ParsePartitionState(s string) (PartitionState, error) {
	at := slices.Index(partitionStates, strings.ToLower(s))
	if at < 0 {
		return 0, fmt.Errorf("must be up, down, drain or inactive, not %q", s)
	}
	return PartitionState(at), nil
}

// Starts says whether jobs of the partition may start.
func (s PartitionState) Starts() bool { return s == PartitionUp || s == PartitionDrain }

// MaxTier is the highest PriorityTier, as in Slurm.
const MaxTier = 65533

// RankOf is the rank of a job with this one among those of its tier. Tiers are farther apart than ranks of
// priorities and nice values.
func (p *Partition) RankOf(rank int64) int64 {
	if p == nil {
		return rank
	}
	return rank + int64(p.PriorityTier-1)<<40
}

// UsualTime is the wall time of jobs that ask for none; 0 is no limit.
func (p *Partition) UsualTime() time.Duration { return cmp.Or(p.DefaultTime, p.MaxTime) }

// Takes says why the partition does not take a job; nil if it does.
func (p *Partition) Takes(j *Job) error {
	if err := p.Admits(j.User, j.Group, j.QOS); err != nil {
		return err
	}
	return p.Exceeded(j)
}

// PartitionOf finds the partition of a job that names one, or names none; nil if the list is empty.
func PartitionOf(list []Partition, name string) (*Partition, error) {
	if len(list) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(list))
	for i := range list {
		p := &list[i]
		if p.Name == name || name == "" && p.Default {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if name == "" {
		return nil, fmt.Errorf("name a partition: there is no default, and there are %.200s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no partition %.40q: there are %.200s", name, strings.Join(names, ", "))
}

// Admits says why the partition takes no job of this user, account and QOS; nil if it does.
func (p *Partition) Admits(user, account, qos string) error {
	switch {
	case p.State == PartitionDrain, p.State == PartitionInactive:
		return fmt.Errorf("partition %s takes no jobs: its state is %s", p.Name, p.State)
	case len(p.AllowUsers) > 0 && !slices.Contains(p.AllowUsers, user):
		return fmt.Errorf("user %s may not use partition %s (AllowUsers)", user, p.Name)
	}
	for _, who := range []struct {
		what, name, allow, deny string
		allowed, denied         []string
	}{
		{"account", account, "AllowAccounts", "DenyAccounts", p.AllowAccounts, p.DenyAccounts},
		{"QOS", qos, "AllowQos", "DenyQos", p.AllowQOS, p.DenyQOS},
	} {
		switch {
		case len(who.allowed) > 0 && who.name == "":
			return fmt.Errorf("partition %s is for the %s %.200s (%s): name one", p.Name, who.what, strings.Join(who.allowed, ", "), who.allow)
		case len(who.allowed) > 0 && !slices.Contains(who.allowed, who.name):
			return fmt.Errorf("%s %s may not use partition %s: it is for %.200s (%s)", who.what, who.name, p.Name, strings.Join(who.allowed, ", "), who.allow)
		case slices.Contains(who.denied, who.name):
			return fmt.Errorf("%s %s may not use partition %s (%s)", who.what, who.name, p.Name, who.deny)
		}
	}
	return nil
}

// Errors of Exceeded.
var (
	ErrPartitionTime = errors.New("over the limit of time")
	ErrPartitionSize = errors.New("over the limit of size")
)

// Exceeded says which limit of the partition a job exceeds; nil if none. It wraps one of the errors above.
func (p *Partition) Exceeded(j *Job) error {
	for i := range len(j.Alternatives) + 1 {
		as := j.As(i)
		r := &as.Request
		over := func(kind error, has string, most any, limit string) error {
			return fmt.Errorf("it asks for %s, %w of a job in partition %s, %v (%s): ask for less, or for another partition", has, kind, p.Name, most, limit)
		}
		switch cores, gpus := r.TotalCores(), r.TotalGPUs(); {
		case p.MaxTime > 0 && as.WallTime == 0:
			return over(ErrPartitionTime, "unlimited time", p.MaxTime, "MaxTime")
		case p.MaxTime > 0 && as.WallTime > p.MaxTime:
			return over(ErrPartitionTime, as.WallTime.String(), p.MaxTime, "MaxTime")
		case p.MaxNodes > 0 && r.Nodes > p.MaxNodes:
			return over(ErrPartitionSize, fmt.Sprintf("%d nodes", r.Nodes), p.MaxNodes, "MaxNodes")
		case p.MaxNodes > 0 && r.Nodes == 0 && cores/max(1, r.CoresPerProcess) > p.MaxNodes:
			return fmt.Errorf("its processes may be on any number of nodes, and a job in partition %s has at most %d (MaxNodes): say how many with -N, %w", p.Name, p.MaxNodes, ErrPartitionSize)
		case p.MinNodes > 1 && r.Nodes < p.MinNodes:
			return fmt.Errorf("it asks for fewer nodes than a job in partition %s has, %d (MinNodes): say how many with -N, %w", p.Name, p.MinNodes, ErrPartitionSize)
		case p.MaxCores > 0 && cores > p.MaxCores:
			return over(ErrPartitionSize, fmt.Sprintf("%d cores", cores), p.MaxCores, "MaxCPUsPerJob")
		case p.MaxGPUs > 0 && gpus > p.MaxGPUs:
			return over(ErrPartitionSize, fmt.Sprintf("%d GPUs", gpus), p.MaxGPUs, "MaxGPUsPerJob")
		}
	}
	return nil
}

// Confine limits the requests of a job to nodes, and to the GPUs of lenders; nil is all. The job must be the
// caller's own; its alternatives are copied.
func (j *Job) Confine(nodes, lenders []string) {
	j.Alternatives = slices.Clone(j.Alternatives)
	for i := range len(j.Alternatives) + 1 {
		r := &j.Request
		if i > 0 {
			r = &j.Alternatives[i-1]
		}
		r.Lenders = lenders
		switch {
		case nodes == nil:
		case len(r.NodeList) == 0:
			r.NodeList = nodes
		default:
			named := map[string]bool{}
			for _, name := range r.NodeList {
				named[name] = true
			}
			r.NodeList = nil
			for _, name := range nodes {
				if named[name] {
					r.NodeList = append(r.NodeList, name)
				}
			}
			if r.NodeList == nil {
				r.NodeList = []string{"(one of its partition)"} // no node has this name
			}
		}
	}
}

// Reach are the nodes whose GPUs jobs of a partition may have; nil is all.
func (p *Partition) Reach() []string {
	if p.Nodes == nil {
		return nil
	}
	all := slices.Concat(p.Nodes, p.Lenders)
	slices.Sort(all)
	return slices.Compact(all)
}

// CheckPartitions reports the first thing in a list of partitions that makes no sense.
func CheckPartitions(list []Partition) error {
	byDefault, seen := "", map[string]bool{}
	for i := range list {
		p := &list[i]
		switch {
		case p.Name == "" || seen[p.Name]:
			return fmt.Errorf("partition %q is there twice, or has no name", p.Name)
		case p.Default && byDefault != "":
			return fmt.Errorf("partitions %s and %s are both the default: only one can be", byDefault, p.Name)
		case p.MaxTime > 0 && p.DefaultTime > p.MaxTime:
			return fmt.Errorf("partition %s: DefaultTime %v is longer than MaxTime %v", p.Name, p.DefaultTime, p.MaxTime)
		case p.MaxNodes > 0 && p.MinNodes > p.MaxNodes:
			return fmt.Errorf("partition %s: MinNodes %d is more than MaxNodes %d", p.Name, p.MinNodes, p.MaxNodes)
		case p.PriorityTier < 0 || p.PriorityTier > MaxTier:
			return fmt.Errorf("partition %s: PriorityTier must be from 0 to %d, not %d", p.Name, MaxTier, p.PriorityTier)
		}
		if seen[p.Name] = true; p.Default {
			byDefault = p.Name
		}
	}
	return nil
}
