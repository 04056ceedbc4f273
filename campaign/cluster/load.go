package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/head/client"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// body is the script of every process of a job: it writes a line at its beginning and one at its
// end.
const body = `say() { echo "$1 $MUSTER_RESTART_COUNT $MUSTER_NODEID $EPOCHREALTIME" >> "$CHAOS_LINES/$MUSTER_JOB_ID"; }
say begin
%s
status=$?
say end
exit $status
`

// asked is a submission, with what was done to its jobs.
type asked struct {
	name    string // unique
	doc     api.Submission
	tasks   int // number of jobs that it becomes
	parts   int // number of begin lines that one attempt of each job writes
	gpus    bool
	requeue bool // its jobs may be started more than once

	job       uint64 // 0 until the head has acknowledged it
	cancelled map[uint64]bool
	requeued  map[uint64]bool
}

// load submits jobs, and cancels and requeues some of them.
type load struct {
	head    *client.Head
	random  *rand.Rand
	dir     string
	mark    string
	gpu     string // the program that uses GPUs; "" if there is none
	nodes   []*machine
	width   int
	borrow  bool // most jobs borrow GPUs, as only these are hurt
	violate func(format string, args ...any)
	say     func(format string, args ...any)

	mu  sync.Mutex
	all []*asked
}

// draw makes the next submission.
func (l *load) draw() *asked {
	a := &asked{name: fmt.Sprintf("job%d", len(l.all)+1), tasks: 1, parts: 1, cancelled: map[uint64]bool{}, requeued: map[uint64]bool{}}
	options := []string{"-J", a.name, "--mem=512M", "-o", filepath.Join(l.dir, "out", "%j.txt")}
	environment := []string{"PATH=" + os.Getenv("PATH"), markVariable + "=" + l.mark, "CHAOS_LINES=" + filepath.Join(l.dir, "lines")}
	work := fmt.Sprintf("sleep %.2f", 0.05+l.random.Float64()*1.5)
	use := fmt.Sprintf("%s %d", l.gpu, 5+l.random.IntN(60))
	at := l.nodes[l.random.IntN(len(l.nodes))]
	alone := func() { environment = append(environment, wholeVariable+"=1") }
	kind := l.random.IntN(10)
	if l.borrow && l.random.IntN(2) == 0 {
		kind = 7
	}
	if l.gpu == "" {
		kind = min(kind, 4)
	}
	command := false
	switch kind {
	case 0: // the shortest possible job
		work = ":"
	case 1:
		options = append(options, fmt.Sprintf("-c%d", 1+l.random.IntN(3)))
	case 2:
		a.tasks = 2 + l.random.IntN(4)
		options = append(options, fmt.Sprintf("-a1-%d%%3", a.tasks))
	case 3:
		command, a.parts = true, 2
		options = append(options, "-N2", "-n2")
	case 4: // additional processes that leave the job's session
		work = "(setsid sleep 300 &)\n" + work
	case 5, 6:
		a.gpus, work = true, use
		options = append(options, "--gres=gpu:1")
		alone()
	case 7: // more GPUs than its node has, so that it borrows
		a.gpus, work = true, use
		options = append(options, "-w", at.name, fmt.Sprintf("--gres=rgpu:%d", at.gpus+1))
		alone()
	case 8:
		a.gpus, work = true, use
		options = append(options, "--gres=rgpu:1")
		alone()
	case 9:
		a.gpus, work = true, use
		options = append(options, fmt.Sprintf("--gres=rgpu:%d:6M", 1+l.random.IntN(3)))
	}
	if l.random.IntN(3) == 0 {
		a.requeue = true
		options = append(options, "--requeue")
	}
	text := fmt.Sprintf(body, work)
	a.doc = api.Submission{Options: options, Directory: l.dir, Environment: environment, Key: l.mark + a.name}
	if command {
		a.doc.Arguments = []string{"bash", "-c", text}
	} else {
		a.doc.Script = "#!/bin/bash\n" + text
	}
	return a
}

// run keeps a number of jobs in the cluster until the context ends.
func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		jobs, err := l.jobs(ctx)
		if err != nil {
			time.Sleep(20 * time.Millisecond) // the head does not answer
			continue
		}
		active := slices.DeleteFunc(others(jobs), func(j api.Job) bool { return j.State.Over() })
		if len(active) < l.width {
			l.submit(ctx)
		}
		if len(active) > 0 && l.random.IntN(12) == 0 {
			l.change(ctx, &active[l.random.IntN(len(active))])
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(l.random.IntN(100)) * time.Millisecond):
		}
	}
}

// askTime is the time limit for an answer of the head. A stopped head does not answer.
const askTime = 3 * time.Second

func (l *load) jobs(ctx context.Context) ([]api.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return l.head.Jobs(ctx, client.Query{})
}

// submit submits a job, and repeats that until the head answers. The submission's key prevents
// duplicates.
func (l *load) submit(ctx context.Context) {
	l.mu.Lock()
	a := l.draw()
	l.all = append(l.all, a)
	l.mu.Unlock()
	for {
		// Complete what was begun, so that it is known whether the job exists.
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		answer, err := l.head.Submit(ask, &a.doc)
		cancel()
		var refused *client.Refused
		switch {
		case err == nil:
			l.mu.Lock()
			a.job = answer.Job
			l.mu.Unlock()
			return
		case errors.As(err, &refused) && refused.Status < 500:
			l.violate("submission %s was refused: %v", a.name, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// change cancels or requeues a job. If the head does not answer, it may or may not have done so,
// and the checks must accept both.
func (l *load) change(ctx context.Context, j *api.Job) {
	a := l.of(j)
	if a == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	id := strconv.FormatUint(j.ID, 10)
	if j.ArrayTask != nil { // its ID alone may be that of the whole array
		id = fmt.Sprintf("%d_%d", j.ArrayJob, *j.ArrayTask)
	}
	if j.ArrayTasks != "" { // the first of them
		if tasks, err := slurmopt.ParseTasks(j.ArrayTasks); err == nil {
			id = fmt.Sprintf("%d_%d", j.ArrayJob, tasks.At(0))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.random.IntN(3) > 0 {
		a.cancelled[j.ID] = true
		_, err := l.head.Cancel(ctx, id, "")
		l.say("cancel %d: %v", j.ID, err)
		return
	}
	a.requeued[j.ID] = true
	_, err := l.head.Change(ctx, id, "requeue", nil)
	l.say("requeue %d: %v", j.ID, err)
}

// of finds the submission of a job.
func (l *load) of(j *api.Job) *asked {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if a.name == strings.TrimSpace(j.Name) {
			return a
		}
	}
	return nil
}
