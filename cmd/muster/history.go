package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/model"
	"muster/model/slurmopt"
	"muster/report"
)

// historyField is a column of sacct.
type historyField struct {
	name  string
	right bool
	value func(j *api.Job) string
}

var historyFields = []historyField{
	{"JobID", false, jobName},
	{"JobIDRaw", false, func(j *api.Job) string { return strconv.FormatUint(j.ID, 10) }},
	{"JobName", false, func(j *api.Job) string { return j.Name }},
	{"User", false, func(j *api.Job) string { return j.User }},
	{"Group", false, func(j *api.Job) string { return j.Account }},
	{"Account", false, func(j *api.Job) string { return j.Account }},
	{"Partition", false, func(j *api.Job) string { return j.Partition }},
	{"QOS", false, func(j *api.Job) string { return j.QOS }},
	{"State", false, func(j *api.Job) string { return string(j.State) }},
	{"ExitCode", true, func(j *api.Job) string { return fmt.Sprintf("%d:%d", j.ExitCode, j.Signal) }},
	{"Submit", false, func(j *api.Job) string { return historyInstant(j.Submit) }},
	{"Eligible", false, func(j *api.Job) string { return historyInstant(j.Eligible) }},
	{"Start", false, func(j *api.Job) string { return historyInstant(j.Start) }},
	{"End", false, func(j *api.Job) string { return historyInstant(j.End) }},
	{"Elapsed", true, func(j *api.Job) string {
		return model.FormatDuration(time.Duration(max(0, j.Elapsed)) * time.Second)
	}},
	{"ElapsedRaw", true, func(j *api.Job) string { return strconv.FormatInt(int64(max(0, j.Elapsed)), 10) }},
	{"Timelimit", true, func(j *api.Job) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return model.FormatDuration(time.Duration(j.TimeLimit) * time.Second)
	}},
	{"TimelimitRaw", true, func(j *api.Job) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return strconv.FormatInt(int64(j.TimeLimit+59)/60, 10)
	}},
	{"NNodes", true, func(j *api.Job) string { return strconv.Itoa(nodeCount(j)) }},
	{"NCPUS", true, func(j *api.Job) string { return strconv.Itoa(j.Cores) }},
	{"ReqMem", true, func(j *api.Job) string { return slurmSize(j.Memory) }},
	{"ReqTRES", false, func(j *api.Job) string { return tresOf(j) }},
	{"AllocTRES", false, func(j *api.Job) string {
		if j.Start == 0 {
			return ""
		}
		return tresOf(j)
	}},
	{"NodeList", false, func(j *api.Job) string {
		if list := nodeListOf(j); list != "" {
			return list
		}
		return "None assigned"
	}},
	{"Priority", true, func(j *api.Job) string { return strconv.FormatInt(j.Priority, 10) }},
	{"TotalCPU", true, func(j *api.Job) string {
		return model.FormatDuration(time.Duration(max(0, j.CPUTime) * float64(time.Second)).Truncate(time.Millisecond))
	}},
	{"MaxRSS", true, func(j *api.Job) string {
		if j.Peak == 0 {
			return ""
		}
		return strconv.FormatInt(j.Peak>>10, 10) + "K"
	}},
	{"Restarts", true, func(j *api.Job) string { return strconv.FormatUint(uint64(j.Requeues), 10) }},
	{"Comment", false, func(j *api.Job) string { return j.Comment }},
	{"WorkDir", false, func(j *api.Job) string { return j.Directory }},
	{"SubmitLine", false, func(j *api.Job) string { return j.Options }},
}

const (
	// historyFormat is sacct's own choice, historyLog what a simulation needs.
	historyFormat = "JobID,JobName,Partition,Account,NCPUS,State,ExitCode"
	historyLog    = "JobID,User,Group,Account,Partition,JobName,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NCPUS,ReqMem,ReqTRES,AllocTRES,State,Priority,TotalCPU"
)

const historyHelp = `List jobs that have ended, as sacct does: those that ended today or, with -S and -E, in
that time. -P writes values with | between them, and unless --format says otherwise all
that a simulation needs: the output is a log that muster sim, muster workload and other
tools read.

Times are 16:30, 2026-11-30, 2026-11-30T16:30, now-7days and what else sacct takes. The
fields are JobID, JobIDRaw, JobName, User, Group, Account, Partition, QOS, State,
ExitCode, Submit, Eligible, Start, End, Elapsed, ElapsedRaw, Timelimit, TimelimitRaw,
NNodes, NCPUS, ReqMem, ReqTRES, AllocTRES, NodeList, Priority, TotalCPU, MaxRSS,
Restarts, Comment, WorkDir, SubmitLine; NAME%20 has a width of 20.

Remote GPUs are counted apart in AllocTRES: gres/rgpu is how many there are, gres/rgpumem
how much memory a job has of each, if they are shared.`

// historyFlags are the flags of muster history.
type historyFlags struct {
	askFlags
	since, until, format               string
	users, jobs, states                []string
	me, all, parsable, noHeader, asRaw bool
}

