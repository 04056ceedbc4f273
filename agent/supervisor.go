package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	wire "muster/wire/agent"
	"muster/wire/grant"

	"golang.org/x/sys/unix"
)

// Tools is what the program hands to a supervisor that it runs.
type Tools struct {
	// ServeGrant serves a grant's devices to the programs of a user, until Close; local
	// is the socket of the node's daemon, and at the one for programs, "" for a new one. nil serves none.
	ServeGrant func(g *grant.Grant, local, at string, uid int, log *slog.Logger) (*Served, error)
	// Save saves processes, and returns how many bytes that took; Restore makes them again. nil cannot.
	Save    func(context.Context, Saving) (uint64, error)
	Restore func(context.Context, Restoring) error
	Log     *slog.Logger
}

// Served is how a task's programs reach its devices.
type Served struct {
	// Socket is for MUSTER_SOCKET, Libraries the folder of Muster's libcuda.
	Socket, Libraries string
	// Links are the programs' connections, as whoever saves the programs must know them: that to the
	// daemon with that to the program, and those of borrowed devices.
	Links func() (passed map[uint64]uint64, borrowed map[uint64]bool)
	Close func()
}

// supervisor runs the processes of one task. Its fields belong to the goroutine of run;
// other goroutines send functions to inbox, which that goroutine calls.
type supervisor struct {
	dir   string
	f     *taskFile
	spec  *wire.Spec
	tools Tools
	log   *slog.Logger
	who   *account
	env   *environment
	cg    *cgroup

	inbox   chan func()
	starts  chan *startRequest
	signals chan os.Signal
	conns   map[*control]bool
	served  *Served

	children map[int]*child
	ranks    []*child
	progress
	passage *passage

	suspended bool
	cores     []int
	limit     clock
	stopping  *wire.Stop // why the task is stopped; nil if it is not
	kill      deadline
	outcome   outcome
	saved     string // the list of processes that was last written

	execs sync.WaitGroup // commands whose outcome has not been sent yet
}

// progress is how far the task has come.
type progress struct {
	holds bool // it starts no processes of its own, and only serves commands
	begun bool
	// noFiles says that it could not begin because its directory, input or output could not be opened.
	noFiles bool
	script  string // the path of the job's script
	// more says that the first process has opened the files and the others are still to be started, because
	// the task is suspended.
	more bool
}

// clock is that of the time limit, which does not run while a task is suspended.
type clock struct {
	left  time.Duration // what was left of the limit at since
	since time.Time
	timer *time.Timer
}

// start has over called when the time is up.
func (c *clock) start(over func()) {
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, over)
}

func (c *clock) stop() {
	if c.timer != nil && c.timer.Stop() {
		c.left = max(0, c.left-time.Since(c.since))
	}
}

// deadline is when the processes of a task that is stopped are killed.
type deadline struct {
	over  bool // all processes are to be killed now
	at    time.Time
	timer *time.Timer
}

// sooner brings the deadline forward, or sets it; over is called then, if there is time left. It returns
// false if the deadline is earlier already.
func (d *deadline) sooner(left time.Duration, over func()) bool {
	at := time.Now().Add(left)
	if !d.at.IsZero() && !at.Before(d.at) {
		return false
	}
	if d.at = at; d.timer != nil {
		d.timer.Stop()
	}
	if left > 0 {
		d.timer = time.AfterFunc(left, over)
	}
	return true
}

// outcome is what will be said of a task when it has ended.
type outcome struct {
	began  time.Time
	exit   int // exit and signal are those of the process that failed first
	signal syscall.Signal
	reason string
	cpu    time.Duration
	peak   int64
}

// used counts what a process used that has ended.
func (o *outcome) used(u *syscall.Rusage) {
	o.cpu += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	o.peak = max(o.peak, u.Maxrss<<10)
}

// failed notes how a process failed, if it is the first.
func (o *outcome) failed(status syscall.WaitStatus) {
	switch {
	case o.exit != 0 || o.signal != 0:
	case status.Signaled():
		o.signal = status.Signal()
	default:
		o.exit = status.ExitStatus()
	}
}

