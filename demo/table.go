package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/wire/api"
)

// conclude reports how the jobs ended and how busy the GPUs were. It returns an
// error if a result is wrong, or if anything of the jobs is still on the nodes.
func (d *tour) conclude() error {
	d.look()
	table, wrong := d.table()
	fmt.Fprintln(d.Out)
	if err := table.WriteText(d.Out); err != nil {
		return err
	}
	if err := errors.Join(wrong, d.told(), d.kept()); err != nil {
		return fmt.Errorf("%w\nThe logs end with %s", err, d.logs())
	}
	d.close(len(table.Rows) - len(d.skipped))
	return nil
}

// table shows how each job ended, and returns what is wrong with any.
func (d *tour) table() (*report.Table, error) {
	table := &report.Table{Columns: report.Columns("<JOB", "<NAME", "<RAN ON", "<GPUS", "<HOW", ">WAITED", ">RAN", "<RESULT")}
	var wrong []error
	for _, job := range d.jobs {
		for _, j := range d.seen.named(job.name) {
			err := d.judge(job, j)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("job %s (%s): %w", numberOf(j), j.Name, err))
			}
			table.Rows = append(table.Rows, d.row(j, err))
		}
	}
	for job, why := range d.skipped {
		table.Rows = append(table.Rows, []string{"-", job.name, "-", "-", "-", "-", "-", "skipped: " + why})
	}
	return table, errors.Join(wrong...)
}

// judge says what is wrong with what a job did.
func (d *tour) judge(job *submission, j *seenJob) error {
	if j.State != api.Completed {
		return fmt.Errorf("it ended as %s: %s\n%s", j.State, j.Why, indent(d.output(j)))
	}
	return job.check(d.output(j))
}

func (d *tour) output(j *seenJob) string {
	path := j.Output
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.dir, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	return string(text)
}

func (d *tour) row(j *seenJob, wrong error) []string {
	result := "right"
	if wrong != nil {
		result = "WRONG"
	}
	return []string{numberOf(j), j.Name, strings.Join(j.on, ", then "), placesOf(j), strings.Join(d.how(j), ", "),
		seconds(max(0, j.Start-j.Submit-j.lost)), seconds(j.Elapsed), result}
}

func seconds(n float64) string { return fmt.Sprintf("%.1f s", n) }

// numberOf is how users call a job.
func numberOf(j *seenJob) string {
	if j.ArrayTask != nil {
		return fmt.Sprintf("%d_%d", j.ArrayJob, *j.ArrayTask)
	}
	if j.ArrayTasks != "" {
		return fmt.Sprintf("%d_[%s]", j.ArrayJob, j.ArrayTasks)
	}
	return fmt.Sprint(j.ID)
}

// placesOf lists the GPUs that a job had, those of its own nodes first.
func placesOf(j *seenJob) string {
	var list []string
	for _, device := range j.Devices {
		if name := place(device.Node, device.Device); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, " ")
}

// how says in words what is special about how a job ran.
func (d *tour) how(j *seenJob) (words []string) {
	borrowed := 0
	for _, device := range j.Devices {
		if device.Borrowed {
			borrowed++
		}
	}
	if borrowed > 0 {
		words = append(words, fmt.Sprintf("borrowed %d", borrowed))
	}
	if others, programs := d.seen.others(j), d.seen.count(j); len(others) > 0 {
		words = append(words, "shared with "+numbersOf(others))
	} else if programs > len(j.Devices) && j.Requeues == 0 {
		words = append(words, fmt.Sprintf("shared by %d programs", programs))
	}
	if n := d.seen.swapped(j); n > 0 {
		words = append(words, "swapped "+units.BriefSize(n))
	}
	if j.suspended {
		words = append(words, "suspended")
	}
	if j.Requeues > 0 {
		words = append(words, fmt.Sprintf("requeued, %s lost", seconds(j.lost)))
	}
	if len(words) == 0 {
		words = []string{"-"}
	}
	return words
}

func numbersOf(jobs []*seenJob) string {
	var list []string
	for _, j := range jobs {
		list = append(list, numberOf(j))
	}
	return strings.Join(list, " ")
}

// kept says what nodes still have of jobs, all of which have ended.
func (d *tour) kept() error {
	var what []string
	err := d.until("the nodes still have something of jobs that have ended", func() bool {
		what = nil
		for name, s := range d.seen.status {
			for _, c := range s.Clients {
				what = append(what, fmt.Sprintf("%s has client %d of grant %s", name, c.ID, c.Grant))
			}
			if s.Committed > 0 {
				what = append(what, fmt.Sprintf("%s has %s of its swap area promised", name, units.BriefSize(s.Committed)))
			}
		}
		return len(what) == 0
	})
	if err != nil && len(what) > 0 {
		return fmt.Errorf("%s: %w", strings.Join(what, "; "), err)
	}
	return err
}

// told checks that the story was played: what is to be shown did happen.
func (d *tour) told() error {
	has := func(job *submission, what string, is func(*seenJob) bool) error {
		for _, j := range d.seen.named(job.name) {
			if is(j) {
				return nil
			}
		}
		return fmt.Errorf("job %s was not %s", job.name, what)
	}
	borrowed := func(j *seenJob) bool {
		return slices.ContainsFunc(j.Devices, func(d api.Device) bool { return d.Borrowed })
	}
	swapped := func(j *seenJob) bool { return d.seen.swapped(j) > 0 }
	return errors.Join(
		has(jobBorrows, "given borrowed GPUs", borrowed),
		has(jobShares, "sharing a GPU with others", func(j *seenJob) bool { return len(d.seen.others(j)) > 0 }),
		has(jobPatient, "suspended for the urgent one", func(j *seenJob) bool { return j.suspended }),
		has(jobPatient, "swapped", swapped),
		has(jobSurvives, "run again elsewhere", func(j *seenJob) bool { return len(j.on) > 1 && j.on[0] != j.on[len(j.on)-1] }),
	)
}

// close is the end of the story, in figures.
func (d *tour) close(jobs int) {
	begin, end := d.seen.span()
	var gpus []string
	for _, m := range d.machines {
		for i, device := range d.seen.devices(m.name) {
			if device.Lender != "" {
				continue // it counts where it is
			}
			// Programs that share a device have their kernels counted side by side.
			busy := min(end-begin, d.seen.busy[place(m.name, i)]+device.BusyTime)
			gpus = append(gpus, fmt.Sprintf("%s (%s, %s) %s", place(m.name, i), device.Name, units.BriefSize(device.Memory), report.Percent(busy/(end-begin))))
		}
	}
	var swapped uint64
	var programs int
	for _, j := range d.seen.jobs {
		swapped += d.seen.swapped(j)
		programs += d.seen.count(j)
	}
	fmt.Fprintf(d.Out, "\n%d jobs in %s: all results right. %s was killed in the middle, and came back.\n", jobs, seconds(end-begin), d.machines[2].name)
	fmt.Fprintf(d.Out, "GPUs were busy with kernels: %s of the time.\n", strings.Join(gpus, ", "))
	fmt.Fprintf(d.Out, "%d programs used them; %s of their memory were swapped out for others.\n", programs, units.BriefSize(swapped))
}
