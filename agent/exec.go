package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"muster/internal/strictjson"
	wire "muster/wire/agent"
)

// maxExecs is how many commands may run in a task besides its own processes.
const maxExecs = 256

// drainTime is how long processes that a command left behind may go on writing after its end.
const drainTime = 500 * time.Millisecond

// command is a command that a user runs in a task beside its own processes.
type command struct {
	s     *supervisor
	conn  net.Conn
	mu    sync.Mutex // protects writes to conn, and ended
	ended bool       // the last frame was written
	child *child
	fail  *failure
	// terminal is what the command runs on; nil if it has pipes.
	terminal *terminal
	pumps    sync.WaitGroup
}

// exec runs a command among the task's processes: as its user, in its control group,
// with its environment, and no longer than the task.
func (s *supervisor) exec(conn net.Conn, in *bufio.Reader, e *wire.Exec) {
	c := &command{s: s, conn: conn}
	ours, theirs, err := c.files(e)
	if err != nil {
		c.end(wire.Outcome{Reason: err.Error()})
		return
	}
	begun := make(chan error, 1)
	s.inbox <- func() {
		err := c.begin(e, theirs)
		closeAll(theirs[:])
		begun <- err
	}
	if err := <-begun; err != nil {
		closeAll(ours[:])
		c.end(wire.Outcome{Reason: err.Error()})
		return
	}
	defer s.execs.Done()
	defer ours[0].Close()
	c.pump(ours[1], wire.FrameOutput)
	if c.terminal == nil {
		c.pump(ours[2], wire.FrameError)
	}
	go c.feed(in, ours[0])
	<-c.child.gone
	c.drain(ours)
	c.end(c.outcome())
}

// files makes the command's standard files: pipes, or a terminal.
func (c *command) files(e *wire.Exec) (ours, theirs [3]*os.File, err error) {
	if e.Terminal == nil {
		return threePipes()
	}
	known := make(chan *account, 1)
	c.s.inbox <- func() { known <- c.s.who }
	who := <-known
	if who == nil {
		return ours, theirs, errNotBegun
	}
	terminal, other, err := openTerminal(who, *e.Terminal)
	if err != nil {
		return ours, theirs, err
	}
	c.terminal = terminal
	return [3]*os.File{terminal.File, terminal.File, terminal.File}, [3]*os.File{other, other, other}, nil
}

// errNotBegun refuses a command.
var errNotBegun = errors.New("the task has not begun, or is ending")

// threePipes makes the pipes for a command's standard files.
func threePipes() (ours, theirs [3]*os.File, err error) {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:i])
			closeAll(theirs[:i])
			return ours, theirs, err
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	return ours, theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// begin starts the command. It runs in the supervisor's own goroutine.
func (c *command) begin(e *wire.Exec, std [3]*os.File) error {
	s := c.s
	switch {
	case !s.begun || s.kill.over || s.stopping != nil:
		return errNotBegun
	case s.suspended:
		return errors.New("the task is suspended")
	case len(e.Arguments) == 0:
		return errors.New("there is nothing to run")
	case s.commands() >= maxExecs:
		return fmt.Errorf("%d commands run in the task already", maxExecs)
	}
	env := s.env.clone()
	for name, value := range newEnvironment(e.Environment).values {
		if name != markerName {
			env.set(name, value)
		}
	}
	dir := e.Directory
	if dir == "" {
		dir = s.spec.Directory
	}
	child, err := s.start(commandRank, entry{Directory: dir, Arguments: e.Arguments, Environment: env.list(), Terminal: e.Terminal != nil}, std, func(f *failure) { c.fail = f })
	if err != nil {
		return err
	}
	c.child = child
	s.execs.Add(1)
	return nil
}

// commands counts the commands that run.
func (s *supervisor) commands() (n int) {
	for _, c := range s.children {
		if c.rank == commandRank {
			n++
		}
	}
	return n
}