// child is a process that the supervisor started.
type child struct {
	pid    int
	rank   int // commandRank or toolRank if it is none of the task's own; enters: it is not known yet whether it has become its program
	enters bool
	exited bool
	status syscall.WaitStatus
	gone   chan struct{} // closed when it has exited and enters is false

	exitedAt time.Time
}

// What children are that are none of the task's own processes: a command that a user runs beside these, or
// one of a save or restore.
const (
	commandRank = -1
	toolRank    = -2
)

const (
	subreaper   = 36 // PR_SET_CHILD_SUBREAPER
	neverKilled = "-1000"
)

// Main is muster task: the supervisor of a task, or one of the processes that work for
// it as a job's user.
func Main(args []string, tools Tools) int {
	switch {
	case len(args) == 1 && args[0] == "enter":
		return enter()
	case len(args) == 1 && args[0] == "read":
		return readOutput(os.Getenv(questionVariable))
	case len(args) == 2 && args[0] == "supervise":
		if err := supervise(args[1], tools); err != nil {
			tools.Log.Error("the supervisor of a task failed", "error", err)
			return 1
		}
		return 0
	}
	tools.Log.Error("only the agent of a node starts this: use muster node --head")
	return 2
}

// supervise begins a task, unless another supervisor has, and stays until its end.
func supervise(dir string, tools Tools) error {
	debug.SetGCPercent(20) // saves memory: there may be a supervisor for every core, and each has little to do
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return err
	}
	defer lock.Close()
	f, err := readTask(dir)
	if err != nil {
		return err
	}
	id := f.start.Task
	if end, err := readEnd(dir, id); err != nil || end != nil || hasBegun(dir) {
		return errors.Join(err, errors.New("the task has begun before"))
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a subreaper: %w", err)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(neverKilled), 0) // only root may
	s := &supervisor{
		dir: dir, f: f, spec: &f.start.Spec, tools: tools, log: tools.Log.With("task", id), inbox: make(chan func(), 64), starts: make(chan *startRequest),
		signals: make(chan os.Signal, 8), conns: map[*control]bool{}, children: map[int]*child{}, cores: f.Cores, limit: clock{left: f.start.Spec.Time},
	}
	s.passage = &passage{s: s}
	// SIGHUP and SIGINT are caught and do nothing. They are not ignored, because the job
	// would inherit that.
	signal.Notify(s.signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	listener, err := listenIn(dir, socketName)
	if err != nil {
		return err
	}
	defer listener.Close()
	go s.accept(listener)
	if conn, err := inherited(3); err == nil {
		go s.serve(conn)
	}
	go s.startAll()
	return s.run()
}

// inherited is the connection with which an agent starts a supervisor.
func inherited(fd uintptr) (net.Conn, error) {
	syscall.CloseOnExec(int(fd))
	f := os.NewFile(fd, "agent")
	defer f.Close()
	return net.FileConn(f)
}

// listenIn listens at a socket in a folder. It goes by way of /proc/self/fd, since the
// folder's path may be longer than a socket's path may be.
func listenIn(dir, name string) (*net.UnixListener, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	_ = os.Remove(filepath.Join(dir, name))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name), Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// dialIn connects to a socket that listenIn opened.
func dialIn(dir, name string) (net.Conn, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return net.DialTimeout("unix", fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name), dialTime)
}

const dialTime = 5 * time.Second

// run begins the task and waits for its end.
func (s *supervisor) run() error {
	if stop, _ := readStop(s.dir, s.f.start.Task); stop != nil {
		s.stop(*stop)
	}
	if s.stopping == nil {
		if err := s.begin(); err != nil {
			s.log.Info("the task cannot begin", "error", err)
			cause := wire.NotBegun
			// What was saved of a task has run before, so that this node is at fault and not the task.
			if (errors.Is(err, errSpool) || s.f.Restore != nil) && !s.begun {
				cause = wire.NotReady
			}
			s.stop(wire.Stop{Cause: cause, Reason: err.Error()})
		}
	}
	every := lookTime
	if s.spec.Memory > 0 {
		every = limitTime
	}
	poll := time.NewTicker(every)
	defer poll.Stop()
	for !s.isOver() {
		select {
		case do := <-s.inbox:
			do()
		case sig := <-s.signals:
			s.signalled(sig)
		case <-poll.C:
			s.look()
		}
	}
	s.killAll()
	return s.finish()
}

