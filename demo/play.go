package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"muster/node/programs"
)

// stepTime is how long any step of the demonstration may take: long enough for a machine that has much else
// to do.
const stepTime = 4 * time.Minute

// tour is the demonstration of a cluster while it is played.
type tour struct {
	cluster
	Options
	ctx     context.Context
	live    *liveView    // nil without a live view
	story   bytes.Buffer // what was told while there is one
	seen    *seen
	jobs    []*submission // that were submitted
	skipped map[*submission]string
	last    uint64 // the number of the last job
	shown   string // the address of the head's page, if it has one
}

// Play plays the demonstration in a folder, inside of its guard.
func Play(o *Options, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	runtime.LockOSThread() // the system ties the daemons to the thread that starts them
	if err := programs.AdoptOrphans(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	d := &tour{
		cluster: cluster{self: self, dir: dir, machines: newMachines()},
		Options: *o, ctx: ctx, seen: newSeen(), skipped: map[*submission]string{},
	}
	if d.Screen != nil {
		d.live = openScreen(d.Screen)
	}
	err = d.tell()
	d.closeScreen()
	if err == nil {
		err = d.conclude()
	}
	if err == nil && !d.Stay && d.shown != "" {
		fmt.Fprintln(d.Out, "To look at its page: muster demo --stay leaves it up.")
	}
	if err == nil && d.Stay {
		d.stay()
		sweep(d.dir) // jobs that users started may still run
		return nil
	}
	return d.end(err)
}

// closeScreen leaves the live view, and prints what was told meanwhile.
func (d *tour) closeScreen() {
	if d.live == nil {
		return
	}
	d.live.close()
	d.live = nil
	if d.ctx.Err() != nil {
		return // a user who interrupts it has seen enough
	}
	_, _ = d.story.WriteTo(d.Out)
}

// end stops the cluster. After an interrupt it does not wait for an orderly
// end.
func (d *tour) end(err error) error {
	if d.ctx.Err() != nil {
		sweep(d.dir)
		return Status(d.Interrupted)
	}
	err = errors.Join(err, d.stop())
	// The folder is this process's own, and still to be removed; nothing else may be there.
	groups := taskGroups(d.dir)
	for _, group := range groups {
		err = errors.Join(err, fmt.Errorf("the control group %s was left", group))
		removeGroup(group)
	}
	err = errors.Join(err, os.RemoveAll(d.dir))
	if left := sweep(d.dir); len(left) > 0 {
		err = errors.Join(err, errors.New(leftText(left)))
	}
	return err
}

// printf tells something, at once or when the live view has ended.
func (d *tour) printf(format string, args ...any) {
	w := d.Out
	if d.live != nil {
		w = &d.story
	}
	fmt.Fprintf(w, format, args...)
}

// tell is the story.
func (d *tour) tell() error {
	for _, step := range []func() error{d.begin, d.together, d.failure, d.again} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the cluster.
func (d *tour) begin() error {
	if err := d.prepare(d.Programs); err != nil {
		return err
	}
	d.printf("# A head and three nodes, all on this machine. To type along, elsewhere, while this runs:\n")
	d.printf("$ cd %s; export MUSTER_HEAD=%s PATH=%s:$PATH\n", d.dir, d.address, filepath.Dir(d.self))
	if err := d.startHead(); err != nil {
		return err
	}
	for i, m := range d.machines { // one after the other: the policy serves nodes in the order in which they came
		if err := d.startMachine(m); err != nil {
			return err
		}
		if err := d.until(m.name+" did not come", func() bool { return d.seen.nodesUp() > i }); err != nil {
			return err
		}
	}
	if d.shown = d.page(d.ctx); d.shown != "" {
		d.printf("# Its page, for one browser within a minute (muster page gives another address): %s\n", d.shown)
	}
	return d.show("nodes")
}

// together has jobs borrow, share and swap.
func (d *tour) together() error {
	jobs := []*submission{jobLocal, jobBorrows, jobShares}
	if why := d.noMPI(); why == "" {
		jobs = append(jobs, jobMPI)
	} else {
		d.skipped[jobMPI] = why
		d.printf("\n# the job with MPI is left out: %s\n", why)
	}
	if err := d.submit(jobs...); err != nil {
		return err
	}
	d.printf("\n")
	if err := d.show("queue"); err != nil {
		return err
	}
	return d.untilOver(jobs...)
}

// failure kills a node in the middle of a job.
func (d *tour) failure() error {
	victim := d.machines[2]
	if err := d.submit(jobBusy); err != nil {
		return err
	}
	if err := d.until("the GPUs of gpu1 were not taken", func() bool { return d.seen.kernels(jobBusy.name, "gpu1") > 0 }); err != nil {
		return err
	}
	if err := d.submit(jobSurvives); err != nil {
		return err
	}
	const enough = 40 // kernels: it is in the middle
	if err := d.until("the job did not run on "+victim.name, func() bool { return d.seen.kernels(jobSurvives.name, victim.name) >= enough }); err != nil {
		return err
	}
	d.printf("\n# %s loses power: its daemon, its agent and all that it runs are killed (SIGKILL)\n", victim.name)
	d.killMachine(victim)
	d.seen.lose(victim.name)
	if err := d.until("the head did not requeue the job of the node that was killed", func() bool { return d.seen.requeued(jobSurvives.name) }); err != nil {
		return err
	}
	if err := d.show("nodes"); err != nil {
		return err
	}
	if err := d.show("queue"); err != nil {
		return err
	}
	return d.untilOver(jobBusy, jobSurvives)
}

// again has the node come back, and all three GPUs used.
func (d *tour) again() error {
	d.printf("\n# %s is started again, and takes jobs\n", d.machines[2].name)
	if err := d.startMachine(d.machines[2]); err != nil {
		return err
	}
	if err := d.until("the node did not come back", func() bool { return d.seen.nodesUp() == len(d.machines) }); err != nil {
		return err
	}
	if err := d.submit(jobPatient); err != nil {
		return err
	}
	err := d.until("the patient jobs did not start", func() bool {
		return d.seen.kernels(jobPatient.name, "gpu1") >= 2 && d.seen.kernels(jobPatient.name, "gpu2") > 0
	})
	if err != nil {
		return err
	}
	if err := d.submit(jobUrgent, jobAfter); err != nil {
		return err
	}
	if err := d.until("the urgent job did not start", func() bool { return d.seen.kernels(jobUrgent.name, "gpu2") > 0 }); err != nil {
		return err
	}
	d.printf("\n")
	if err := d.show("queue"); err != nil {
		return err
	}
	return d.untilOver(jobPatient, jobUrgent, jobAfter)
}

// submit submits jobs as a user does, in sight.
func (d *tour) submit(jobs ...*submission) error {
	for _, j := range jobs {
		d.printf("\n# %s\n", j.why)
		words := j.words()
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "LAST", fmt.Sprint(d.last))
			words[i] = strings.ReplaceAll(words[i], "PATIENT", fmt.Sprint(d.seen.array(jobPatient.name)))
		}
		answer, err := d.run(words...)
		if err != nil {
			return err
		}
		if _, err := fmt.Sscanf(answer, "Submitted batch job %d", &d.last); err != nil {
			return fmt.Errorf("muster submit answered %q", answer)
		}
		d.jobs = append(d.jobs, j)
		d.look()
	}
	return nil
}

