package noderuntime

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/exp/bench"
	"muster/wire/status"
)

// job is a program to run.
type job struct {
	words     []string // an example and its arguments
	processes int      // MPI processes; 0 for a program without MPI
	// on is the number of its processes on each node of a cluster; nil puts all on the first.
	on []int
}

func (j job) String() string { return strings.Join(j.words, " ") }

// running is a job whose processes have been started. The cost of starting processes and opening
// contexts is not scaled, so it is not measured: each process opens its context, prepares its data,
// and then waits at a gate, a Unix socket, until the experiment lets it through.
//
// A process connects to the gate and writes a line "ready PID KERNELS BYTES". It continues when it
// reads a byte. When it has its results it writes the same line with "done", keeps its GPU, and
// waits for a second byte before it exits.
type running struct {
	job
	cmd    *exec.Cmd
	output bytes.Buffer // to be read after exited
	gate   *net.UnixListener
	exited chan struct{}
	err    error // how it ended; to be read after exited
	ready  chan *visitor
	inside []*visitor
}

// visitor is a process that has connected to the gate.
type visitor struct {
	pid  int32
	conn net.Conn
	read *bufio.Reader
	// Its kernels and copied bytes so far, by its own count.
	kernels, copied uint64
}

// says reads a process's next line, and says whether its first word is what.
func (v *visitor) says(what string) bool {
	var said string
	n, err := fmt.Fscanf(v.read, "%s %d %d %d\n", &said, &v.pid, &v.kernels, &v.copied)
	return n == 4 && err == nil && said == what
}

// let lets the process continue.
func (v *visitor) let() error {
	_, err := v.conn.Write([]byte{1})
	return err
}

var gates atomic.Int64

// commandLine is a job's command line and environment. With MPI, the processes on each node get the
// socket of their own node.
func (c cluster) commandLine(j job, gate string) (words, environment []string) {
	program := append([]string{filepath.Join(c[0].tools.Programs, j.words[0])}, j.words[1:]...)
	program = append(program, "--gate", gate)
	on := j.on
	if on == nil {
		on = []int{max(1, j.processes)}
	}
	for i, processes := range on {
		switch {
		case processes == 0:
			continue
		case j.processes == 0:
			return program, c[i].environment()
		case words == nil:
			words = []string{c[0].tools.mpiexec}
		default:
			words = append(words, ":")
		}
		words = append(words, "-n", fmt.Sprint(processes), "-env", "MUSTER_SOCKET", c[i].socket)
		words = append(words, program...)
	}
	return words, c[0].environment()
}

// start starts a job on a cluster.
func (c cluster) start(ctx context.Context, j job) (*running, error) {
	address := fmt.Sprintf("@muster-gate-%d-%d", os.Getpid(), gates.Add(1))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	r := &running{job: j, gate: listener, exited: make(chan struct{}), ready: make(chan *visitor, max(1, j.processes))}
	words, environment := c.commandLine(j, address)
	r.cmd = exec.CommandContext(ctx, words[0], words[1:]...)
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) } // mpiexec then ends its processes
	r.cmd.WaitDelay = 5 * time.Second
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = environment, &r.output, &r.output
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		listener.Close()
		return nil, fmt.Errorf("starting %v: %w", j, err)
	}
	go r.greet()
	go func() {
		r.err = r.cmd.Wait()
		close(r.exited)
		listener.Close()
	}()
	return r, nil
}

// greet accepts the processes that connect to the gate, until it is closed.
func (r *running) greet() {
	for {
		conn, err := r.gate.Accept()
		if err != nil {
			return
		}
		go func() {
			v := &visitor{conn: conn, read: bufio.NewReader(conn)}
			if v.says("ready") {
				r.ready <- v
			}
		}()
	}
}

// failure describes the unexpected end of a job. It waits for that end.
func (r *running) failure() error {
	<-r.exited
	text := strings.TrimSpace(r.output.String())
	if r.err == nil {
		return fmt.Errorf("%v ended before its time\n%s", r.job, text)
	}
	return fmt.Errorf("%v: %w\n%s", r.job, r.err, text)
}

// gather waits until all processes of the job are at the gate.
func (r *running) gather() error {
	for len(r.inside) < max(1, r.processes) {
		select {
		case v := <-r.ready:
			r.inside = append(r.inside, v)
		case <-r.exited:
			return r.failure()
		}
	}
	return nil
}

// open lets all processes of the job through the gate.
func (r *running) open() error {
	for _, v := range r.inside {
		if err := v.let(); err != nil {
			return r.failure()
		}
	}
	return nil
}

// finish waits until all processes have their results, and returns the time of the last. It calls
// last for each process and then lets it exit; until then the process keeps its GPU.
func (r *running) finish(last func(*visitor) error) (time.Time, error) {
	var at time.Time
	for _, v := range r.inside {
		if !v.says("done") {
			return at, r.failure()
		}
		at = time.Now()
		if err := last(v); err != nil {
			return at, err
		}
		if err := v.let(); err != nil {
			return at, r.failure()
		}
	}
	return at, nil
}