// How often memory is measured where no control group counts it, with a limit and without.
const limitTime, lookTime = 250 * time.Millisecond, time.Second

func (s *supervisor) signalled(sig os.Signal) {
	switch sig {
	case syscall.SIGCHLD:
		s.reap()
	case syscall.SIGTERM:
		s.stop(wire.Stop{Cause: wire.NodeLost, Reason: "the node was shut down", Grace: s.spec.Grace})
	}
}

// isOver says whether the task is over, so that all that is left is to be killed.
func (s *supervisor) isOver() bool {
	switch {
	case s.kill.over:
		return true
	case s.holds || !s.begun:
		return s.stopping != nil && len(s.children) == 0
	case s.more && s.stopping == nil:
		return false
	}
	for _, c := range s.ranks {
		if !c.exited || c.enters && time.Since(c.exitedAt) < sayTime {
			return false
		}
	}
	return true
}

// begin starts the task's processes.
func (s *supervisor) begin() (err error) {
	if s.who, err = findAccount(s.spec.User); err != nil {
		return err
	}
	was := &savedTask{}
	if s.f.Restore != nil {
		if was, err = s.passage.read(); err != nil {
			return err
		}
	}
	s.env = taskEnvironment(s.f, s.who)
	if shell := remoteShell(); shell != "" && len(s.spec.Nodes) > 1 {
		launchers(s.env, shell)
	}
	s.script = cmp.Or(was.Script, filepath.Join(s.f.Script, scriptName))
	if err := s.writeScript(); err != nil {
		return err
	}
	s.makeGroup()
	if err := s.serveGrant(was.Socket); err != nil {
		return err
	}
	if err := writeBegun(s.dir); err != nil {
		return fmt.Errorf("%w: that the task begins: %w", errSpool, err)
	}
	if s.f.Restore != nil {
		s.passage.restore(was)
		return nil
	}
	// From here on the task counts as begun, and no other supervisor may start it.
	s.begun, s.outcome.began = true, time.Now()
	s.startClock()
	s.tellAll()
	s.holds = s.spec.Processes == 0 || (s.spec.Script != "" && s.f.start.Task.Part != 0)
	if s.holds {
		return nil
	}
	return s.startRank(0)
}

// remoteShell is the link to this program that runs commands on other nodes of a job, as
// ssh would; "" if it was not installed.
func remoteShell() string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	shell := filepath.Join(filepath.Dir(own), "muster-rsh")
	if _, err := os.Stat(shell); err != nil {
		return ""
	}
	return shell
}

// errSpool says that a task does not begin because of the node's spool, and not because of itself.
var errSpool = errors.New("the node cannot write to its spool")