// show runs a command as a user would, in sight.
func (d *tour) show(words ...string) error {
	_, err := d.run(words...)
	return err
}

func (d *tour) run(words ...string) (string, error) {
	line := "$ muster"
	for _, w := range words {
		if strings.ContainsAny(w, " *$") {
			w = "'" + w + "'"
		}
		line += " " + w
	}
	var stdout, stderr bytes.Buffer
	cmd := d.command(d.ctx, words...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	d.printf("%s\n%s", line, stdout.String())
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.TrimPrefix(line, "$ "), err, stderr.String())
	}
	return stdout.String(), nil
}

// untilOver waits until jobs have ended.
func (d *tour) untilOver(jobs ...*submission) error {
	var list []string
	for _, j := range jobs {
		list = append(list, j.name)
	}
	return d.until("not all of the jobs ended: "+strings.Join(list, ", "), func() bool {
		for _, j := range jobs {
			if d.seen.over(j.name) < max(1, j.count) {
				return false
			}
		}
		return true
	})
}

// until looks at the cluster again and again.
func (d *tour) until(otherwise string, done func() bool) error {
	late := time.After(stepTime)
	for {
		d.look()
		if done() {
			return nil
		}
		if err := d.failed(); err != nil {
			return err
		}
		select {
		case <-late:
			return fmt.Errorf("%s within %v: the logs end with %s", otherwise, stepTime, d.logs())
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stay leaves the cluster up until the user interrupts it.
func (d *tour) stay() {
	fmt.Fprintf(d.Out, "\nThe cluster stays up until Ctrl-C. In another terminal:\n  cd %s; export MUSTER_HEAD=%s PATH=%s:$PATH\n  muster nodes; muster history; muster whatif --now; muster page\n",
		d.dir, d.address, filepath.Dir(d.self))
	if page := d.page(d.ctx); page != "" {
		fmt.Fprintf(d.Out, "Its page, for one browser within a minute (muster page gives another address):\n  %s\n", page)
	}
	<-d.ctx.Done()
}