// end waits until the job has exited. Its exit status says whether its results are right.
func (r *running) end() error {
	<-r.exited
	for _, v := range r.inside {
		v.conn.Close()
	}
	if r.err != nil {
		return r.failure()
	}
	return nil
}

// abandon terminates a job that is no longer needed.
func (r *running) abandon() {
	for _, v := range r.inside {
		v.conn.Close()
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	<-r.exited
}

// startAll starts jobs, and waits until all their processes are at their gates.
func (c cluster) startAll(ctx context.Context, jobs []job) ([]*running, error) {
	all := make([]*running, 0, len(jobs))
	for _, j := range jobs {
		r, err := c.start(ctx, j)
		if err != nil {
			abandonAll(all)
			return nil, err
		}
		all = append(all, r)
	}
	if err := together(len(all), func(i int) error { return all[i].gather() }); err != nil {
		abandonAll(all)
		return nil, err
	}
	return all, nil
}

func abandonAll(all []*running) {
	_ = together(len(all), func(i int) error { all[i].abandon(); return nil })
}

// together calls f concurrently for 0 to n-1, and joins the errors.
func together(n int, f func(i int) error) error {
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed[i] = f(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// outcome is one measurement.
type outcome struct {
	bench.Timing        // until the last program had its results
	Swaps        uint64 `json:"swaps,omitempty"`
	Preemptions  uint64 `json:"preemptions,omitempty"`
	Moves        uint64 `json:"moves,omitempty"`
	Guests       uint64 `json:"guests,omitempty"` // programs served by another node, temporarily or to the end
}

// count adds the nodes' counters for the jobs to out. It waits until the last client has left.
func (c cluster) count(ctx context.Context, jobs []*running, out *outcome) error {
	for i, n := range c {
		clients := 0
		for _, r := range jobs {
			if r.on == nil && i == 0 {
				clients += len(r.inside)
			} else if r.on != nil {
				clients += r.on[i]
			}
		}
		if err := n.count(ctx, clients, out); err != nil {
			return err
		}
	}
	return nil
}

// count adds the node's counters for its last clients, as many as clients says, to out.
func (n *theNode) count(ctx context.Context, clients int, out *outcome) error {
	s, err := n.waitFor(ctx, func(s *status.Node) bool { return len(s.Clients) == 0 })
	if err != nil {
		return err
	}
	var own []status.Client
	for _, c := range s.Ended {
		if c.Guest {
			out.Guests++
		} else {
			own = append(own, c)
		}
	}
	if len(own) < clients {
		return fmt.Errorf("the node remembers %d of %d programs: fewer must run at once", len(own), clients)
	}
	for _, c := range own[len(own)-clients:] {
		out.Swaps += c.Swaps
		out.Preemptions += c.Preemptions
		out.Moves += c.Moves.Auto
	}
	return nil
}

// opener opens the gates of jobs: all at once, or some only after others are done. It receives the
// indices of finished jobs from over.
type opener func(ctx context.Context, c cluster, all []*running, over <-chan int) error

// openAtOnce opens all gates.
func openAtOnce(_ context.Context, _ cluster, all []*running, _ <-chan int) error {
	return together(len(all), func(i int) error { return all[i].open() })
}

// run runs jobs on a new node.
func (l *lab) run(s setting, jobs []job, open opener) (outcome, error) {
	return l.runCluster([]setting{s}, jobs, open)
}

// runCluster runs jobs on new nodes, and measures the time from when all were ready until the last
// had its results.
func (l *lab) runCluster(settings []setting, jobs []job, open opener) (outcome, error) {
	var out outcome
	err := withCluster(l.tools, settings, func(c cluster) error {
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		all, err := c.startAll(ctx, jobs)
		if err != nil {
			return errors.Join(l.ctx.Err(), err)
		}
		if l.patience, err = bench.AwaitQuiet(l.ctx, l.patience, tooLate); err != nil {
			abandonAll(all)
			return err
		}
		if out.Seconds, out.Late, err = c.measure(ctx, cancel, all, open, func(*visitor) error { return nil }); err != nil {
			return errors.Join(l.ctx.Err(), err)
		}
		return c.count(ctx, all, &out)
	})
	return out, err
}

// measure opens the gates and waits until all jobs are done. If one fails, it calls cancel to end
// the others, which may be waiting for it. last is called for each process before it may exit.
func (c cluster) measure(ctx context.Context, cancel func(), all []*running, open opener, last func(*visitor) error) (took, late float64, err error) {
	machine := bench.Watch()
	over, opened := make(chan int, len(all)), make(chan error, 1)
	start, done := time.Now(), make([]time.Time, len(all))
	go func() {
		err := open(ctx, c, all, over)
		if err != nil {
			cancel()
		}
		opened <- err
	}()
	err = together(len(all), func(i int) (err error) {
		if done[i], err = all[i].finish(last); err != nil {
			cancel()
			return err
		}
		over <- i
		return nil
	})
	late = machine()
	if err = errors.Join(<-opened, err); err != nil {
		abandonAll(all)
		return 0, late, err
	}
	took = slices.MaxFunc(done, time.Time.Compare).Sub(start).Seconds()
	return took, late, together(len(all), func(i int) error { return all[i].end() })
}