// writeScript writes the job's script where its user can read it, and no other.
func (s *supervisor) writeScript() error {
	if s.spec.Script == "" || s.f.start.Task.Part != 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.script), 0o711); err != nil {
		return fmt.Errorf("%w: the script: %w", errSpool, err)
	}
	f, err := os.OpenFile(s.script, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o500)
	if err != nil {
		return fmt.Errorf("%w: the script: %w", errSpool, err)
	}
	_, err = f.WriteString(s.spec.Script)
	if s.who.credential != nil {
		err = errors.Join(err, f.Chown(int(s.who.credential.Uid), int(s.who.credential.Gid)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%w: the script: %w", errSpool, err)
	}
	return nil
}

// makeGroup makes the task's control group. If that fails, the task goes without.
func (s *supervisor) makeGroup() {
	if s.f.Cgroup == "" {
		return
	}
	g, err := makeCgroup(s.f.cgroupDir(), s.spec.Memory, s.pinned())
	if err != nil {
		s.log.Warn("the task has no control group", "error", err)
		return
	}
	s.cg = g
}

// pinned lists the cores on which the processes must stay; nil if they may run anywhere.
func (s *supervisor) pinned() []int {
	if !s.f.Pin {
		return nil
	}
	return s.cores
}

func (s *supervisor) serveGrant(at string) error {
	g := s.f.start.Grant
	if g == nil {
		return nil
	}
	if s.tools.ServeGrant == nil {
		return errors.New("the task has GPUs, and this node's agent cannot serve them")
	}
	served, err := s.tools.ServeGrant(g, s.f.Socket, at, s.who.uid, s.log)
	if err != nil {
		return fmt.Errorf("the task's GPUs: %w", err)
	}
	s.served = served
	s.env.set("MUSTER_SOCKET", served.Socket)
	if served.Libraries != "" {
		path := served.Libraries
		if old := s.env.values["LD_LIBRARY_PATH"]; old != "" {
			path += ":" + old
		}
		s.env.set("LD_LIBRARY_PATH", path)
	}
	return nil
}

// ---- processes ----

// startRequest is a request to the thread that starts processes. With Pdeathsig the system
// kills a process when the thread that started it ends, so all are started by one thread
// that never ends (startAll).
type startRequest struct {
	entry entry
	std   [3]*os.File
	tool  *exec.Cmd // to be started in place of a program of the job; among says whether in the task's control group
	among bool
	reply chan started
}

type started struct {
	pid    int
	result *os.File
	err    error
}

func (s *supervisor) startAll() {
	runtime.LockOSThread()
	for r := range s.starts {
		if r.tool != nil {
			pid, err := s.forkTool(r)
			r.reply <- started{pid: pid, err: err}
			continue
		}
		pid, result, err := s.fork(r)
		r.reply <- started{pid, result, err}
	}
}

// fork starts the process that will become a program.
func (s *supervisor) fork(r *startRequest) (int, *os.File, error) {
	entryIn, entryOut, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer entryIn.Close()
	result, resultOut, err := os.Pipe()
	if err != nil {
		entryOut.Close()
		return 0, nil, err
	}
	defer resultOut.Close()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{},
		Files: []uintptr{r.std[0].Fd(), r.std[1].Fd(), r.std[2].Fd(), entryIn.Fd(), resultOut.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: s.who.credential},
	}
	if s.cg != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(s.cg.fd.Fd())
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{programName, "task", "enter"}, attr)
	if err != nil {
		entryOut.Close()
		result.Close()
		return 0, nil, fmt.Errorf("starting a process: %w", err)
	}
	go func() { // in a goroutine: the entry may be larger than a pipe's buffer
		defer entryOut.Close()
		if text, err := json.Marshal(r.entry); err == nil {
			_, _ = entryOut.Write(text)
		}
	}()
	return pid, result, nil
}

// start starts a process. Later it calls entered, in the goroutine of run, with nil if the
// process has become its program and the failure otherwise.
func (s *supervisor) start(rank int, e entry, std [3]*os.File, entered func(*failure)) (*child, error) {
	e.Parent = os.Getpid()
	if s.cg == nil || !s.cg.cpuset {
		e.Cores = s.pinned()
	}
	r := &startRequest{entry: e, std: std, reply: make(chan started, 1)}
	s.starts <- r
	got := <-r.reply
	if got.err != nil {
		return nil, got.err
	}
	c := &child{pid: got.pid, rank: rank, enters: true, gone: make(chan struct{})}
	s.children[c.pid] = c
	go func() {
		f := readResult(got.result)
		s.inbox <- func() {
			c.enters = false
			entered(f)
			s.settle(c)
		}
	}()
	return c, nil
}

// readResult reads the failure of a process that did not become its program; nil if it
// did.
func readResult(result *os.File) *failure {
	defer result.Close()
	text, err := io.ReadAll(io.LimitReader(result, 64<<10))
	if err == nil && len(text) == 0 {
		return nil
	}
	f := &failure{}
	if err := strictjson.Decode(text, f); err != nil {
		f.Reason = "the process that was to become the job's program failed"
	}
	return f
}

