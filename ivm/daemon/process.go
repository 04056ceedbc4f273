package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"muster/internal/become"
	"muster/ivm/core"
	"muster/wire"
)

// Elements are processes that must not outlive the daemon, so the kernel kills them when their
// parent ends (PDEATHSIG). The kernel takes the thread that started a process for its parent, so
// one thread, which never ends, starts them all.

type startRequest struct {
	cmd    *exec.Cmd
	grant  string // of the program
	became *become.Result
	reply  chan error
}

func (s *Service) startAll() {
	runtime.LockOSThread()
	for r := range s.starts {
		s.starting.Lock()
		err := r.cmd.Start()
		r.became.Started()
		if err == nil {
			s.started[r.cmd.Process.Pid] = r
		}
		s.starting.Unlock()
		r.reply <- err
	}
}

// Grant says under which grant the program is that a process belongs to: an element's, or one that
// an element has started and that is in its process group. It is "" for all others. An element that
// has just been started is known already, since Grant waits for starts under way.
func (s *Service) Grant(pid int) string {
	s.starting.Lock()
	defer s.starting.Unlock()
	r := s.started[pid]
	if group, err := syscall.Getpgid(pid); r == nil && err == nil {
		r = s.started[group]
	}
	if r == nil {
		return ""
	}
	return r.grant
}

// ended forgets a process whose end was waited for, unless its number is another's by now.
func (s *Service) ended(r *startRequest) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if pid := r.cmd.Process.Pid; s.started[pid] == r {
		delete(s.started, pid)
	}
}

// Variables that a process finds itself by.
const (
	variableElement = "MUSTER_IVM" // PROGRAM:ELEMENT:KEY
	variableSocket  = "MUSTER_SOCKET"
)

// start starts the process of an element, and tells the root whether it runs and, later, how it
// ended.
func (m *member) start(e core.Start, key string) {
	x := m.element(e.Element)
	if x == nil {
		return
	}
	cannot := func(why error) {
		m.end(x) // before the root may start others in its place
		m.tell(core.StartFailed{Element: e.Element, Reason: fmt.Sprintf("%s cannot be started on node %d (%s): %v", m.program.Launch.Executable, m.program.Self, m.service.cfg.Name, why)})
	}
	run, err := m.run(e, key)
	if err != nil {
		cannot(err)
		return
	}
	m.mu.Lock()
	x.process = run.cmd.Process
	stopped := x.stopped
	m.mu.Unlock()
	if stopped {
		x.kill()
	}
	late := time.AfterFunc(startTime, x.kill)
	failed := run.became.Wait()
	if !late.Stop() {
		failed = fmt.Errorf("the file system with the program, or with its folder %s, has not answered for %v", m.program.Launch.Folder, startTime)
	}
	if failed != nil {
		cannot(failed)
	} else {
		m.service.total.started.Add(1)
		m.tell(core.Started{Element: e.Element})
	}
	awaitEnd(run.cmd.Process.Pid)
	m.mu.Lock()
	x.process = nil // before its number can become another's
	m.mu.Unlock()
	err = run.cmd.Wait()
	m.service.ended(run)
	if failed == nil {
		m.noteEnd(x, describeEnd(x.id, err))
	}
}

// startTime is how long a process may take until it is the element's program.
const startTime = 2 * time.Minute

func describeEnd(id core.ElementID, err error) string {
	if err == nil {
		return fmt.Sprintf("element %d ended without ivmExit", id)
	}
	return fmt.Sprintf("element %d ended: %v", id, err)
}

func (m *member) run(e core.Start, key string) (*startRequest, error) {
	l := &m.program.Launch
	// Each element has a session of its own. In the daemon's it could type into the terminal that the
	// daemon was started from, and join the process group of another user's element.
	cmd := &exec.Cmd{Path: l.Executable, Args: l.Args, Dir: l.Folder}
	cmd.Env = environment(l.Environment, fmt.Sprintf("%s=%d:%d:%s", variableElement, m.program.ID, e.Element, key), variableSocket+"="+m.service.cfg.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: m.credential}
	done, err := m.connectOutput(cmd, e.Element)
	if err != nil {
		return nil, err
	}
	defer done()
	became, err := become.Prepare(cmd)
	if err != nil {
		return nil, err
	}
	r := &startRequest{cmd, m.program.Grant, became, make(chan error, 1)}
	if !m.service.submit(r) {
		became.Started()
		return nil, fmt.Errorf("the node is shutting down")
	}
	return r, <-r.reply
}

// submit has the starting thread start a process, unless the service is closed.
func (s *Service) submit(r *startRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.starts <- r
	return true
}

// connectOutput lets an element write where the program's first one does: directly on its node,
// through the root daemon elsewhere.
func (m *member) connectOutput(cmd *exec.Cmd, id core.ElementID) (done func(), err error) {
	var ours, theirs []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	for stream := range 2 {
		var r, w *os.File
		if m.root == nil {
			r, w, err = os.Pipe()
			ours = append(ours, r)
		} else {
			w, err = wire.CopyOf(m.root.output[stream]) // which is closed if the program ends meanwhile
		}
		theirs = append(theirs, w)
		if err != nil {
			closeAll(slices.Concat(ours, theirs))
			return nil, err
		}
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	for stream, r := range ours {
		m.outputs.Go(func() { m.forward(r, id, stream) })
	}
	return func() { closeAll(theirs) }, nil
}

// forward sends what an element writes to the root daemon.
func (m *member) forward(r *os.File, id core.ElementID, stream int) {
	defer r.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			m.toRoot.output(id, stream, buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// kill ends an element's process and what it has started. While process is set the process was not
// waited for, so that its number is no other's.
func (e *element) kill() {
	e.member.mu.Lock()
	defer e.member.mu.Unlock()
	e.stopped = true
	if e.process != nil {
		_ = syscall.Kill(-e.process.Pid, syscall.SIGKILL)
	}
}

// awaitCrash waits for the end of a process whose element has lost its connection, and kills it if
// it does not end within crashTime.
func (e *element) awaitCrash() {
	select {
	case <-e.gone: // start has told the root why
	case <-time.After(crashTime):
		e.member.noteEnd(e, fmt.Sprintf("element %d closed its connection and went on without ivmExit", e.id))
	}
}

// crashTime is how long a process whose connection ended may take to end, too.
const crashTime = 5 * time.Second
