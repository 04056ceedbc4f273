package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"muster/head/api"
	"muster/model"
)

// listedJob is a line of muster queue: a job, or several waiting tasks of an array.
type listedJob struct {
	*api.Job
	id string
}

// jobField is something that can be shown of a job: letter is squeue's in --format,
// name its in --Format.
type jobField struct {
	letter byte
	name   string
	header string
	value  func(j *listedJob) string
}

var jobFields = []jobField{
	{'i', "jobid", "JOBID", func(j *listedJob) string { return j.id }},
	{'A', "jobnumber", "JOBID", func(j *listedJob) string { return strconv.FormatUint(j.ID, 10) }},
	{'F', "arrayjobid", "ARRAY_JOB_ID", func(j *listedJob) string {
		if j.ArrayJob != 0 {
			return strconv.FormatUint(j.ArrayJob, 10)
		}
		return strconv.FormatUint(j.ID, 10)
	}},
	{'K', "arraytaskid", "ARRAY_TASK_ID", func(j *listedJob) string {
		if _, task, ok := strings.Cut(j.id, "_"); ok {
			return task
		}
		return "N/A"
	}},
	{'P', "partition", "PARTITION", func(j *listedJob) string { return orDash(j.Partition) }},
	{'j', "name", "NAME", func(j *listedJob) string { return j.Name }},
	{'u', "username", "USER", func(j *listedJob) string { return j.User }},
	{'a', "account", "ACCOUNT", func(j *listedJob) string { return orDash(j.Account) }},
	{'q', "qos", "QOS", func(j *listedJob) string { return orDash(j.QOS) }},
	{'t', "statecompact", "ST", func(j *listedJob) string { return shortState(j.State) }},
	{'T', "state", "STATE", func(j *listedJob) string { return string(j.State) }},
	{'M', "timeused", "TIME", func(j *listedJob) string { return slurmTime(j.Elapsed) }},
	{'l', "timelimit", "TIME_LIMIT", func(j *listedJob) string { return timeLimit(j.TimeLimit) }},
	{'L', "timeleft", "TIME_LEFT", func(j *listedJob) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return slurmTime(max(0, j.TimeLimit-j.Elapsed))
	}},
	{'D', "numnodes", "NODES", func(j *listedJob) string { return strconv.Itoa(j.NumNodes) }},
	{'C', "numcpus", "CPUS", func(j *listedJob) string { return strconv.Itoa(j.Cores) }},
	{'m', "minmemory", "MEMORY", func(j *listedJob) string { return slurmSize(j.Memory) }},
	{'b', "gpus", "GPUS", func(j *listedJob) string { return strconv.Itoa(j.GPUs) }},
	{'N', "nodelist", "NODELIST", func(j *listedJob) string { return nodeListOf(j.Job) }},
	{'R', "reasonlist", "NODELIST(REASON)", func(j *listedJob) string {
		if j.State == api.Pending || len(j.Nodes) == 0 && j.NodeList == "" {
			return "(" + orNone(j.Reason) + ")"
		}
		return nodeListOf(j.Job)
	}},
	{'r', "reason", "REASON", func(j *listedJob) string { return orNone(j.Reason) }},
	{'w', "why", "WHY", func(j *listedJob) string { return orDash(j.Why) }},
	{'Q', "priority", "PRIORITY", func(j *listedJob) string { return strconv.FormatInt(j.Priority, 10) }},
	{'V', "submittime", "SUBMIT_TIME", func(j *listedJob) string { return instantText(j.Submit) }},
	{'g', "eligibletime", "ELIGIBLE_TIME", func(j *listedJob) string { return instantText(j.Eligible) }},
	{'S', "starttime", "START_TIME", func(j *listedJob) string { return instantText(j.Start) }},
	{'e', "endtime", "END_TIME", func(j *listedJob) string { return instantText(j.End) }},
	{'E', "dependency", "DEPENDENCY", func(j *listedJob) string { return orDash(j.Dependency) }},
	{'k', "comment", "COMMENT", func(j *listedJob) string { return orDash(j.Comment) }},
	{'o', "command", "COMMAND", func(j *listedJob) string { return orDash(strings.Join(j.Command, " ")) }},
	{'Z', "workdir", "WORK_DIR", func(j *listedJob) string { return j.Directory }},
	{'O', "options", "OPTIONS", func(j *listedJob) string { return j.Options }},
	{'x', "restartcnt", "RESTART_COUNT", func(j *listedJob) string { return strconv.FormatUint(uint64(j.Requeues), 10) }},
}