// startRank starts one of the task's processes.
func (s *supervisor) startRank(rank int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	arguments := s.spec.Arguments
	if s.spec.Script != "" {
		arguments = append([]string{s.script}, arguments...)
	}
	e := entry{
		Directory: s.spec.Directory, Arguments: arguments, Environment: rankEnvironment(s.env, s.spec, rank),
		Files: &entryFiles{
			Input: s.spec.Input, Output: s.spec.Output, Error: s.spec.Error,
			// All processes of the job may share the file: the first one empties it,
			// before the others begin.
			Truncate: rank == 0 && empties(&s.f.start),
		},
	}
	c, err := s.start(rank, e, [3]*os.File{null, null, null}, func(f *failure) { s.entered(rank, f) })
	if err != nil {
		return err
	}
	s.ranks = append(s.ranks, c)
	return nil
}

// empties says whether the first process of a task empties the output.
func empties(start *wire.Start) bool {
	return !start.Spec.Append && start.Spec.Processes > 0 && start.Task.Part == 0
}

// entered notes whether a process has become its program. When the first one has opened
// the files, the others are started.
func (s *supervisor) entered(rank int, f *failure) {
	switch {
	case f != nil && f.Exit == 0:
		s.noFiles = s.noFiles || f.NoFiles && s.stopping == nil
		s.stop(wire.Stop{Cause: wire.NotBegun, Reason: f.Reason})
		return
	case f != nil && s.outcome.reason == "":
		s.outcome.reason = f.Reason
	}
	if rank == 0 {
		if err := writeOpened(s.dir); err != nil {
			s.log.Warn("it cannot be written down that the output is open: muster logs will not find it", "error", err)
		}
	}
	if rank > 0 || s.spec.Script != "" {
		return
	}
	s.more = true
	s.startMore()
}

// startMore starts the processes beside the first one. While the task is suspended they would not stand still,
// and in a frozen group they would not come to their program, for which fork waits.
func (s *supervisor) startMore() {
	if !s.more || s.suspended || s.stopping != nil {
		return
	}
	s.more = false
	for next := 1; next < s.spec.Processes; next++ {
		if err := s.startRank(next); err != nil {
			s.stop(wire.Stop{Cause: wire.NotBegun, Reason: err.Error()})
			return
		}
	}
}

// reap collects all processes that have ended, orphaned descendants included. It returns
// false if no child is left.
func (s *supervisor) reap() bool {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return false
		case pid == 0:
			return true
		}
		s.outcome.used(&usage)
		if c := s.children[pid]; c != nil {
			c.exited, c.exitedAt, c.status = true, time.Now(), status
			s.settle(c)
		}
	}
}

// settle finishes with a process once it has exited and it is known whether it became its
// program, in whichever order these come.
func (s *supervisor) settle(c *child) {
	if !c.exited || c.enters || s.children[c.pid] != c {
		return
	}
	delete(s.children, c.pid)
	close(c.gone)
	if c.rank >= 0 {
		s.outcome.failed(c.status)
	}
}

// members lists the task's living processes.
func (s *supervisor) members() []process {
	if s.cg == nil {
		return descendants(os.Getpid())
	}
	text, err := os.ReadFile(filepath.Join(s.cg.dir, "cgroup.procs"))
	if err != nil {
		return descendants(os.Getpid())
	}
	var list []process
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if p, ok := statOf(pid); err == nil && ok {
			list = append(list, process{pid, p.start})
		}
	}
	return list
}

func (s *supervisor) signalAll(sig syscall.Signal) {
	for _, p := range s.members() {
		_ = p.send(sig)
	}
}

