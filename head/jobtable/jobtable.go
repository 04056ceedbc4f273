// Package jobtable chooses among a head's jobs and shows them as Slurm does: those that wait or run
// with squeue's letters, names, widths and order, those that have ended with sacct's fields, and
// shares and priorities as sshare and sprio do. States, times and sizes have Slurm's formats.
//
// It knows neither the head, which has the jobs, nor the command line that asks for them.
package jobtable

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// Name is the name of a job that people use: its ID, or ARRAY_TASK; ARRAY_[TASKS] for several tasks
// that have not started.
func Name(j *api.Job) string {
	if j.ArrayTask != nil {
		return fmt.Sprintf("%d_%d", j.ArrayJob, *j.ArrayTask)
	}
	if j.ArrayTasks != "" {
		return fmt.Sprintf("%d_[%s]", j.ArrayJob, j.ArrayTasks)
	}
	return fmt.Sprint(j.ID)
}

// Single is the name of a job or, of several tasks of an array that wait together, of the first of them.
func Single(j *api.Job) string {
	if tasks := tasksOf(j); j.ArrayTasks != "" && len(tasks) > 0 {
		return fmt.Sprintf("%d_%d", j.ArrayJob, tasks[0])
	}
	return Name(j)
}

// Compare orders jobs as squeue does: by partition, state and priority.
func Compare(a, b api.Job) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(slices.Index(stateOrder, a.State), slices.Index(stateOrder, b.State)),
		cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
}

// Lines combines the waiting tasks of an array that wait for the same reason into one line. With
// everyTask, each has a line of its own instead.
func Lines(jobs []api.Job, everyTask bool) []Line {
	type group struct {
		array  uint64
		reason string
	}
	at := map[group]int{}
	tasks := map[int][]uint32{}
	var lines []Line
	for i := range jobs {
		j := &jobs[i]
		own := tasksOf(j)
		switch {
		case everyTask && j.ArrayTasks != "":
			said, err := slurmopt.ParseSubmitted(j.Options)
			for _, task := range own {
				one := *j
				one.ArrayTask, one.ArrayTasks, one.ArrayCount = &task, "", 0
				if err == nil && said.Batch.Array != nil {
					place, _ := said.Batch.Array.Tasks.Place(int64(task))
					one.ID = j.ArrayJob + uint64(place)
				}
				lines = append(lines, Line{&one, Name(&one)})
			}
			continue
		case everyTask || own == nil || j.State != api.Pending:
			lines = append(lines, Line{j, Name(j)})
			continue
		}
		g := group{j.ArrayJob, j.Reason}
		line, ok := at[g]
		if !ok {
			line = len(lines)
			at[g] = line
			lines = append(lines, Line{j, ""})
		}
		tasks[line] = append(tasks[line], own...)
	}
	for line, list := range tasks {
		lines[line].id = arrayName(lines[line].Job, list)
	}
	return lines
}

// tasksOf lists the tasks of an array for which a document stands; nil if it is no array's.
func tasksOf(j *api.Job) []uint32 {
	if j.ArrayTask != nil {
		return []uint32{*j.ArrayTask}
	}
	tasks, _ := slurmopt.ParseTasks(j.ArrayTasks)
	var list []uint32
	for i := range tasks.Len() {
		list = append(list, tasks.At(i))
	}
	return list
}

func arrayName(j *api.Job, tasks []uint32) string {
	if len(tasks) == 1 {
		return fmt.Sprintf("%d_%d", j.ArrayJob, tasks[0])
	}
	slices.Sort(tasks)
	return fmt.Sprintf("%d_[%s]", j.ArrayJob, slurmopt.TasksOf(tasks))
}

// Line is a line of a list: a job, or several waiting tasks of an array.
type Line struct {
	*api.Job
	id string
}

// field is a property of a job that can be shown. letter is its letter in squeue's --format, and
// name its name in --Format.
type field struct {
	letter byte
	name   string
	header string
	value  func(j *Line) string
}