func newHistory() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use:   "history [-S TIME] [-E TIME] [-u USER] [-j JOB] [-s STATE] [-P] [--format FIELDS] [--json]",
		Short: "List the jobs that have ended",
		Long:  historyHelp + askHelp,
		Example: `  muster history -S now-7days -u alice
  muster history --format JobID,JobName%20,Elapsed,State,ExitCode
  muster history -S 2026-11-01 -P > november.txt
  muster history -P | muster sim --workload - --cluster small --policy easy,rgpu
  muster sim --workload november.txt --cluster ours.yaml --policy g-queue,r-queue`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.add(c)
	flags.StringVarP(&f.since, "starttime", "S", "", "jobs that ended since this `time` (default: midnight)")
	flags.StringVarP(&f.until, "endtime", "E", "", "jobs that ended before this `time` (default: now)")
	flags.StringSliceVarP(&f.users, "user", "u", nil, "jobs of these `users` (default: all)")
	flags.BoolVar(&f.me, "me", false, "my jobs")
	flags.BoolVarP(&f.all, "allusers", "a", false, "jobs of all users, as without -u")
	flags.StringArrayVarP(&f.jobs, "jobs", "j", nil, "these `jobs`, whenever they ended")
	flags.StringSliceVarP(&f.states, "state", "s", nil, "jobs that ended in these `states`")
	flags.StringVarP(&f.format, "format", "o", "", "the `fields` to show")
	flags.BoolVarP(&f.parsable, "parsable2", "P", false, "write values with | between them")
	flags.BoolVarP(&f.noHeader, "noheader", "n", false, "no line with the names of the fields")
	flags.BoolVar(&f.asRaw, "json", false, "print one JSON document")
	flags.BoolP("allocations", "X", false, "accepted: there are no steps here")
	return c
}

func (f *historyFlags) run(c *cobra.Command) error {
	fields, widths, err := f.fields()
	if err != nil {
		return err
	}
	period, err := f.period(time.Now())
	if err != nil {
		return err
	}
	h, err := f.open()
	if err != nil {
		return err
	}
	jobs, err := f.list(c, h, period)
	if err != nil {
		return err
	}
	switch {
	case f.asRaw:
		return printJSON(c, api.Jobs{Jobs: jobs})
	case f.parsable:
		return writeSacct(c.OutOrStdout(), fields, jobs, !f.noHeader)
	}
	return f.writeTable(c.OutOrStdout(), fields, widths, jobs)
}

// fields are the columns that are wanted, and their widths, 0 for as much as it takes.
func (f *historyFlags) fields() ([]*historyField, []int, error) {
	list := f.format
	switch {
	case list == "" && f.parsable:
		list = historyLog
	case list == "":
		list = historyFormat
	}
	var fields []*historyField
	var widths []int
	var known []string
	for i := range historyFields {
		known = append(known, historyFields[i].name)
	}
	for item := range strings.SplitSeq(list, ",") {
		name, size, sized := strings.Cut(item, "%")
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if at < 0 {
			if near := model.Nearest(name, known); near != "" {
				return nil, nil, usageErrorf("there is no field %q: did you mean %s?", name, near)
			}
			return nil, nil, usageErrorf("there is no field %q: it is one of %s", name, strings.Join(known, ", "))
		}
		width := 0
		if sized {
			var err error
			if width, err = strconv.Atoi(strings.TrimPrefix(size, "-")); err != nil || width < 1 || width > 999 {
				return nil, nil, usageErrorf("--format %q: behind %% stands a width from 1 to 999", item)
			}
		}
		fields, widths = append(fields, &historyFields[at]), append(widths, width)
	}
	return fields, widths, nil
}

// period is when jobs must have ended. Named jobs are looked for at all times.
func (f *historyFlags) period(now time.Time) (headclient.Period, error) {
	p := headclient.Period{User: only(f.users)}
	year, month, day := now.Date()
	if len(f.jobs) == 0 {
		p.Since = time.Date(year, month, day, 0, 0, 0, 0, now.Location())
	}
	var err error
	if f.since != "" {
		if p.Since, err = pastMoment(f.since, now); err != nil {
			return p, usageErrorf("--starttime: %v", err)
		}
	}
	if f.until != "" {
		if p.Until, err = pastMoment(f.until, now); err != nil {
			return p, usageErrorf("--endtime: %v", err)
		}
		if !p.Until.After(p.Since) {
			return p, usageErrorf("--endtime %s is not after --starttime", f.until)
		}
	}
	return p, nil
}

// pastMoment reads a time of a history: one without a date is today's, one without a
// year is this year's, and now-7days is a week ago.
func pastMoment(s string, now time.Time) (time.Time, error) {
	if back, ok := strings.CutPrefix(strings.ToLower(s), "now-"); ok {
		m, err := slurmopt.ParseMoment("now+" + back)
		if err != nil {
			return now, fmt.Errorf("%q is no time: write now-7days, 16:30, 2026-11-30 or 2026-11-30T16:30", s)
		}
		return now.Add(-m.After), nil
	}
	m, err := slurmopt.ParseMoment(s)
	if err != nil {
		return now, err
	}
	year, month, day := now.Date()
	switch {
	case m.Month > 0 && m.Year == 0:
		m.Year = year
	case m.Month == 0 && m.HasClock && !m.Today:
		m.Year, m.Month, m.Day = year, int(month), day
	}
	return m.Time(now), nil
}

