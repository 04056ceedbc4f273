package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	wire "muster/wire/agent"
)

// keeper is an agent's hold on a task: the connection to its supervisor, or the lock of
// a task whose supervisor is dead. mu protects what is below it.
type keeper struct {
	id   wire.Task
	dir  string
	log  *slog.Logger
	stop context.CancelFunc
	used func() time.Duration // what its processes have used of processors; nil before that was asked for
	most time.Duration        // the most that it was

	mu     sync.Mutex
	conn   *control
	orders []agentcore.Order // for a supervisor that is not connected
	lock   *os.File
}

const maxOrders = 64

// keep finds or starts the supervisor of a task.
func (a *agent) keep(ctx context.Context, id wire.Task, launch bool) {
	ctx, stop := context.WithCancel(ctx)
	k := &keeper{id: id, dir: a.spool.task(id), log: a.log.With("task", id), stop: stop}
	a.keepers[id] = k
	a.wait.Go(func() {
		e := k.follow(ctx, a, launch)
		if e == nil {
			return
		}
		a.lastLook(ctx, k)
		a.post(ctx, e)
	})
}

// close lets go of a task that has ended.
func (k *keeper) close() {
	k.stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lock != nil {
		k.lock.Close()
	}
	if k.conn != nil {
		k.conn.conn.Close()
	}
}

// tell gives the supervisor an order, now or as soon as it is connected.
func (k *keeper) tell(o agentcore.Order) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil && k.conn.say(request{Order: &o}) {
		return
	}
	if len(k.orders) < maxOrders {
		k.orders = append(k.orders, o)
	}
}

func (k *keeper) connected(c *control) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn = c
	if c == nil || !c.say(request{Watch: true}) {
		return
	}
	for _, o := range k.orders {
		c.say(request{Order: &o})
	}
	k.orders = nil
}

// follow stays with a task until it has ended or is lost, and says which. It connects
// to the supervisor's socket; if nobody answers there, it looks for an end; if there is
// none, it tries the lock. A lock that is taken means that the supervisor lives, and
// its socket will appear. A lock that can be had means that there is no supervisor:
// follow starts one, at most once and only if none has begun, or else the task is lost.
func (k *keeper) follow(ctx context.Context, a *agent, launch bool) agentcore.Event {
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		if conn, err := dialIn(k.dir, socketName); err == nil {
			pause = time.Millisecond
			k.listen(ctx, a, conn)
		}
		end, err := readEnd(k.dir, k.id)
		if err == nil && end != nil {
			return agentcore.Ended{Task: k.id, End: *end}
		}
		lock, err := lockFile(filepath.Join(k.dir, lockName))
		switch {
		case errors.Is(err, errLocked): // the supervisor lives, and will listen soon
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return agentcore.Lost{Task: k.id, Begun: hasBegun(k.dir), Reason: wire.Reason(err.Error())}
		}
		if end, err := readEnd(k.dir, k.id); err == nil && end != nil { // it ended between the last look and the lock
			lock.Close()
			return agentcore.Ended{Task: k.id, End: *end}
		}
		if !launch || hasBegun(k.dir) {
			return k.lost(lock)
		}
		launch = false
		lock.Close()
		if f, err := readTask(k.dir); err == nil && f.start.Grant != nil {
			a.awaitBooks(ctx) // the daemon must know the grant before the task's programs use it
		}
		if ctx.Err() != nil { // the next agent starts it, when the daemon knows the grant
			return nil
		}
		conn, err := a.launch(k)
		if err != nil {
			return agentcore.Lost{Task: k.id, Reason: wire.Reason(fmt.Sprintf("its supervisor cannot be started: %v", err))}
		}
		k.listen(ctx, a, conn)
	}
	return nil
}

// processorTime is what the task's processes had used when it was looked at last, which may be now. Without a
// control group it is what those have used that live, and children that they waited for. Only the loop calls it.
func (k *keeper) processorTime(look bool) time.Duration {
	if !look {
		return k.most
	}
	if k.used == nil {
		k.used = func() (sum time.Duration) {
			text, _ := smallLimit.ReadFile(filepath.Join(k.dir, processesName))
			for p := range parseProcesses(text, bootID()) {
				if s, ok := statOf(p.pid); ok && s.start == p.start {
					sum += s.ran
				}
			}
			return sum
		}
		if f, err := readTask(k.dir); err == nil && f.Cgroup != "" {
			k.used = (&cgroup{dir: f.cgroupDir()}).cpu
		}
	}
	k.most = max(k.most, k.used())
	return k.most
}

