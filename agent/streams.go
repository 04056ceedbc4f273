package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"muster/agent/agentcore"
	wire "muster/wire/agent"
)

// fileRate is how many bytes of a task's output are read per second at most.
const fileRate = 64 << 20

// open serves a stream that the head asked for.
func (a *agent) open(ctx context.Context, e agentcore.Stream) {
	reason := e.Reason
	select {
	case a.streams <- struct{}{}:
	default:
		a.log.Warn("too many streams are open: one is refused", "task", e.Open.Task)
		return
	}
	a.wait.Go(func() {
		defer func() { <-a.streams }()
		conn, err := a.cfg.DialStream(ctx, e.Open.Stream)
		if err != nil {
			a.log.Info("a stream to the head cannot be opened", "error", err)
			return
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		if reason == "" {
			err = a.stream(ctx, conn, e.Open)
		} else {
			err = errors.New(reason)
		}
		if err != nil {
			_ = conn.SetWriteDeadline(time.Now().Add(sayTime))
			_, _ = conn.Write(wire.AppendOutcome(nil, wire.Outcome{Exit: 1, Reason: wire.Reason(err.Error())}))
		}
	})
}

// stream serves a stream. It returns an error only if nothing was sent yet, so that the
// caller can send the reason.
func (a *agent) stream(ctx context.Context, conn net.Conn, o wire.Open) error {
	switch {
	case o.Exec != nil:
		return a.streamExec(ctx, conn, o)
	case o.File == wire.FileStatus:
		return a.streamStatus(ctx, conn)
	}
	return a.streamFile(ctx, conn, o)
}

// streamStatus sends what the node says of itself.
func (a *agent) streamStatus(ctx context.Context, conn net.Conn) error {
	if a.cfg.Status == nil {
		return errors.New("this node serves no devices, and has no status")
	}
	s, err := a.cfg.Status(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(sayTime))
	if send(conn, bytes.NewReader(text)) {
		_, _ = conn.Write(wire.AppendOutcome(nil, wire.Outcome{}))
	}
	return nil
}

// streamExec connects the head with the task's supervisor, which runs the command.
func (a *agent) streamExec(ctx context.Context, conn net.Conn, o wire.Open) error {
	to, err := reach(ctx, a.spool.task(o.Task), o.Task)
	if err != nil {
		return fmt.Errorf("the task's supervisor is not reached: %w", err)
	}
	defer to.Close()
	if c := (control{to}); !c.say(request{Exec: o.Exec}) {
		return errors.New("the task's supervisor has ended")
	}
	_ = to.SetWriteDeadline(time.Time{})
	go func() {
		_, _ = io.Copy(to, conn)
		to.Close() // the head has hung up: the supervisor then kills the command
	}()
	_, _ = io.Copy(conn, to)
	return nil
}

// How long a supervisor may take to begin, and how often it is tried.
const (
	beginTime  = 30 * time.Second
	openedTime = time.Second // between a task's first words and the word that it has opened its output
	tryTime    = 5 * time.Millisecond
)

// reach connects to the supervisor of a task, and waits for one that has not begun yet:
// the task on a job's first node may run commands on the other nodes as soon as it has
// begun itself.
func reach(ctx context.Context, dir string, id wire.Task) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	tick := time.NewTicker(tryTime)
	defer tick.Stop()
	for {
		to, err := dialIn(dir, socketName)
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return to, err
		}
		end, wrong := readEnd(dir, id)
		if _, gone := os.Stat(dir); wrong != nil || end != nil || gone != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// streamFile sends what a task has written. A process of the task's user reads it, so
// that the user sees only what he may read.
func (a *agent) streamFile(ctx context.Context, conn net.Conn, o wire.Open) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := readTask(a.spool.task(o.Task))
	if err != nil && o.Ended == nil {
		return err
	}
	go func() { // the head sends nothing here, so a read ends when it hangs up
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	}()
	written := o.Ended
	if err == nil {
		if err := a.awaitOpened(ctx, f, o.Follow); err != nil {
			return err
		}
		spec := &f.start.Spec
		written = &wire.Written{User: spec.User, Directory: spec.Directory, File: spec.Output}
		if o.File == "error" && spec.Error != "" {
			written.File = spec.Error
		}
	}
	who, err := findAccount(written.User)
	if err != nil {
		return err
	}
	q := outputQuestion{Directory: written.Directory, File: written.File, Offset: o.Offset}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "task", "read")
	cmd.Args[0] = programName
	cmd.Dir, cmd.Env = "/", []string{questionVariable + "=" + string(text)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: who.credential}
	// Other processes of the user can open the pipes, too: they may write to them without end, and keep
	// them open when this one has ended.
	var complaint beginning
	cmd.Stderr, cmd.WaitDelay = &complaint, drainTime
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("reading the output: %w", err)
	}
	defer context.AfterFunc(ctx, func() { out.Close() })()
	go func() {
		defer hold.Close()
		if o.Follow {
			a.awaitEnd(ctx, o.Task)
		}
	}()
	sent := send(conn, out)
	if !sent {
		cancel()
	}
	err = cmd.Wait()
	if err != nil && sent && len(complaint) > 0 {
		return errors.New(strings.TrimSpace(string(complaint)))
	}
	if sent {
		_, _ = conn.Write(wire.AppendOutcome(nil, wire.Outcome{}))
	}
	return nil
}

// beginning keeps the first bytes that are written to it.
type beginning []byte

const mostBeginning = 4 << 10

func (k *beginning) Write(b []byte) (int, error) {
	*k = append(*k, b[:min(len(b), mostBeginning-len(*k))]...)
	return len(b), nil
}

// send sends bytes as frames, no faster than fileRate. It returns false if the head has
// hung up.
func send(to io.Writer, from io.Reader) bool {
	buffer := make([]byte, wire.MaxFrame)
	var frame []byte
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			frame = wire.AppendFrame(frame[:0], wire.FrameOutput, buffer[:n])
			if _, err := to.Write(frame); err != nil {
				return false
			}
			time.Sleep(time.Duration(n) * time.Second / fileRate)
		}
		if err != nil {
			return true
		}
	}
}

// awaitOpened waits until a task has opened its output, if the task empties it: before that, the
// file may have what an earlier job wrote. A task that is not followed is waited for only a moment,
// in which one that writes already is seen to have opened it.
func (a *agent) awaitOpened(ctx context.Context, f *taskFile, follow bool) error {
	id := f.start.Task
	if !empties(&f.start) {
		return nil
	}
	over := false
	if !follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openedTime)
		defer cancel()
	}
	a.await(ctx, id, tryTime, func(ended bool) bool {
		over = ended
		return hasOpened(a.spool.task(id))
	})
	switch {
	case hasOpened(a.spool.task(id)):
		return nil
	case over:
		return fmt.Errorf("job %d has ended before it began, and has written nothing", id.Job)
	}
	return fmt.Errorf("job %d is starting, and has written nothing yet", id.Job)
}

// awaitEnd waits until a task has ended.
func (a *agent) awaitEnd(ctx context.Context, id wire.Task) {
	a.await(ctx, id, followTime, func(bool) bool { return false })
}

// await looks at a task again and again, until enough is true or the task has ended.
func (a *agent) await(ctx context.Context, id wire.Task, every time.Duration, enough func(ended bool) bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		dir := a.spool.task(id)
		end, err := readEnd(dir, id)
		_, gone := os.Stat(dir)
		ended := err != nil || end != nil || gone != nil
		if enough(ended) || ended {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
