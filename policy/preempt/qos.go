package preempt

import (
	"cmp"
	"slices"

	"muster/policy"
	"muster/policy/priority"
)

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
		c := Class{Name: q.Name, Stops: q.Preempt}
		switch q.PreemptMode {
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
		rules = append(rules, c)
	}
	return rules
}

// none is the class of jobs that have none: no QOS has such a name.
const none = "(none)"
