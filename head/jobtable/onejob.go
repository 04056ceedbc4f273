package jobtable

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/internal/units"
	"muster/model"
	"muster/model/slurmopt"
	"muster/report"
	"muster/wire/api"
)

// WriteJob writes all about a job, a line for each thing that is known.
func WriteJob(w io.Writer, j *api.Job) error {
	var f report.Facts
	f.Add("job", "%s %s", Name(j), j.Name)
	addUser(&f, j)
	f.Add("state", "%s", report.Join(" ", string(j.State), report.Around("(", j.Reason, ")")))
	f.Add("why", "%s", j.Why)
	f.Add("asks", "%s", j.Options)
	f.Add("needs", "%s", needs(j))
	f.Add("after", "%s", j.Dependency)
	f.Add("priority", "%d%s", j.Priority, ifTrue(j.Held, ", held"))
	f.Add("submitted", "%s", Instant(j.Submit))
	if j.Eligible > j.Submit {
		f.Add("eligible", "%s", Instant(j.Eligible))
	}
	writeRun(&f, j)
	for _, p := range j.Parts {
		f.Add("on", "%s: %s, %s%s", p.Node, units.Plural(p.Cores, "core"), memoryOf(p.Memory), report.Around(", ", p.State, ""))
	}
	if len(j.Parts) == 0 && len(j.Nodes) > 0 {
		f.Add("on", "%s", NodeList(j))
	}
	f.Add("before on", "%s", strings.Join(j.Before, ", "))
	for i := range j.Preempted {
		p := &j.Preempted[i]
		f.Add("preempted", "%s, attempt %d on %s (%s): %s%s", Instant(p.At), p.Attempt, strings.Join(p.Nodes, ", "), p.How, p.Reason, report.Around(", of user ", p.ByUser, ""))
	}
	for _, d := range j.Devices {
		f.Add("GPU", "%s", deviceLine(&d))
	}
	writeEnd(&f, j)
	writeMeasured(&f, j)
	f.Add("command", "%s", strings.Join(j.Command, " "))
	f.Add("directory", "%s", j.Directory)
	f.Add("output", "%s", j.Output)
	f.Add("errors", "%s", j.Error)
	f.Add("comment", "%s", j.Comment)
	return f.WriteText(w)
}

// shownTasks is how much of a list of tasks is shown.
const shownTasks = 60

// WriteArray writes about an array what its tasks have in common, and how many of them are in which
// state. The jobs are those of its tasks that the head knows.
func WriteArray(w io.Writer, jobs []api.Job) error {
	j := &jobs[0]
	type group struct {
		state  api.State
		reason string
	}
	tasks := map[group][]uint32{}
	known, why := 0, ""
	for i := range jobs {
		one := &jobs[i]
		g := group{one.State, one.Reason}
		tasks[g] = append(tasks[g], tasksOf(one)...)
		known += max(1, one.ArrayCount)
		if one.State == api.Pending {
			j, why = one, cmp.Or(why, one.Why)
		}
	}
	all := known
	if said, err := slurmopt.ParseSubmitted(j.Options); err == nil && said.Batch.Array != nil {
		all = said.Batch.Array.Tasks.Len()
	}
	var f report.Facts
	f.Add("job", "%d %s, an array of %s", j.ArrayJob, j.Name, units.Plural(all, "task"))
	addUser(&f, j)
	groups := slices.SortedFunc(maps.Keys(tasks), func(a, b group) int {
		return cmp.Or(cmp.Compare(slices.Index(stateOrder, a.state), slices.Index(stateOrder, b.state)), cmp.Compare(a.reason, b.reason))
	})
	for _, g := range groups {
		slices.Sort(tasks[g])
		list := slurmopt.TasksOf(tasks[g]).String()
		if len(list) > shownTasks {
			list = list[:strings.LastIndexByte(list[:shownTasks], ',')+1] + "..."
		}
		f.Add("tasks", "%d %s: %s", len(tasks[g]), report.Join(" ", string(g.state), report.Around("(", g.reason, ")")), list)
	}
	switch earlier := all - known; {
	case earlier == 1:
		f.Add("tasks", "1 ended earlier: muster history lists it")
	case earlier > 1:
		f.Add("tasks", "%d ended earlier: muster history lists them", earlier)
	}
	f.Add("why", "%s", why)
	f.Add("asks", "%s", j.Options)
	f.Add("needs", "%s for each task", needs(j))
	f.Add("after", "%s", j.Dependency)
	f.Add("priority", "%d", j.Priority)
	f.Add("submitted", "%s", Instant(j.Submit))
	f.Add("limit", "%s", TimeLimit(j.TimeLimit))
	f.Add("command", "%s", strings.Join(j.Command, " "))
	f.Add("directory", "%s", j.Directory)
	f.Add("comment", "%s", j.Comment)
	return f.WriteText(w)
}

