package preempt

import (
	"cmp"
	"errors"
	"slices"

	"muster/model"
	"muster/policy"
	"muster/policy/priority"
)

// RulesOf makes rules of an administrator's classes or partitions; nil if none may stop another. It refuses both
// at once, of which Slurm's PreemptType names one, too.
func RulesOf(c *priority.Config, partitions []model.Partition) (Rules, error) {
	byPartition := FromPartitions(partitions)
	if c == nil {
		return byPartition, nil
	}
	byQOS := FromQOS(c.QOS)
	if byPartition != nil && byQOS != nil {
		return nil, errors.New("both QOS and partitions preempt each other: leave out either Preempt of the QOS, or PreemptMode of the partitions")
	}
	if byQOS == nil {
		return byPartition, nil
	}
	return byQOS, nil
}

// FromQOS makes rules of an administrator's classes, in the order of their
// priorities. They are nil if no class may stop another.
func FromQOS(list []priority.QOS) Rules {
	if !slices.ContainsFunc(list, func(q priority.QOS) bool { return len(q.Preempt) > 0 }) {
		return nil
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b priority.QOS) int { return cmp.Compare(a.Priority, b.Priority) })
	rules := Rules{{Name: none}} // jobs without one of these QOS stop no job and are not stopped
	rules[0].Fixed = true
	for _, q := range sorted {
		rules = append(rules, classOf(q.Name, q.PreemptMode, q.Preempt))
	}
	return rules
}

func classOf(name string, mode priority.PreemptMode, stops []string) Class {
	c := Class{Name: name, Stops: stops}
	switch mode {
	case priority.PreemptSuspend:
		c.How = policy.Suspend
	case priority.PreemptMove:
		c.How = policy.Move
	case priority.PreemptRequeue:
		c.How = policy.Requeue
	case priority.PreemptCancel:
		c.How = policy.Cancel
	default:
		c.Fixed = true
	}
	return c
}

// FromPartitions makes rules of partitions, in the order of their tiers: jobs of a higher tier stop those of
// lower ones whose partition has a PreemptMode, as with Slurm's preempt/partition_prio. The class of a job is
// then the name of its partition. They are nil if no partition can stop another's jobs.
func FromPartitions(list []model.Partition) Rules {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b model.Partition) int { return cmp.Compare(a.PriorityTier, b.PriorityTier) })
	var rules Rules
	some := false
	for i, p := range sorted {
		var stops []string
		for _, lower := range sorted[:i] {
			if lower.PriorityTier < p.PriorityTier && lower.PreemptMode != "" {
				stops = append(stops, lower.Name)
			}
		}
		some = some || len(stops) > 0
		rules = append(rules, classOf(p.Name, priority.PreemptMode(p.PreemptMode), stops))
	}
	if !some {
		return nil
	}
	return rules
}

// none is the class of jobs that have none: no QOS has such a name.
const none = "(none)"