// pump sends what the command writes.
func (c *command) pump(from *os.File, kind wire.FrameKind) {
	c.pumps.Go(func() {
		defer from.Close()
		buffer := make([]byte, wire.MaxFrame/2)
		var frame []byte
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				frame = wire.AppendFrame(frame[:0], kind, buffer[:n])
				if !c.write(frame) {
					c.hangUp()
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
}

func (c *command) write(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	_, err := c.conn.Write(b)
	return err == nil
}

// feed gives the command its input. If the user who started the command has hung up, it is
// killed.
func (c *command) feed(in *bufio.Reader, to *os.File) {
	buffer := make([]byte, wire.MaxFrame)
	for {
		kind, b, err := wire.ReadFrame(in, buffer)
		switch {
		case err == nil && kind == wire.FrameSize && c.terminal != nil:
			size, wrong := wire.ParseSize(b)
			if wrong != nil {
				c.hangUp()
				return
			}
			_ = c.terminal.resize(size) // it may have been hung up
			continue
		case err != nil || kind != wire.FrameInput:
			c.hangUp()
			return
		case len(b) == 0 && c.terminal == nil:
			to.Close()
			continue
		case len(b) == 0:
			b = []byte{endOfInput}
		}
		if !c.give(to, b) {
			c.hangUp()
			return
		}
	}
}

// beatTime is how often the supervisor checks that the user is still connected while the
// command does not read its input.
const beatTime = time.Second

// give writes input to the command, and returns false if the user has hung up. While the
// command does not read, every hop up to the user is blocked in a write, and none can see the
// end of what it reads: that lies behind bytes for which there is no room, and TCP does not
// even deliver it. So an empty frame of output is sent the other way now and then, and that
// write fails at a hop that has hung up.
func (c *command) give(to *os.File, b []byte) bool {
	for {
		_ = to.SetWriteDeadline(time.Now().Add(beatTime))
		n, err := to.Write(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true // it may have closed its input
		}
		if !c.write(wire.AppendFrame(nil, wire.FrameOutput, nil)) {
			return false
		}
		b = b[n:]
	}
}

// hangTime is how long a command has to end by itself when its terminal has hung up.
const hangTime = 5 * time.Second

// hangUp ends a command whose user has disconnected. What runs on a terminal is sent SIGHUP first, by the
// system.
func (c *command) hangUp() {
	if c.terminal == nil {
		c.kill()
		return
	}
	c.terminal.Close()
	time.AfterFunc(hangTime, c.kill)
}

// kill kills the command and its descendants.
func (c *command) kill() {
	c.s.inbox <- func() {
		if c.child.exited {
			return
		}
		killBelow(c.child.pid)
		_ = syscall.Kill(c.child.pid, syscall.SIGKILL) // its number cannot be reused: it is a child that was not waited for yet
	}
}

// drain waits for the rest of the output, for drainTime at most.
func (c *command) drain(ours [3]*os.File) {
	done := make(chan struct{})
	go func() {
		c.pumps.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainTime):
		for _, f := range ours[1:] {
			_ = f.SetReadDeadline(time.Now())
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(sayTime))
		<-done
	}
}

func (c *command) outcome() wire.Outcome {
	o := wire.Outcome{}
	if status := c.child.status; status.Signaled() {
		o.Signal = int(status.Signal())
	} else {
		o.Exit = status.ExitStatus()
	}
	if c.fail != nil {
		o.Reason = wire.Reason(c.fail.Reason)
	}
	return o
}

func (c *command) end(o wire.Outcome) {
	o.Reason = wire.Reason(o.Reason)
	_ = c.conn.SetWriteDeadline(time.Now().Add(sayTime))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_, _ = c.conn.Write(wire.AppendOutcome(nil, o))
}

// ---- files ----

// questionVariable has the outputQuestion: other users can see a process's arguments, and not its
// environment.
const questionVariable = "MUSTER_OUTPUT"

// outputQuestion is what the process is told that reads a job's output as the job's user.
type outputQuestion struct {
	Directory string `json:"directory"`
	File      string `json:"file"`
	Offset    int64  `json:"offset"`
}

// followTime is how often a growing file is checked.
const followTime = 100 * time.Millisecond

// readOutput writes a file to standard output, and what is added to it for as long as
// standard input is open. It runs as the job's user.
func readOutput(question string) int {
	err := copyOutput(question)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func copyOutput(question string) error {
	var q outputQuestion
	if err := strictjson.Decode([]byte(question), &q); err != nil {
		return err
	}
	if err := os.Chdir(q.Directory); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	f, err := openOutput(q.File, closed)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(q.Offset, io.SeekStart); err != nil {
		return err
	}
	for {
		last := false
		select {
		case <-closed:
			last = true
		default:
		}
		if _, err := io.Copy(os.Stdout, f); err != nil || last {
			return err
		}
		select {
		case <-closed:
		case <-time.After(followTime):
		}
	}
}

// openOutput opens the file, and waits until it exists: the task may just have been started.
func openOutput(path string, closed <-chan struct{}) (*os.File, error) {
	for last := false; ; {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		switch {
		case errors.Is(err, os.ErrNotExist) && !last:
			select {
			case <-closed:
				last = true
			case <-time.After(followTime):
			}
			continue
		case err != nil:
			return nil, err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f.Close()
			return nil, fmt.Errorf("%s is no file that can be read from the beginning", path)
		}
		return f, nil
	}
}