// lost ends the processes that a dead supervisor left. It keeps the lock, so that no
// other supervisor begins the task.
func (k *keeper) lost(lock *os.File) agentcore.Event {
	k.mu.Lock()
	k.lock = lock
	k.mu.Unlock()
	begun := hasBegun(k.dir)
	reason := "the process that was to start the task ended before it did: see " + filepath.Join(k.dir, logName)
	if begun {
		reason = "the process that watched the task was lost, or the node was restarted"
		if f, err := readTask(k.dir); err == nil {
			endLeftovers(k.dir, f, k.log)
		}
	}
	return agentcore.Lost{Task: k.id, Begun: begun, Reason: reason}
}

// listen receives what a supervisor says, until the connection ends.
func (k *keeper) listen(ctx context.Context, a *agent, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	k.connected(&control{conn})
	defer k.connected(nil)
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var s saying
		if err := strictjson.Decode(line, &s); err != nil {
			k.log.Warn("the task's supervisor says what is not understood", "error", err)
			return
		}
		if s.Ended {
			return
		}
		if w := s.Saved; w != nil {
			a.post(ctx, agentcore.Checkpointed{Task: k.id, Folder: w.Folder, Bytes: w.Bytes, Error: w.Error})
			continue
		}
		a.post(ctx, agentcore.Began{Task: k.id, Suspended: s.Suspended, Cores: s.Cores})
	}
}

// launch starts the supervisor of a task, in a session of its own.
func (a *agent) launch(k *keeper) (net.Conn, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "supervisor"), os.NewFile(uintptr(pair[1]), "agent")
	defer ours.Close()
	defer theirs.Close()
	log, err := os.OpenFile(filepath.Join(k.dir, logName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	words := append(append([]string{}, a.cfg.Supervisor...), "supervise", k.dir)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Args[0] = programName
	cmd.Dir = "/"
	// Jobs must get nothing of the agent's environment.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=2"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }()
	return net.FileConn(ours)
}

// endLeftovers kills the processes that a killed supervisor left. It is done when two
// looks in a row find none, since a process may fork while it is being killed.
func endLeftovers(dir string, f *taskFile, log *slog.Logger) {
	var group *cgroup
	if f.Cgroup != "" {
		group = &cgroup{dir: f.cgroupDir()}
	}
	who, err := findAccount(f.start.Spec.User)
	if err != nil {
		log.Warn("what a lost task has left cannot be found", "error", err)
		return
	}
	text, _ := smallLimit.ReadFile(filepath.Join(dir, processesName))
	known := parseProcesses(text, bootID())
	marker := f.Marker
	if text, err := smallLimit.ReadFile(filepath.Join(dir, markerFile)); err == nil { // its processes were started elsewhere
		marker = string(text)
	}
	variable := []byte(markerName + "=" + marker)
	clean := 0
	for end := time.Now().Add(leftoverTime); clean < 2 && time.Now().Before(end); {
		found := group != nil && group.isPopulated()
		if found {
			_ = group.kill()
		}
		found = killFound(known, variable, who.uid) || found
		if found {
			clean = 0
		} else {
			clean++
		}
		time.Sleep(time.Millisecond)
	}
	if group != nil {
		_ = group.remove()
	}
	if clean < 2 {
		log.Warn("processes of a lost task cannot be killed")
	}
}

// killFound kills the known processes, their children, and processes that have the
// variable. It returns whether there were any.
func killFound(known map[process]bool, variable []byte, uid int) (found bool) {
	for _, pid := range allProcesses() {
		s, ok := statOf(pid)
		if !ok || s.state == 'Z' || s.state == 'X' || pid == os.Getpid() {
			continue
		}
		p := process{pid, s.start}
		parent, _ := statOf(s.parent)
		if known[process{s.parent, parent.start}] {
			known[p] = true
		}
		if known[p] || marked(pid, variable, uid) {
			found = true
			known[p] = true
			_ = p.send(syscall.SIGKILL)
		}
	}
	return found
}
