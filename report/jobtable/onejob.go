package jobtable

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/head/api"
	"muster/model"
	"muster/report"
)

// WriteJob writes all about a job, a line for each thing that is known.
func WriteJob(w io.Writer, j *api.Job) error {
	var f report.Facts
	f.Add("job", "%s %s", Name(j), j.Name)
	f.Add("user", "%s", report.Join(", ", j.User, report.Around("account ", j.Account, ""), report.Around("partition ", j.Partition, ""), report.Around("QOS ", j.QOS, "")))
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
		f.Add("on", "%s: %s, %s%s", p.Node, model.Plural(p.Cores, "core"), memoryOf(p.Memory), report.Around(", ", p.State, ""))
	}
	if len(j.Parts) == 0 && len(j.Nodes) > 0 {
		f.Add("on", "%s", NodeList(j))
	}
	for _, d := range j.Devices {
		f.Add("GPU", "%s", deviceLine(&d))
	}
	writeEnd(&f, j)
	f.Add("command", "%s", strings.Join(j.Command, " "))
	f.Add("directory", "%s", j.Directory)
	f.Add("output", "%s", j.Output)
	f.Add("errors", "%s", j.Error)
	f.Add("comment", "%s", j.Comment)
	return f.WriteText(w)
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
		f.Add("requeued", "%s", model.Plural(int(j.Requeues), "time"))
	}
}

// writeEnd says how a job ended, and what it used.
func writeEnd(f *report.Facts, j *api.Job) {
	if !j.State.Over() {
		return
	}
	f.Add("ended", "%s", Instant(j.End))
	switch {
	case j.Signal > 0:
		f.Add("exit", "killed by signal %d", j.Signal)
	case j.ExitCode != 0 || j.State == api.Completed:
		f.Add("exit", "status %d", j.ExitCode)
	}
	if j.CPUTime > 0 || j.Peak > 0 {
		f.Add("used", "%s of processor time, %s at most", Time(j.CPUTime), model.BriefSize(uint64(max(0, j.Peak))))
	}
}

func needs(j *api.Job) string {
	parts := []string{model.Plural(j.NumNodes, "node"), model.Plural(j.Cores, "core")}
	if j.NumNodes == 0 {
		parts = parts[1:]
	}
	if j.Memory > 0 {
		parts = append(parts, model.BriefSize(uint64(j.Memory)))
	}
	if j.GPUs > 0 {
		gpus := model.Plural(j.GPUs, "GPU")
		if j.GPUShare > 0 && j.GPUShare < float64(j.GPUs) {
			gpus += fmt.Sprintf(" (%s of whole ones)", strconv.FormatFloat(j.GPUShare, 'g', 3, 64))
		}
		parts = append(parts, gpus)
	}
	return strings.Join(parts, ", ")
}

func deviceLine(d *api.Device) string {
	text := fmt.Sprintf("#%d of %s", d.Device, d.Node)
	if d.Memory > 0 {
		text = model.BriefSize(uint64(d.Memory)) + " of " + text
	}
	if d.Borrowed {
		text += ", borrowed for " + d.For
	}
	return text
}

func memoryOf(n int64) string {
	if n == 0 {
		return "any memory"
	}
	return model.BriefSize(uint64(n))
}

func ifTrue(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}