func addUser(f *report.Facts, j *api.Job) {
	f.Add("user", "%s", report.Join(", ", j.User, report.Around("account ", j.Account, ""), report.Around("partition ", j.Partition, ""), report.Around("QOS ", j.QOS, "")))
}

// writeRun says when a job ran, and how long it may.
func writeRun(f *report.Facts, j *api.Job) {
	if j.Start > 0 {
		f.Add("started", "%s%s", Instant(j.Start), ifTrue(j.Attempt > 1, ", attempt "+strconv.FormatUint(uint64(j.Attempt), 10)))
	}
	if j.Start > 0 || j.Elapsed > 0 {
		f.Add("ran", "%s of %s", Time(j.Elapsed), TimeLimit(j.TimeLimit))
	} else {
		f.Add("limit", "%s", TimeLimit(j.TimeLimit))
	}
	if j.Requeues > 0 {
		f.Add("requeued", "%s", units.Plural(int(j.Requeues), "time"))
	}
}

// writeEnd says how a job ended, and what it used.
func writeEnd(f *report.Facts, j *api.Job) {
	if !j.State.Over() {
		return
	}
	f.Add("ended", "%s", Instant(j.End))
	switch {
	case j.Signal > 0 && j.Reason == api.JobLaunchFailure:
		f.Add("exit", "0:%d, its directory, input or output could not be opened", j.Signal)
	case j.Signal > 0:
		f.Add("exit", "killed by signal %d", j.Signal)
	case j.ExitCode != 0 || j.State == api.Completed:
		f.Add("exit", "status %d", j.ExitCode)
	}
	if j.CPUTime > 0 || j.Peak > 0 {
		f.Add("used", "%s of processor time, %s at most", Time(j.CPUTime), units.BriefSize(uint64(max(0, j.Peak))))
	}
}

// writeMeasured says what a job's programs did.
func writeMeasured(f *report.Facts, j *api.Job) {
	m := j.Measured
	if m == nil {
		return
	}
	busy := ""
	if all := j.Elapsed * float64(j.GPUs); j.State.Over() && len(j.Before) == 0 && all >= 1 { // elsewhere nothing of the time before was measured
		busy = fmt.Sprintf(" (%.0f %% of the time)", min(100, 100*m.GPU/all))
	}
	f.Add("measured", "%s on processors, %s on GPUs%s in %s, %s waiting for one, %s moving memory", Time(m.CPU), Time(m.GPU), busy, units.Plural(int(m.Kernels), "kernel"), Time(m.Waited), Time(m.Moving))
	f.Add("copied", "%s to GPUs, %s from them; swapped %s in, %s out", units.BriefSize(m.CopiedIn), units.BriefSize(m.CopiedOut), units.BriefSize(m.SwapIn), units.BriefSize(m.SwapOut))
}

func needs(j *api.Job) string {
	parts := []string{units.Plural(j.NumNodes, "node"), units.Plural(j.Cores, "core")}
	if j.NumNodes == 0 {
		parts = parts[1:]
	}
	if j.Memory > 0 {
		parts = append(parts, units.BriefSize(uint64(j.Memory)))
	}
	if j.GPUs > 0 {
		gpus := units.Plural(j.GPUs, "GPU")
		if j.GPUShare > 0 && j.GPUShare < float64(j.GPUs) {
			if share := 100 * j.GPUShare; j.GPUs == 1 {
				gpus += fmt.Sprintf(", a share of %.3g %%", share)
			} else {
				gpus += fmt.Sprintf(", shares of %.3g %% in all", share)
			}
		}
		parts = append(parts, gpus)
	}
	return strings.Join(parts, ", ")
}

func deviceLine(d *api.Device) string {
	text := fmt.Sprintf("#%d of %s", d.Device, d.Node)
	if d.Memory > 0 {
		text = units.BriefSize(uint64(d.Memory)) + " of " + text
	}
	if d.Borrowed {
		text += ", borrowed for " + d.For
	}
	switch d.Beyond {
	case 0:
	case model.AllBeyond:
		text += ", and what else of it is free"
	default:
		text += ", and " + units.BriefSize(d.Beyond) + " more while it is free"
	}
	switch d.Reach {
	case "", model.ReachDevice.String():
	default:
		text += ", reach " + d.Reach
	}
	return text
}

func memoryOf(n int64) string {
	if n == 0 {
		return "any memory"
	}
	return units.BriefSize(uint64(n))
}

func ifTrue(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}
