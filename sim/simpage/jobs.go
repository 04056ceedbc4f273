package simpage

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/report"
	"muster/sim"
)

// label names a run within the study.
func (s *Study) label(r *Run) string {
	name := r.Policy
	if len(s.Nodes) > 1 {
		name += fmt.Sprintf(" on %d nodes", r.Nodes)
	}
	if len(s.Seeds) > 1 {
		name += fmt.Sprintf(" with seed %d", r.Seed)
	}
	return name
}

// ImpossibleJobs are jobs that cannot run, with the runs in which they cannot.
type ImpossibleJobs struct {
	Runs  []string
	Count int
	First []string // the first of them, with reasons
}

// Impossible groups the runs by their impossible jobs, and names the first few of each group.
func (s *Study) Impossible(few int) []ImpossibleJobs {
	var groups []ImpossibleJobs
	for i := range s.Runs {
		r := &s.Runs[i]
		var g ImpossibleJobs
		for _, job := range slices.Sorted(maps.Keys(r.Result.Reasons)) {
			if g.Count++; g.Count <= few {
				g.First = append(g.First, fmt.Sprintf("job %s %s", r.Result.Jobs[job].ID, r.Reason(job)))
			}
		}
		if g.Count == 0 {
			continue
		}
		same := slices.IndexFunc(groups, func(o ImpossibleJobs) bool { return o.Count == g.Count && slices.Equal(o.First, g.First) })
		if same < 0 {
			same = len(groups)
			groups = append(groups, g)
		}
		groups[same].Runs = append(groups[same].Runs, s.label(r))
	}
	return groups
}

// Reason says why a job is impossible.
func (r *Run) Reason(job int) string {
	return strings.TrimPrefix(r.Result.Reasons[job], policy.ErrImpossible.Error()+": ")
}

// maxReasons limits the reasons for waiting that are shown for a job; the JSON has all.
const maxReasons = 24

// Why says what the watched jobs waited for, in one text per job and run.
func (s *Study) Why() []string {
	var texts []string
	for i := range s.Runs {
		r := &s.Runs[i]
		var jobs []int
		for _, w := range r.Result.Watched {
			if !slices.Contains(jobs, w.Job) {
				jobs = append(jobs, w.Job)
			}
		}
		for _, job := range jobs {
			texts = append(texts, s.why(r, job))
		}
	}
	return texts
}

