package jobtable

import (
	"slices"
	"strconv"

	"muster/head/api"
)

// Selection chooses jobs as squeue and sacct do. An empty list chooses all.
type Selection struct {
	Users, Names, Accounts, Partitions []string
	// Nodes chooses jobs that have, or had, one of them; IDs jobs and tasks of arrays by number.
	Nodes, IDs []string
	States     []api.State
	// Live chooses, without States, the jobs that have not ended.
	Live bool
}

// Of returns the jobs of a list that are chosen. It changes the list.
func (s *Selection) Of(jobs []api.Job) []api.Job {
	onNode, isNamed := setOf(s.Nodes), setOf(s.IDs)
	return slices.DeleteFunc(jobs, func(j api.Job) bool {
		return !Wanted(s.Users, j.User) || !Wanted(s.Names, j.Name) || !Wanted(s.Accounts, j.Account) || !Wanted(s.Partitions, j.Partition) ||
			s.States == nil && s.Live && j.State.Over() || s.States != nil && !slices.Contains(s.States, j.State) ||
			len(s.Nodes) > 0 && !slices.ContainsFunc(j.Nodes, func(n string) bool { return onNode[n] }) ||
			len(s.IDs) > 0 && !named(isNamed, &j)
	})
}

// Wanted says whether a list chooses a value.
func Wanted(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// nameSet is for lists that are asked about often.
type nameSet map[string]bool

func setOf(names []string) nameSet {
	set := make(nameSet, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// named says whether a job is among those, by itself or with its array.
func named(ids nameSet, j *api.Job) bool {
	return ids[Name(j)] || ids[strconv.FormatUint(j.ID, 10)] || j.ArrayTask != nil && ids[strconv.FormatUint(j.ArrayJob, 10)]
}
