package workload

import (
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"muster/model"
	"muster/model/slurmopt"
)

// submitDecoder reads submit lines: the time of submission, the run time, and then the options of
// the Slurm command, as in
//
//	0 165 -n4 -c1 --gres=rgpu:4:163M
//	90 1:30:00 sbatch -N2 -t 120 job.sh
//
// A command is accepted only after srun, sbatch or salloc, because otherwise a forgotten dash would
// turn an option into a command. Lines that start with # are comments.
type submitDecoder struct {
	*batch
	jobs int
}

func (d *submitDecoder) line(text []byte) *fault {
	line := string(text)
	trimmed := strings.TrimSpace(line)
	if trimmed == "" {
		return nil
	}
	if trimmed[0] == '#' {
		return d.keepComment(strings.TrimSpace(trimmed[1:]))
	}
	words, err := slurmopt.Words(line)
	if err != nil {
		return optionFault(err, 0, 1)
	}
	if len(words) < 2 {
		return faultf(len(line)+1, "a line has the submission, the run time and options, such as: 0 165 -n4 --gres=rgpu:4:1G")
	}
	var times [2]time.Duration
	for i, name := range []string{"submission", "run time"} {
		if words[i].Text == "" {
			return faultf(words[i].Column, "the %s is empty", name)
		}
		if times[i], err = parseSpan(words[i].Text); err != nil {
			return faultf(words[i].Column, "%s: %v", name, err)
		}
	}
	start := len(line)
	if len(words) > 2 {
		start = words[2].Column - 1
	}
	options, err := slurmopt.ParseLine(line[start:])
	if err != nil {
		return optionFault(err, start, start+1)
	}
	switch {
	case len(options.Command) > 0 && options.Tool == "":
		return faultf(start+1, "%q is no option: write a dash before it, or srun before the options if it is a command", options.Command[0])
	case len(options.Exclude) > 0:
		return faultf(start+1, "--exclude needs a cluster, which a log does not know: leave it out")
	case options.Request.Run > 0:
		return faultf(start+1, "--run is for alternatives: the run time is the second word of the line")
	}
	return d.add(options, times[0], times[1], start+1)
}

func (d *submitDecoder) add(o *slurmopt.Options, submit, run time.Duration, column int) *fault {
	d.jobs++
	j := d.job()
	o.Apply(j)
	d.own(&j.Request)
	for i := range j.Alternatives {
		d.own(&j.Alternatives[i])
	}
	j.ID = d.numeral(int64(d.jobs))
	j.Submit, j.Run = submit, run
	j.Queue, j.Group = d.word([]byte(j.Queue)), d.word([]byte(j.Group))
	l := unlogged
	switch {
	case o.Name != "":
		l.Executable = d.word([]byte(o.Name))
	case len(o.Command) > 0:
		l.Executable = d.word([]byte(path.Base(o.Command[0])))
	}
	j.Logged = d.log(l)
	if len(o.Notes) > 0 {
		d.note("taken otherwise than written: " + o.Notes[0])
	}
	return d.keep(column)
}

// own copies the texts of a request, so that they do not keep the whole line in memory.
func (d *submitDecoder) own(r *model.Request) {
	r.GPUType = d.word([]byte(r.GPUType))
	r.NodeList = slices.Clone(r.NodeList)
	for i, name := range r.NodeList {
		r.NodeList[i] = strings.Clone(name)
	}
}

// optionFault is the fault for an error in a word that starts at the given byte offset.
func optionFault(err error, after, unplaced int) *fault {
	var e *slurmopt.Error
	if !errors.As(err, &e) {
		return faultf(unplaced, "%v", err)
	}
	if e.Column == 0 {
		return faultf(unplaced, "%s", e.Reason)
	}
	return faultf(after+e.Column, "%s", e.Reason)
}

// isSubmit says whether a line is a submit line: two times, then an option or a command. In SWF, a
// third field with a dash is a number.
func isSubmit(line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 3 || strings.Contains(fields[0], ",") {
		return false
	}
	if _, err := parseSpan(fields[0]); err != nil {
		return false
	}
	if _, err := parseSpan(fields[1]); err != nil {
		return false
	}
	switch third := fields[2]; third {
	case "srun", "sbatch", "salloc":
		return true
	default:
		return len(third) > 1 && third[0] == '-' && (third[1] < '0' || third[1] > '9') && third[1] != '.'
	}
}