var fields = []field{
	{'i', "jobid", "JOBID", func(j *Line) string { return j.id }},
	{'A', "jobnumber", "JOBID", func(j *Line) string { return strconv.FormatUint(j.ID, 10) }},
	{'F', "arrayjobid", "ARRAY_JOB_ID", func(j *Line) string {
		if j.ArrayJob != 0 {
			return strconv.FormatUint(j.ArrayJob, 10)
		}
		return strconv.FormatUint(j.ID, 10)
	}},
	{'K', "arraytaskid", "ARRAY_TASK_ID", func(j *Line) string {
		if _, task, ok := strings.Cut(j.id, "_"); ok {
			return task
		}
		return "N/A"
	}},
	{'P', "partition", "PARTITION", func(j *Line) string { return cmp.Or(j.Partition, "-") }},
	{'j', "name", "NAME", func(j *Line) string { return j.Name }},
	{'u', "username", "USER", func(j *Line) string { return j.User }},
	{'a', "account", "ACCOUNT", func(j *Line) string { return cmp.Or(j.Account, "-") }},
	{'q', "qos", "QOS", func(j *Line) string { return cmp.Or(j.QOS, "-") }},
	{'t', "statecompact", "ST", func(j *Line) string { return shortState(j.State) }},
	{'T', "state", "STATE", func(j *Line) string { return string(j.State) }},
	{'M', "timeused", "TIME", func(j *Line) string { return Time(j.Elapsed) }},
	{'l', "timelimit", "TIME_LIMIT", func(j *Line) string { return TimeLimit(j.TimeLimit) }},
	{'L', "timeleft", "TIME_LEFT", func(j *Line) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return Time(max(0, j.TimeLimit-j.Elapsed))
	}},
	{'D', "numnodes", "NODES", func(j *Line) string { return strconv.Itoa(j.NumNodes) }},
	{'C', "numcpus", "CPUS", func(j *Line) string { return strconv.Itoa(j.Cores) }},
	{'m', "minmemory", "MEMORY", func(j *Line) string { return Size(j.Memory) }},
	{'b', "gpus", "GPUS", func(j *Line) string { return strconv.Itoa(j.GPUs) }},
	{'N', "nodelist", "NODELIST", func(j *Line) string { return NodeList(j.Job) }},
	{'R', "reasonlist", "NODELIST(REASON)", func(j *Line) string {
		if j.State == api.Pending || len(j.Nodes) == 0 && j.NodeList == "" {
			return "(" + cmp.Or(j.Reason, "None") + ")"
		}
		return NodeList(j.Job)
	}},
	{'r', "reason", "REASON", func(j *Line) string { return cmp.Or(j.Reason, "None") }},
	{'w', "why", "WHY", func(j *Line) string { return cmp.Or(j.Why, "-") }},
	{'Q', "priority", "PRIORITY", func(j *Line) string { return strconv.FormatInt(j.Priority, 10) }},
	{'V', "submittime", "SUBMIT_TIME", func(j *Line) string { return Instant(j.Submit) }},
	{'g', "eligibletime", "ELIGIBLE_TIME", func(j *Line) string { return Instant(j.Eligible) }},
	{'S', "starttime", "START_TIME", func(j *Line) string { return Instant(j.Start) }},
	{'e', "endtime", "END_TIME", func(j *Line) string { return Instant(j.End) }},
	{'E', "dependency", "DEPENDENCY", func(j *Line) string { return cmp.Or(j.Dependency, "-") }},
	{'k', "comment", "COMMENT", func(j *Line) string { return cmp.Or(j.Comment, "-") }},
	{'o', "command", "COMMAND", func(j *Line) string { return cmp.Or(strings.Join(j.Command, " "), "-") }},
	{'Z', "workdir", "WORK_DIR", func(j *Line) string { return j.Directory }},
	{'O', "options", "OPTIONS", func(j *Line) string { return j.Options }},
	{'x', "restartcnt", "RESTART_COUNT", func(j *Line) string { return strconv.FormatUint(uint64(j.Requeues), 10) }},
}

func byLetter(letter byte) *field {
	for i := range fields {
		if fields[i].letter == letter {
			return &fields[i]
		}
	}
	return nil
}

// byName finds a field by its name. The error lists the names.
func byName(name string) (*field, error) {
	var known []string
	for i := range fields {
		if strings.EqualFold(fields[i].name, name) {
			return &fields[i], nil
		}
		known = append(known, fields[i].name)
	}
	if near := model.Nearest(strings.ToLower(name), known); near != "" {
		return nil, fmt.Errorf("there is no field %q: did you mean %s?", name, near)
	}
	return nil, fmt.Errorf("there is no field %q: it is one of %s", name, strings.Join(known, ", "))
}

var shortStates = map[api.State]string{
	api.Pending: "PD", api.Running: "R", api.Suspended: "S", api.Completing: "CG", api.Completed: "CD", api.Failed: "F", api.Cancelled: "CA",
	api.Timeout: "TO", api.NodeFail: "NF", api.OutOfMemory: "OOM", api.Preempted: "PR",
}

func shortState(s api.State) string {
	if short := shortStates[s]; short != "" {
		return short
	}
	return string(s)
}

// stateOrder is the order of Slurm's state numbers, in which squeue lists jobs.
var stateOrder = []api.State{
	api.Pending, api.Running, api.Suspended, api.Completed, api.Cancelled, api.Failed, api.Timeout, api.NodeFail, api.Preempted, api.OutOfMemory, api.Completing,
}

// ParseStates parses states, by name or short form, separated by commas.
func ParseStates(text string) ([]api.State, error) {
	if text == "" {
		return nil, nil
	}
	var states []api.State
	for word := range strings.SplitSeq(text, ",") {
		if strings.EqualFold(word, "all") {
			return stateOrder, nil
		}
		at := slices.IndexFunc(stateOrder, func(s api.State) bool {
			return strings.EqualFold(word, string(s)) || strings.EqualFold(word, shortStates[s])
		})
		if at < 0 {
			var known []string
			for _, s := range stateOrder {
				known = append(known, string(s))
			}
			if near := model.Nearest(strings.ToUpper(word), known); near != "" {
				return nil, fmt.Errorf("there is no state %q: did you mean %s?", word, near)
			}
			return nil, fmt.Errorf("there is no state %q: it is one of %s, or all", word, strings.Join(known, ", "))
		}
		states = append(states, stateOrder[at])
	}
	return states, nil
}

// Time writes seconds as squeue does: 0:07, 12:05, 1:02:03, 2-01:02:03.
func Time(seconds float64) string {
	s := int64(max(0, seconds))
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
	case s >= 3600:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// TimeLimit writes a limit in seconds; 0 means none.
func TimeLimit(seconds float64) string {
	if seconds == 0 {
		return "UNLIMITED"
	}
	return Time(seconds)
}

// Size writes bytes as Slurm does, as 4G, in the largest unit of which it is a whole number.
func Size(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt((n+1<<20-1)>>20, 10) + "M"
}

// Instant writes a Unix time as Slurm does, in the time zone of this machine.
func Instant(seconds float64) string {
	if seconds == 0 {
		return "N/A"
	}
	return time.Unix(int64(seconds), 0).Format("2006-01-02T15:04:05")
}

// NodeList is the list of nodes on which a job runs or ran.
func NodeList(j *api.Job) string {
	if j.NodeList != "" {
		return j.NodeList
	}
	return model.CompressNodes(j.Nodes)
}
