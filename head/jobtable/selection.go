package jobtable

import (
	"slices"
	"strconv"
	"strings"

	"muster/model/slurmopt"
	"muster/wire/api"
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
	kept := jobs[:0]
	for _, j := range jobs {
		if !Wanted(s.Users, j.User) || !Wanted(s.Names, j.Name) || !Wanted(s.Accounts, j.Account) || !Wanted(s.Partitions, j.Partition) ||
			s.States == nil && s.Live && j.State.Over() || s.States != nil && !slices.Contains(s.States, j.State) ||
			len(s.Nodes) > 0 && !slices.ContainsFunc(j.Nodes, func(n string) bool { return onNode[n] }) ||
			len(s.IDs) > 0 && !named(isNamed, &j) {
			continue
		}
		kept = append(kept, j)
	}
	clear(jobs[len(kept):])
	return kept
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

// named says whether a job is among those, by itself or with its array. A job that stands for several
// tasks is reduced to those that are named.
func named(ids nameSet, j *api.Job) bool {
	if j.ArrayTasks == "" {
		return ids[Name(j)] || ids[strconv.FormatUint(j.ID, 10)] || j.ArrayTask != nil && ids[strconv.FormatUint(j.ArrayJob, 10)]
	}
	if ids[Name(j)] || ids[strconv.FormatUint(j.ArrayJob, 10)] {
		return true
	}
	tasks, err := slurmopt.ParseTasks(j.ArrayTasks)
	said, saidErr := slurmopt.ParseSubmitted(j.Options)
	if err != nil || saidErr != nil || said.Batch.Array == nil {
		return false // the head writes both
	}
	all := said.Batch.Array.Tasks
	var chosen []uint32
	for id := range ids {
		array, text, isTask := strings.Cut(id, "_")
		number, err := strconv.ParseInt(text, 10, 64)
		if !isTask {
			place, numberErr := strconv.ParseUint(id, 10, 64)
			if place -= j.ArrayJob; numberErr == nil && place < uint64(all.Len()) {
				number, err, array = int64(all.At(int(place))), nil, strconv.FormatUint(j.ArrayJob, 10)
			}
		}
		if _, in := tasks.Place(number); err == nil && in && array == strconv.FormatUint(j.ArrayJob, 10) {
			chosen = append(chosen, uint32(number))
		}
	}
	if len(chosen) == 0 {
		return false
	}
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	place, _ := all.Place(int64(chosen[0]))
	j.ID, j.ArrayTasks, j.ArrayCount = j.ArrayJob+uint64(place), slurmopt.TasksOf(chosen).String(), len(chosen)
	if len(chosen) == 1 {
		j.ArrayTask, j.ArrayTasks, j.ArrayCount = &chosen[0], "", 0
	}
	return true
}
