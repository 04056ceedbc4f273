package clusterscheduler

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/exp/bench"
	"muster/head/api"
	"muster/head/client"
)

// programs are the examples that are run.
var programs = []string{mm.program, nw.program, adfa.program}

// setting is a cluster as a measurement wants it.
type setting struct {
	policy string
	hosts  []host
}

// living is a cluster that has been started: a head and nodes, each a process.
type living struct {
	setting
	tools   bench.Tools
	dir     string
	daemons []*daemon
	head    *client.Head
}

// daemon is a head or a node.
type daemon struct {
	name string
	cmd  *exec.Cmd
	life io.Closer    // a node ends when its standard input does
	log  bytes.Buffer // to be read when it has ended

	exited chan struct{}
}

// patienceUp is how long a cluster may take to come up, and patienceRun a run of jobs.
const (
	patienceUp  = time.Minute
	patienceRun = 5 * time.Minute
)

// startCluster starts a head and nodes, and waits until they know each other.
func startCluster(ctx context.Context, t bench.Tools, s setting) (*living, error) {
	dir, err := os.MkdirTemp("", "muster-"+name+"-")
	if err != nil {
		return nil, err
	}
	l := &living{setting: s, tools: t, dir: dir}
	if err := l.start(ctx); err != nil {
		l.stop()
		return nil, fmt.Errorf("%w\n%s", err, l.logs())
	}
	return l, nil
}

