package jobtable

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/model/slurmopt"
	"muster/report"
	"muster/wire/api"
)

// sacctField is a column of sacct.
type sacctField struct {
	name  string
	right bool
	value func(j *api.Job) string
}

var sacctFields = []sacctField{
	{"JobID", false, Name},
	{"JobIDRaw", false, func(j *api.Job) string { return strconv.FormatUint(j.ID, 10) }},
	{"JobName", false, func(j *api.Job) string { return j.Name }},
	{"User", false, func(j *api.Job) string { return j.User }},
	{"Group", false, func(j *api.Job) string { return j.Account }},
	{"Account", false, func(j *api.Job) string { return j.Account }},
	{"Partition", false, func(j *api.Job) string { return j.Partition }},
	{"QOS", false, func(j *api.Job) string { return j.QOS }},
	{"State", false, func(j *api.Job) string { return string(j.State) }},
	{"ExitCode", true, func(j *api.Job) string { return fmt.Sprintf("%d:%d", j.ExitCode, j.Signal) }},
	{"Submit", false, func(j *api.Job) string { return sacctInstant(j.Submit) }},
	{"Eligible", false, func(j *api.Job) string { return sacctInstant(j.Eligible) }},
	{"Start", false, func(j *api.Job) string { return sacctInstant(j.Start) }},
	{"End", false, func(j *api.Job) string { return sacctInstant(j.End) }},
	{"Elapsed", true, func(j *api.Job) string {
		return units.FormatDuration(time.Duration(max(0, j.Elapsed)) * time.Second)
	}},
	{"ElapsedRaw", true, func(j *api.Job) string { return strconv.FormatInt(int64(max(0, j.Elapsed)), 10) }},
	{"Timelimit", true, func(j *api.Job) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return units.FormatDuration(time.Duration(j.TimeLimit) * time.Second)
	}},
	{"TimelimitRaw", true, func(j *api.Job) string {
		if j.TimeLimit == 0 {
			return "UNLIMITED"
		}
		return strconv.FormatInt(int64(j.TimeLimit+59)/60, 10)
	}},
	{"NNodes", true, func(j *api.Job) string { return strconv.Itoa(nodeCount(j)) }},
	{"NCPUS", true, func(j *api.Job) string { return strconv.Itoa(j.Cores) }},
	{"ReqMem", true, func(j *api.Job) string { return Size(j.Memory) }},
	{"ReqTRES", false, func(j *api.Job) string { return tresOf(j) }},
	{"AllocTRES", false, func(j *api.Job) string {
		if j.Start == 0 {
			return ""
		}
		return tresOf(j)
	}},
	{"NodeList", false, func(j *api.Job) string {
		if list := NodeList(j); list != "" {
			return list
		}
		return "None assigned"
	}},
	{"Priority", true, func(j *api.Job) string { return strconv.FormatInt(j.Priority, 10) }},
	{"TotalCPU", true, func(j *api.Job) string {
		return units.FormatDuration(time.Duration(max(0, j.CPUTime) * float64(time.Second)).Truncate(time.Millisecond))
	}},
	{"MaxRSS", true, func(j *api.Job) string {
		if j.Peak == 0 {
			return ""
		}
		return strconv.FormatInt(j.Peak>>10, 10) + "K"
	}},
	{"Restarts", true, func(j *api.Job) string { return strconv.FormatUint(uint64(j.Requeues), 10) }},
	{"PreemptedBy", false, func(j *api.Job) string {
		if n := len(j.Preempted); n > 0 {
			return j.Preempted[n-1].By
		}
		return ""
	}},
	{"Comment", false, func(j *api.Job) string { return j.Comment }},
	{"WorkDir", false, func(j *api.Job) string { return j.Directory }},
	{"SubmitLine", false, func(j *api.Job) string { return j.Options }},
}

// Sacct is the selection of columns for jobs that have ended.
type Sacct struct {
	fields []*sacctField
	widths []int // 0 means as wide as needed
}