// look enforces the memory limit and writes down which processes there are, where no
// control group does that.
func (s *supervisor) look() {
	if s.cg != nil && s.cg.memory {
		return // the control group counts memory and enforces the limit
	}
	list := s.members()
	if text := fmt.Sprint(list); s.cg == nil && text != s.saved {
		s.saved = text
		saveProcesses(s.dir, list)
	}
	sum := resident(list)
	limit := s.spec.Memory
	if limit > 0 && sum > limit { // resident counts shared pages several times, so count more exactly
		sum = proportional(list)
	}
	s.outcome.peak = max(s.outcome.peak, sum)
	if limit > 0 && sum > limit && !s.kill.over {
		s.stop(wire.Stop{Cause: wire.NoMemory, Reason: fmt.Sprintf("the task had %d MiB of memory, and %d MiB is its limit", sum>>20, limit>>20)})
	}
}

// ---- orders ----

func (s *supervisor) obey(o agentcore.Order) {
	switch {
	case o.Stop != nil:
		s.stop(*o.Stop)
	case s.passage.busy:
		s.passage.later = append(s.passage.later, o)
	case o.Save != nil:
		s.passage.save(*o.Save)
	case o.Signal != 0:
		s.signalAll(syscall.Signal(o.Signal))
	case o.Suspend:
		s.suspend()
	case o.Resume != nil:
		s.resume(o.Resume.Cores)
	}
}

// stop tells the processes to end, and has them killed when the grace period is over. If
// it is called again, the first cause and the earliest deadline count.
func (s *supervisor) stop(m wire.Stop) {
	first := s.stopping == nil
	if first {
		s.stopping = &m
	}
	if !s.kill.sooner(m.Grace, func() { s.inbox <- func() { s.kill.over = true } }) {
		return
	}
	if m.Grace <= 0 || s.passage.restoring { // nothing of it runs that could end by itself
		s.kill.over = true
		return
	}
	if first && !s.passage.busy {
		s.signalAll(syscall.SIGTERM)
		if s.suspended {
			s.letGo()
		}
	}
}

func (s *supervisor) suspend() {
	if s.suspended || s.stopping != nil {
		s.tellAll()
		return
	}
	s.suspended = true
	s.limit.stop()
	if s.cg == nil || s.cg.freeze(true) != nil {
		s.stopMembers()
	} else {
		s.cg.awaitFrozen()
	}
	s.tellAll()
}

// stopMembers stops all processes, including those that they start meanwhile.
func (s *supervisor) stopMembers() {
	stopped := map[process]bool{}
	for fresh := true; fresh; {
		fresh = false
		for _, p := range s.members() {
			if !stopped[p] {
				stopped[p], fresh = true, true
				_ = p.send(syscall.SIGSTOP)
			}
		}
	}
}

func (s *supervisor) resume(cores []int) {
	if s.suspended && s.stopping == nil {
		s.cores = cores
		s.moveMembers()
		s.suspended, s.passage.saved = false, nil
		s.startClock()
		s.letGo()
		s.startMore()
	}
	s.tellAll()
}

// letGo lets suspended processes go on.
func (s *supervisor) letGo() {
	if s.cg != nil {
		_ = s.cg.freeze(false)
	}
	s.signalAll(syscall.SIGCONT)
}

// moveMembers has the processes run on other cores.
func (s *supervisor) moveMembers() {
	cores := s.pinned()
	if len(cores) == 0 {
		return
	}
	if s.cg != nil && s.cg.cpuset {
		if err := s.cg.setCores(cores); err != nil {
			s.log.Warn("the task keeps its cores", "error", err)
		}
		return
	}
	for _, p := range s.members() {
		threads, _ := readNames("/proc/" + strconv.Itoa(p.pid) + "/task")
		for _, t := range threads {
			if n, err := strconv.Atoi(t); err == nil {
				_ = setAffinity(n, cores) // it may have ended
			}
		}
	}
}

// startClock starts the clock of the time limit, if there is one.
func (s *supervisor) startClock() {
	if s.spec.Time <= 0 {
		return
	}
	s.limit.start(func() {
		s.inbox <- func() {
			if !s.suspended {
				s.stop(wire.Stop{Cause: wire.TimedOut, Reason: fmt.Sprintf("the time limit of %v was reached", s.spec.Time), Grace: s.spec.Grace})
			}
		}
	})
}

// ---- the end ----