func (l *living) start(ctx context.Context) error {
	socket := "@muster-" + name + "-" + rand.Text()[:8]
	if err := os.Mkdir(filepath.Join(l.dir, "team"), 0o777); err != nil {
		return err
	}
	if err := l.launch("head", "head", "--policy", l.policy, "--socket", socket, "--state", filepath.Join(l.dir, "head"), "--log-level", "warn", "--text-log"); err != nil {
		return err
	}
	var err error
	if l.head, err = client.Open("unix:"+socket, ""); err != nil {
		return err
	}
	// One after the other: the order in which they come is that of the cluster.
	for i := range l.hosts {
		if err := l.launchNode(&l.hosts[i], socket); err != nil {
			return err
		}
		if err := l.awaitNodes(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// awaitNodes waits until so many nodes are in the cluster.
func (l *living) awaitNodes(ctx context.Context, count int) error {
	return until(ctx, patienceUp, fmt.Sprintf("node %d did not come", count), func() (bool, error) {
		nodes, err := l.head.Nodes(ctx)
		if errors.Is(err, client.ErrUnreachable) {
			return false, l.lost()
		}
		here := 0
		for _, n := range nodes {
			if n.Connected {
				here++
			}
		}
		return here == count, errors.Join(err, l.lost())
	})
}

func (l *living) launchNode(h *host, head string) error {
	file := filepath.Join(l.dir, h.name+".yaml")
	text := fmt.Sprintf("head: {address: \"unix:%s\", spool: %s, cores: %d, memory: %d}\n", head, filepath.Join(l.dir, h.name+".spool"), h.cores, nodeMemory)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	// No spare workers, no copies for recovery: what they take is not scaled, and would
	// come off what is measured. On a busy machine a worker may be late: none is killed.
	return l.launch(h.name, "node", "--config", file, "--child", "--name", h.name, "--socket", head+"-"+h.name, "--state", filepath.Join(l.dir, h.name+".state"), "--devices", h.devices(),
		"--vgpus", "32", "--recover", "off", "--warm", "0", "--migrate", "off", "--worker-timeout", "0s", "--grace", "1s", "--swap", "4GiB", "--log-level", "warn", "--text-log")
}

// launch starts a daemon of this program.
func (l *living) launch(name string, words ...string) error {
	d := &daemon{name: name, cmd: exec.Command(l.tools.Muster, words...), exited: make(chan struct{})}
	d.cmd.Env = append(bench.WithoutSettings(os.Environ()), "MUSTER_LIB="+l.tools.Lib)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var err error
	if d.life, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	l.daemons = append(l.daemons, d)
	go func() {
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	return nil
}

// lost says which daemon has ended by itself; nil if none.
func (l *living) lost() error {
	for _, d := range l.daemons {
		select {
		case <-d.exited:
			return fmt.Errorf("%s has ended: %v", d.name, d.cmd.ProcessState)
		default:
		}
	}
	return nil
}

// stop ends all, the nodes before the head, and removes what they had.
func (l *living) stop() {
	for _, d := range slices.Backward(l.daemons) {
		_ = d.cmd.Process.Signal(syscall.SIGINT)
		_ = d.life.Close()
	}
	for _, d := range l.daemons {
		<-d.exited
	}
	_ = os.RemoveAll(l.dir)
}

// logs is what the daemons complained about; they must have ended.
func (l *living) logs() string {
	var all strings.Builder
	for _, d := range l.daemons {
		if d.log.Len() > 0 {
			fmt.Fprintf(&all, "%s: %s\n", d.name, strings.TrimSpace(d.log.String()))
		}
	}
	return strings.TrimSpace(all.String())
}

// until asks again and again.
func until(ctx context.Context, patience time.Duration, otherwise string, done func() (bool, error)) error {
	late := time.After(patience)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-late:
			return fmt.Errorf("%s within %v", otherwise, patience)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// run submits jobs, in their order, waits until all have ended, and says what the head
// says of them.
func (l *living) run(ctx context.Context, seed uint64, jobs []job) ([]api.Job, error) {
	ids := make([]uint64, len(jobs))
	for i := range jobs {
		answer, err := l.head.Submit(ctx, l.submission(&jobs[i], seed))
		if err != nil {
			return nil, fmt.Errorf("submitting %s: %w", &jobs[i], err)
		}
		ids[i] = answer.Job
	}
	var ended []api.Job
	err := until(ctx, patienceRun, "the jobs did not end", func() (bool, error) {
		all, err := l.head.Jobs(ctx, client.Query{})
		if err != nil {
			return false, err
		}
		ended = make([]api.Job, len(ids))
		over := 0
		for _, j := range all {
			if at := slices.Index(ids, j.ID); at >= 0 && j.State.Over() {
				ended[at] = j
				over++
			}
		}
		return over == len(ids), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, l.waiting(ctx))
	}
	for i := range ended {
		if err := l.check(&jobs[i], &ended[i]); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// waiting says what became of jobs that did not end.
func (l *living) waiting(ctx context.Context) string {
	jobs, err := l.head.Jobs(context.WithoutCancel(ctx), client.Query{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, j := range jobs {
		if !j.State.Over() {
			all = append(all, fmt.Sprintf("job %d (%s) is %s: %s", j.ID, j.Name, j.State, j.Why))
		}
	}
	return strings.Join(all, "; ")
}

func (l *living) submission(j *job, seed uint64) *api.Submission {
	words := append([]string{filepath.Join(l.tools.Programs, j.app.program)}, j.arguments(seed)...)
	words = append(words, "--team", filepath.Join(l.dir, "team"))
	return &api.Submission{Options: append(j.asks(), "-o", "job-%j.out"), Arguments: words, Directory: l.dir, Environment: bench.WithoutSettings(os.Environ())}
}

// outputOf is what the processes of a job have written.
func (l *living) outputOf(id uint64) string {
	text, _ := os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("job-%d.out", id)))
	return string(text)
}

// check says what is wrong with a job that has ended: each of its processes says that its
// results are right.
func (l *living) check(j *job, ended *api.Job) error {
	text := l.outputOf(ended.ID)
	if ended.State != api.Completed {
		return fmt.Errorf("%s ended as %s: %s\n%s", j, ended.State, ended.Why, text)
	}
	if got := strings.Count(text, " right, "); got != j.processes {
		return fmt.Errorf("%d of the %d processes of %s say that their results are right:\n%s", got, j.processes, j, text)
	}
	return nil
}