func fieldByLetter(letter byte) *jobField {
	for i := range jobFields {
		if jobFields[i].letter == letter {
			return &jobFields[i]
		}
	}
	return nil
}

// fieldByName finds a field by its name, or says which are there.
func fieldByName(name string) (*jobField, error) {
	var known []string
	for i := range jobFields {
		if strings.EqualFold(jobFields[i].name, name) {
			return &jobFields[i], nil
		}
		known = append(known, jobFields[i].name)
	}
	if near := model.Nearest(strings.ToLower(name), known); near != "" {
		return nil, usageErrorf("there is no field %q: did you mean %s?", name, near)
	}
	return nil, usageErrorf("there is no field %q: it is one of %s", name, strings.Join(known, ", "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "None"
	}
	return s
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

// stateOrder is the order of Slurm's numbers for states, in which squeue lists jobs.
var stateOrder = []api.State{
	api.Pending, api.Running, api.Suspended, api.Completed, api.Cancelled, api.Failed, api.Timeout, api.NodeFail, api.Preempted, api.OutOfMemory, api.Completing,
}

// readStates reads states by their names or short forms, separated by commas.
func readStates(text string) ([]api.State, error) {
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
				return nil, usageErrorf("there is no state %q: did you mean %s?", word, near)
			}
			return nil, usageErrorf("there is no state %q: it is one of %s, or all", word, strings.Join(known, ", "))
		}
		states = append(states, stateOrder[at])
	}
	return states, nil
}

// slurmTime writes seconds as squeue does: 0:07, 12:05, 1:02:03, 2-01:02:03.
func slurmTime(seconds float64) string {
	s := int64(max(0, seconds))
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
	case s >= 3600:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

func timeLimit(seconds float64) string {
	if seconds == 0 {
		return "UNLIMITED"
	}
	return slurmTime(seconds)
}

// slurmSize writes bytes as Slurm does, 4G; what is not whole in a unit is written in
// the next smaller one.
func slurmSize(n int64) string {
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

// instantText writes a time since 1970 as Slurm does, in the zone of this machine.
func instantText(seconds float64) string {
	if seconds == 0 {
		return "N/A"
	}
	return time.Unix(int64(seconds), 0).Format("2006-01-02T15:04:05")
}

func nodeListOf(j *api.Job) string {
	if j.NodeList != "" {
		return j.NodeList
	}
	return model.CompressNodes(j.Nodes)
}

// writeColumns writes a table with a line of names and no rule below it, as Slurm's
// tools do. On a terminal that is too narrow the column to shrink loses its ends.
func writeColumns(w io.Writer, names []string, rows [][]string, shrink int) error {
	all := rows
	if names != nil {
		all = append([][]string{names}, rows...)
	}
	if len(all) == 0 {
		return nil
	}
	width := make([]int, len(all[0]))
	total := 0
	for i := range width {
		for _, row := range all {
			width[i] = max(width[i], utf8.RuneCountInString(printable(row[i])))
		}
		total += width[i] + 2
	}
	if room := terminalWidth(w); room > 0 && total-2 > room && shrink >= 0 {
		width[shrink] = max(8, width[shrink]-(total-2-room))
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(pad(printable(cell), width[i], false) + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// pad makes a text so wide, and cuts it if it is wider.
func pad(s string, width int, right bool) string {
	n := utf8.RuneCountInString(s)
	switch {
	case n > width:
		return string([]rune(s)[:width])
	case right:
		return strings.Repeat(" ", width-n) + s
	}
	return s + strings.Repeat(" ", width-n)
}

// terminalWidth is 0 where the output is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return 0
	}
	columns, _, err := terminalSize(f)
	if err != nil {
		return 0
	}
	return columns
}