// killAll kills the task's processes until there are none. Every process that they
// started, even a daemonized one, becomes a child of the supervisor in the end, since it
// is a subreaper.
func (s *supervisor) killAll() {
	s.kill.over = true
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s.reap()
		if s.cg != nil {
			_ = s.cg.kill()
		}
		killBelow(os.Getpid())
		if !s.reap() && (s.cg == nil || !s.cg.isPopulated()) {
			return
		}
		select {
		case do := <-s.inbox:
			do()
		case <-s.signals:
		case <-time.After(pause):
		}
	}
}

// finish writes down how the task ended, and tells agents. It retries writing for ever, since
// without an end the task would count as lost, unless its folder is gone: then nobody looks for it.
func (s *supervisor) finish() error {
	s.hearAll()
	end := s.ending()
	if s.cg != nil {
		if err := s.cg.remove(); err != nil {
			s.log.Warn("the task's control group cannot be removed", "error", err)
		}
	}
	if s.served != nil {
		s.served.Close()
	}
	if s.f.Restore != nil && s.spec.Script != "" { // it is where the script was on another node
		_ = os.RemoveAll(filepath.Dir(s.script))
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := writeEnd(s.dir, s.f.start.Task, end)
		if err == nil {
			break
		}
		if _, gone := os.Stat(s.dir); errors.Is(gone, fs.ErrNotExist) && pause > goneAfter {
			s.log.Error("how the task ended cannot be written down: its folder was removed", "folder", s.dir)
			break
		}
		s.log.Error("how the task ended cannot be written down: it is tried again", "error", err)
		time.Sleep(pause)
	}
	for c := range s.conns {
		c.say(saying{Ended: true})
		c.conn.Close()
	}
	told := make(chan struct{})
	go func() {
		s.execs.Wait()
		close(told)
	}()
	late := time.After(sayTime)
	for {
		select {
		case do := <-s.inbox:
			do()
		case <-told:
			return nil
		case <-late:
			return nil
		}
	}
}

// hearAll does what is in the inbox, and waits for what should come there still: of a process that has
// exited, whether it had become its program. Its pipe was closed when it exited, unless another process
// of the user has got hold of it: that one cannot keep the task from ending.
func (s *supervisor) hearAll() {
	unknown := func() bool {
		for _, c := range s.children {
			if c.exited && c.enters {
				return true
			}
		}
		return false
	}
	late := time.After(sayTime)
	for len(s.inbox) > 0 || unknown() {
		select {
		case do := <-s.inbox:
			do()
		case <-late:
			for _, c := range s.children {
				c.enters = false
				s.settle(c)
			}
			return
		}
	}
}

// goneAfter is how long the pause between two tries is when a folder that is not there counts as
// removed: until then it may be on a file system that comes back.
const goneAfter = 3 * time.Second

func (s *supervisor) ending() wire.End {
	o := s.outcome
	end := wire.End{Cause: wire.Exited, Exit: o.exit, Signal: int(o.signal), Reason: o.reason, Ended: sinceEpoch(time.Now()), CPU: o.cpu, Memory: o.peak}
	if s.begun {
		end.Began = sinceEpoch(o.began)
	}
	if s.cg != nil {
		end.CPU, end.Memory = max(end.CPU, s.cg.cpu()), max(end.Memory, s.cg.peak())
		if s.cg.outOfMemory() && s.stopping == nil {
			s.stopping = &wire.Stop{Cause: wire.NoMemory, Reason: fmt.Sprintf("the task reached its memory limit of %d MiB", s.spec.Memory>>20)}
		}
	}
	if s.stopping != nil {
		end.Cause = s.stopping.Cause
		end.Reason = s.stopping.Reason
	}
	if end.Cause == wire.NotBegun || end.Cause == wire.NotReady {
		end.Exit, end.Signal = 0, 0 // they are those of Muster's own process, not of the job's
		if s.noFiles {
			end.Signal = wire.NoFiles
		}
	}
	end.Reason = wire.Reason(end.Reason)
	return end
}

func sinceEpoch(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