func (f *historyFlags) list(c *cobra.Command, h *headclient.Head, p headclient.Period) ([]api.Job, error) {
	users := f.users
	if f.me {
		var err error
		if users, err = withMe(c, h, users); err != nil {
			return nil, err
		}
		p.User = only(users)
	}
	states, err := readStates(strings.Join(f.states, ","))
	if err != nil {
		return nil, err
	}
	ids, err := jobIDs(f.jobs)
	if err != nil {
		return nil, err
	}
	jobs, err := h.History(c.Context(), p)
	if err != nil {
		return nil, err
	}
	if jobs == nil {
		jobs = []api.Job{}
	}
	isNamed := setOf(ids)
	return slices.DeleteFunc(jobs, func(j api.Job) bool {
		return !wanted(users, j.User) || states != nil && !slices.Contains(states, j.State) || len(ids) > 0 && !named(isNamed, &j)
	}), nil
}

// writeSacct writes what sacct -P does. Bars and line ends in names would break it.
func writeSacct(w io.Writer, fields []*historyField, jobs []api.Job, header bool) error {
	var b strings.Builder
	clean := strings.NewReplacer("|", "_", "\n", " ", "\r", " ")
	line := func(value func(*historyField) string) {
		for i, f := range fields {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString(clean.Replace(value(f)))
		}
		b.WriteByte('\n')
	}
	if header {
		line(func(f *historyField) string { return f.name })
	}
	for i := range jobs {
		line(func(f *historyField) string { return f.value(&jobs[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *historyFlags) writeTable(w io.Writer, fields []*historyField, widths []int, jobs []api.Job) error {
	var t report.Table
	for _, field := range fields {
		t.Columns = append(t.Columns, report.Column{Name: field.name, Right: field.right})
	}
	for i := range jobs {
		var row []string
		for k, field := range fields {
			value := field.value(&jobs[i])
			if widths[k] > 0 {
				value = short(value, widths[k])
			}
			row = append(row, printable(value))
		}
		t.Rows = append(t.Rows, row)
	}
	if f.noHeader {
		return writeColumns(w, nil, t.Rows, -1)
	}
	return writeTable(w, &t)
}

// historyInstant is a time as sacct writes it.
func historyInstant(seconds float64) string {
	if seconds == 0 {
		return "Unknown"
	}
	return instantText(seconds)
}

func nodeCount(j *api.Job) int { return max(j.NumNodes, len(j.Nodes)) }

// tresOf writes what a job has as Slurm does: cpu=4,mem=8G,node=1,gres/gpu=2.
func tresOf(j *api.Job) string {
	words := []string{"cpu=" + strconv.Itoa(j.Cores)}
	if j.Memory > 0 {
		words = append(words, "mem="+slurmSize(j.Memory))
	}
	words = append(words, "node="+strconv.Itoa(nodeCount(j)))
	gpus := gpusAsked(j)
	if gpus.local > 0 {
		words = append(words, "gres/gpu="+strconv.Itoa(gpus.local))
	}
	if gpus.remote > 0 {
		words = append(words, "gres/rgpu="+strconv.Itoa(gpus.remote))
	}
	if gpus.share > 0 {
		words = append(words, "gres/rgpumem="+slurmSize(gpus.share))
	}
	return strings.Join(words, ",")
}

// jobGPUs are the GPUs of a job: those in its own nodes, those of any, and how much
// memory it has of each of the latter, 0 for all.
type jobGPUs struct {
	local, remote int
	share         int64
}

// gpusAsked counts a job's GPUs by what it asked for. Which devices it got tells less:
// a remote GPU may happen to be in the job's own node. That must do for a job with
// alternatives, of which it is not said which one was taken.
func gpusAsked(j *api.Job) jobGPUs {
	if words, err := slurmopt.Words(j.Options); err == nil {
		argv := []string{slurmopt.Submit}
		for _, w := range words {
			argv = append(argv, w.Text)
		}
		if o, err := slurmopt.Parse(argv); err == nil && len(o.Alternatives) == 0 {
			asked := jobGPUs{local: o.Request.GPUs * max(1, nodeCount(j))}
			if m := o.Request.Remote; m != nil {
				asked.remote = m.Count
				if m.Shared {
					asked.share = m.Memory
				}
			}
			if asked.local+asked.remote == j.GPUs {
				return asked
			}
		}
	}
	got := jobGPUs{local: j.GPUs}
	for _, d := range j.Devices {
		if d.Borrowed {
			got.local--
			got.remote++
		}
	}
	got.local = max(0, got.local)
	return got
}