// ParseSacct parses sacct's --format: NAME[%WIDTH],...
func ParseSacct(list string) (*Sacct, error) {
	s := &Sacct{}
	var known []string
	for i := range sacctFields {
		known = append(known, sacctFields[i].name)
	}
	for item := range strings.SplitSeq(list, ",") {
		name, size, sized := strings.Cut(item, "%")
		at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if at < 0 {
			if near := model.Nearest(name, known); near != "" {
				return nil, fmt.Errorf("there is no field %q: did you mean %s?", name, near)
			}
			return nil, fmt.Errorf("there is no field %q: it is one of %s", name, strings.Join(known, ", "))
		}
		width := 0
		if sized {
			var err error
			if width, err = strconv.Atoi(strings.TrimPrefix(size, "-")); err != nil || width < 1 || width > 999 {
				return nil, fmt.Errorf("--format %q: behind %% stands a width from 1 to 999", item)
			}
		}
		s.fields, s.widths = append(s.fields, &sacctFields[at]), append(s.widths, width)
	}
	return s, nil
}

// WriteParsable writes the format of sacct -P. It replaces bars and line ends in names, which would
// break it.
func (s *Sacct) WriteParsable(w io.Writer, jobs []api.Job, header bool) error {
	var b strings.Builder
	clean := strings.NewReplacer("|", "_", "\n", " ", "\r", " ")
	line := func(value func(*sacctField) string) {
		for i, f := range s.fields {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString(clean.Replace(value(f)))
		}
		b.WriteByte('\n')
	}
	if header {
		line(func(f *sacctField) string { return f.name })
	}
	for i := range jobs {
		line(func(f *sacctField) string { return f.value(&jobs[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Table is the jobs as a table for people.
func (s *Sacct) Table(jobs []api.Job) *report.Table {
	t := &report.Table{}
	for _, f := range s.fields {
		t.Columns = append(t.Columns, report.Column{Name: f.name, Right: f.right})
	}
	for i := range jobs {
		var row []string
		for k, f := range s.fields {
			value := f.value(&jobs[i])
			if s.widths[k] > 0 {
				value = report.Short(value, s.widths[k])
			}
			row = append(row, report.Printable(value))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sacctInstant writes a time as sacct does.
func sacctInstant(seconds float64) string {
	if seconds == 0 {
		return "Unknown"
	}
	return Instant(seconds)
}

func nodeCount(j *api.Job) int { return max(j.NumNodes, len(j.Nodes)) }

// tresOf writes a job's resources as Slurm does: cpu=4,mem=8G,node=1,gres/gpu=2.
func tresOf(j *api.Job) string {
	words := []string{"cpu=" + strconv.Itoa(j.Cores)}
	if j.Memory > 0 {
		words = append(words, "mem="+Size(j.Memory))
	}
	words = append(words, "node="+strconv.Itoa(nodeCount(j)))
	gpus := gpusAsked(j)
	if gpus.local > 0 {
		words = append(words, "gres/gpu="+strconv.Itoa(gpus.local))
	}
	if gpus.memory > 0 {
		words = append(words, "gres/gpumem="+Size(gpus.memory))
	}
	if gpus.remote > 0 {
		words = append(words, "gres/rgpu="+strconv.Itoa(gpus.remote))
	}
	if gpus.share > 0 {
		words = append(words, "gres/rgpumem="+Size(gpus.share))
	}
	return strings.Join(words, ",")
}

// gpuCount has the GPUs of a job: those on its own nodes, those on any node, and the memory that it
// has of each of the former and of the latter (0 for all).
type gpuCount struct {
	local, remote int
	memory, share int64
}

// gpusAsked counts a job's GPUs by its request. The devices that it got say less, because a remote
// GPU may happen to be on the job's own node. For a job with alternatives it uses the main request,
// because the job does not say which one was granted.
func gpusAsked(j *api.Job) gpuCount {
	if o, err := slurmopt.ParseSubmitted(j.Options); err == nil && len(o.Alternatives) == 0 {
		asked := gpuCount{local: o.Request.GPUs * max(1, nodeCount(j)), memory: o.Request.GPUMemory}
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
	got := gpuCount{local: j.GPUs}
	for _, d := range j.Devices {
		if d.Borrowed {
			got.local--
			got.remote++
		}
	}
	got.local = max(0, got.local)
	return got
}