func (s *Study) why(r *Run, job int) string {
	j, o := &r.Result.Jobs[job], &r.Result.Outcomes[job]
	var lines [][2]string
	for _, w := range r.Result.Watched {
		if w.Job == job {
			lines = append(lines, [2]string{s.clock(w.At), w.Text})
		}
	}
	if extra := len(lines) - maxReasons; extra > 0 {
		half := maxReasons / 2
		between := [2]string{"...", fmt.Sprintf("%d more reasons; --json has all", extra)}
		lines = slices.Concat(lines[:half], [][2]string{between}, lines[len(lines)-half:])
	}
	asked := [][2]string{{s.clock(j.Submit), "submitted: " + Words(&j.Request)}}
	for i := range j.Alternatives {
		asked = append(asked, [2]string{"", fmt.Sprintf("or alternative %d: %s", i+1, Words(&j.Alternatives[i]))})
	}
	lines = slices.Insert(lines, 0, asked...)
	switch o.State {
	case sim.Finished:
		lines = append(lines, [2]string{s.clock(o.End), "finished after running for " + report.Duration((o.End - o.Start).Seconds())})
	case sim.Lost:
		lines = append(lines, [2]string{s.clock(o.End), "lost, after running for " + report.Duration((o.End - o.Start).Seconds())})
	case sim.Killed:
		lines = append(lines, [2]string{s.clock(o.End), "killed at its wall time of " + units.FormatDuration(j.As(int(o.Alternative)).WallTime) + r.slowedBy(job)})
	}
	width := 0
	for _, l := range lines {
		width = max(width, len(l[0]))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Job %s under %s: waited %s\n", j.ID, s.label(r), report.Duration((o.Start - j.Submit).Seconds()))
	for _, l := range lines {
		fmt.Fprintf(&b, "  %*s  %s\n", width, l[0], l[1])
	}
	return b.String()
}

// alternative names the alternative that a job was granted.
func alternative(j *model.Job, o *sim.Outcome) string {
	return fmt.Sprintf("alternative %d: %s", o.Alternative, Words(&j.Alternatives[o.Alternative-1]))
}

// clock writes an instant to the second, as reasons and steps do, with date and time if the log has
// them.
func (s *Study) clock(at time.Duration) string {
	if s.Start.IsZero() {
		return clock(at)
	}
	return clock(at) + s.Start.Add(at).Round(time.Second).Format(" (2006-01-02 15:04:05)")
}

// clock writes an instant after the beginning of the log, to the second.
func clock(at time.Duration) string { return units.FormatDuration(at.Round(time.Second)) }

// Words describes a request.
func Words(r *model.Request) string {
	var b strings.Builder
	switch cores := r.CoresOnNode(); {
	case r.Nodes == 0:
		b.WriteString(report.Plural(r.Cores, "core") + " anywhere")
		if r.CoresPerProcess > 1 {
			fmt.Fprintf(&b, ", %d together", r.CoresPerProcess)
		}
	case r.Nodes == 1:
		b.WriteString("1 node, " + report.Plural(cores, "core"))
	default:
		fmt.Fprintf(&b, "%d nodes, each with %s", r.Nodes, report.Plural(cores, "core"))
	}
	ofEach := "" // what each unit of cores takes in addition
	if r.Nodes == 0 {
		ofEach = " on each node"
	}
	if r.GPUs > 0 {
		what := "GPU"
		if r.GPUType != "" {
			what = r.GPUType + " GPU"
		}
		b.WriteString(", " + report.Plural(r.GPUs, what))
		if r.GPUMemory > 0 {
			b.WriteString(" of " + units.FormatSize(r.GPUMemory))
		}
		b.WriteString(ofEach)
	}
	if r.Memory > 0 {
		b.WriteString(", " + units.FormatSize(r.Memory) + ofEach)
	}
	if r.MemoryPerCore > 0 {
		b.WriteString(", " + units.FormatSize(r.MemoryPerCore) + " a core")
	}
	if r.Remote != nil {
		b.WriteString("; " + report.Plural(r.Remote.Count, "GPU"))
		if r.Remote.Memory > 0 {
			b.WriteString(" of " + units.FormatSize(r.Remote.Memory))
		}
		b.WriteString(" anywhere")
	}
	if r.Contiguous {
		b.WriteString("; next to each other")
	}
	if r.Exclusive {
		b.WriteString("; alone on them")
	}
	if len(r.NodeList) > 0 {
		b.WriteString("; only on " + model.CompressNodes(r.NodeList))
	}
	return b.String()
}

// WriteJobs writes a line for each job of each run, as CSV. The runs must have been recorded.
func (s *Study) WriteJobs(w io.Writer) error {
	out := csv.NewWriter(w)
	err := out.Write([]string{
		"policy", "seed", "nodes", "job", "user", "submit_s", "start_s", "end_s", "wait_s", "run_s", "slowdown", "state",
		"borrowed", "nodes_used", "node_list", "borrowed_from", "alternative", "blocks", "span", "environment",
	})
	for i := range s.Runs {
		r := &s.Runs[i]
		for job := range r.Result.Outcomes {
			if err == nil {
				err = out.Write(jobRow(r, job))
			}
		}
	}
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func jobRow(r *Run, job int) []string {
	j, o := &r.Result.Jobs[job], &r.Result.Outcomes[job]
	row := []string{r.Policy, strconv.FormatUint(r.Seed, 10), strconv.Itoa(r.Nodes), j.ID, j.User, seconds(j.Submit)}
	if !o.Ran() {
		return append(row, "", "", "", "", "", o.State.String(), "", "", "", "", "", "", "", "")
	}
	hosts, count := r.Recorder.Hosts(job)
	lenders, _ := r.Recorder.Lenders(job)
	wait, run := o.Start-j.Submit, o.End-o.Start
	return append(row, seconds(o.Start), seconds(o.End), seconds(wait), seconds(run),
		strconv.FormatFloat(sim.Slowdown(wait, run), 'f', 4, 64), o.State.String(),
		strconv.FormatBool(o.Borrowed), strconv.Itoa(count), hosts, lenders,
		strconv.Itoa(int(o.Alternative)), strconv.Itoa(int(o.Blocks)), strconv.Itoa(int(o.Span)), r.Recorder.Environment(job))
}

// seconds writes a time exactly, without trailing zeros.
func seconds(d time.Duration) string {
	text := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// slowedBy says why a killed job ran longer than in its log: the slowest of its GPUs, and the GPUs
// that it borrowed. It is "" if neither applies, or if no recorder observed the run.
func (r *Run) slowedBy(job int) string {
	j, o := &r.Result.Jobs[job], &r.Result.Outcomes[job]
	asked := j.As(int(o.Alternative))
	if asked.Run >= asked.WallTime {
		return ": it runs for " + report.Duration(asked.Run.Seconds()) + " in the log"
	}
	if r.Recorder == nil {
		return ""
	}
	var why []string
	if name, speed := r.Recorder.slowest(job); speed < 1 {
		why = append(why, fmt.Sprintf("%s has %s of the speed that the log's run times stand for", name, report.Number(speed)))
	}
	if lenders, count := r.Recorder.Lenders(job); count > 0 {
		why = append(why, "GPUs of "+lenders+" were borrowed over the network")
	}
	if len(why) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s; in the log it runs for %s", strings.Join(why, ", and "), report.Duration(asked.Run.Seconds()))
}
