package workers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/confine"
	"muster/node/proc"
	"muster/wire"
	"muster/wire/control"
)

// StartTime is how long a worker may take from being given its client to being ready. It
// opens the node's devices meanwhile, and a driver may have to wake many GPUs.
const StartTime = time.Minute

// sharedStartTime is startTime of a worker under MPS. An MPS server can hang, which it has been seen to
// do after a worker was killed that had been stopped, and a worker without MPS is then the remedy.
const sharedStartTime = 20 * time.Second

// lookTime is how often begin looks whether a worker that is not ready yet was stopped.
const lookTime = 500 * time.Millisecond

// killAfter is how long a worker may take to end by itself before it is killed.
const killAfter = 2 * time.Second

// FirstPing is the number of the ping that a worker answers when it is ready.
const FirstPing = 1

// maxQueued is how many messages may wait for a worker that does not read them before it
// is taken for dead: on a busy machine it may have to wait for a processor.
const maxQueued = 1024

// Process is a worker, serving or waiting for a client.
type Process struct {
	process *os.Process
	number  int                // of the process
	Started uint64             // when it was started, see processStart
	control *control.DaemonEnd // nil while it is away
	queue   chan parcel
	words   *words
	Ready   bool               // it has answered its first ping
	heir    bool               // it was given a legacy, and outlives the daemon
	early   []control.ToDaemon // what it said before it was ready
	UID     uint32             // its own user number (uids); 0 if it has none
	bounds  Bounds             // not known of one that an earlier daemon started
	files   string             // those that it may read one by one (confine.Rules.Files)
	Exited  chan struct{}      // closed when the process has exited
	err     error              // how it ended; valid once exited is closed

	confined *confine.State // what confines it; nil until somebody asks (confines); the loop's

	away   bool        // it outlived an earlier daemon and has not come back yet; the loop's
	unsaid unsaid      // what it is to be told when it comes; the loop's
	left   atomic.Bool // it is left to the next daemon
}

// startWorker starts a worker within some bounds. Its end of the connection is descriptor 3.
func startWorker(command []string, within Bounds, log *slog.Logger) (*Process, error) {
	own, child, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	w := &Process{
		control: own, queue: make(chan parcel, maxQueued),
		words: &words{log: log, room: maxWords}, Exited: make(chan struct{}), bounds: within, files: within.files(), // before they are opened
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = w.words
	// A process that a worker left behind may hold its standard error open.
	cmd.WaitDelay = killAfter
	cmd.ExtraFiles = []*os.File{child}
	// A Ctrl-C at the terminal is for the daemon, which ends its workers itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := within.start(cmd); err != nil {
		own.Close()
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	volunteer(cmd.Process.Pid)
	w.process, w.number = cmd.Process, cmd.Process.Pid
	w.Started, _ = proc.Start(w.PID())
	go func() {
		w.err = cmd.Wait()
		w.words.close()
		close(w.Exited)
	}()
	return w, nil
}

// volunteer asks the kernel to kill a worker before the daemon when memory runs out: memory that one
// program makes its worker use must not cost the other programs their node.
func volunteer(pid int) {
	const more = 500
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	now, err := os.ReadFile(path)
	if err != nil {
		return // not every kernel has this file
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(now))); err == nil && n < more {
		_ = os.WriteFile(path, []byte(strconv.Itoa(more)), 0) // best effort
	}
}

// ErrEndedEarly says that a worker ended before it was ready, and did not say why.
var ErrEndedEarly = errors.New("the worker ended before it was ready")

// Begin gives the worker its client, with the legacy if the client had another worker
// before, and waits until the worker is ready, which it shows by answering a ping. It
// gives up, and kills the worker, when gone is closed, when it has taken too long, or when the
// worker was stopped by a signal. Once it has returned without an error, post sends
// messages.
func (w *Process) Begin(s control.Serve, files []*os.File, left *Legacy, gone <-chan struct{}) error {
	w.words.serves(s.Client)
	if left != nil {
		w.heir = true
		s.Hold = &control.Hold{Attached: left.Attached}
		files = append(slices.Clone(files), left.Program)
	}
	if err := w.control.Send(s, files...); err != nil {
		return early(err)
	}
	_ = w.control.Send(control.Ping{Number: FirstPing}) // an error is ignored: if the worker has ended, Receive below may still find why
	limit := StartTime
	if s.MPS != nil && s.MPS.Shared {
		limit = sharedStartTime
	}
	ready, gaveUp := make(chan struct{}), make(chan error, 1)
	defer close(ready)
	go func() {
		late, look := time.NewTimer(limit), time.NewTicker(lookTime)
		defer late.Stop()
		defer look.Stop()
		for waits := true; waits; {
			select {
			case <-ready:
				return
			case <-gone:
				gaveUp <- errors.New("the client has ended")
				waits = false
			case <-late.C:
				gaveUp <- fmt.Errorf("the worker was not ready after %v", limit)
				waits = false
			case <-look.C: // a worker stopped by a signal will not get ready
				waits = !proc.IsStopped(w.PID())
			}
		}
		w.Kill()
	}()
	for {
		said, err := w.control.Receive()
		if err != nil {
			select {
			case why := <-gaveUp:
				return why
			default:
				return early(err)
			}
		}
		switch m := said.(type) {
		case control.CannotServe:
			return errors.New(m.Reason)
		case control.Pong:
			w.Ready = true
			go w.sendQueued(w.queue, w.control)
			return nil
		}
		// A worker that rebuilds a client may ask for a device before it answers the
		// ping.
		if w.early = append(w.early, said); len(w.early) > maxEarly {
			return errors.New("the worker is broken: it says much before it is ready")
		}
	}
}

// Attach gives the worker the connection of its program; the worker then tells the
// program that it is attached. If the worker has just ended and the client can be
// rebuilt, that is no error: the next worker does it.
func (w *Process) Attach(attached []byte, program *os.File, canOutlive bool) error {
	err := w.control.Send(control.Hold{Attached: attached}, program)
	if err != nil && canOutlive {
		return nil
	}
	return err
}

// maxEarly is how many messages a worker may send before it is ready.
const maxEarly = 64

// Receive returns the next message of a worker, beginning with those that came before it
// was ready.
func (w *Process) Receive() (control.ToDaemon, error) {
	if len(w.early) > 0 {
		said := w.early[0]
		w.early = w.early[1:]
		return said, nil
	}
	return w.control.Receive()
}

// early distinguishes a connection that ended from a message that cannot be sent or
// read.
func early(err error) error {
	var network *net.OpError
	if errors.As(err, &network) || errors.Is(err, net.ErrClosed) {
		return ErrEndedEarly
	}
	return fmt.Errorf("the worker is broken: %w", err)
}

// sendQueued sends what was posted, until the worker ends.
func (w *Process) sendQueued(queue <-chan parcel, to *control.DaemonEnd) {
	for {
		select {
		case p := <-queue:
			if w.send(p, to) != nil {
				return
			}
		case <-w.Exited:
			return
		}
	}
}

// parcel is a message on its way to a worker.
type parcel struct {
	message control.ToWorker
	files   []*os.File // sent along, and closed afterwards
	lock    *os.File   // of a new device: opened anew for this worker when the message is sent
}

// send sends a message, with the files that belong to it.
func (w *Process) send(p parcel, to *control.DaemonEnd) error {
	if p.lock != nil {
		lock, err := wire.OpenLock(p.lock)
		if err != nil {
			w.words.because("a new device's lock could not be opened for it: " + err.Error())
			w.Kill()
			return err
		}
		p.files = []*os.File{lock}
	}
	defer proc.CloseAll(p.files)
	return to.Send(p.message, p.files...)
}

// Post sends a message without waiting. It takes over the files, and closes them once
// they are sent.
func (w *Process) Post(m control.ToWorker, files ...*os.File) {
	w.put(parcel{message: m, files: files})
}

// PostDevice tells the worker of a new device.
func (w *Process) PostDevice(m control.AddDevice, lock *os.File) {
	w.put(parcel{message: m, lock: lock})
}

// put queues a message. Only the loop may call it, as away and unsaid are the loop's. A
// worker whose queue is full does not read its messages, and is killed.
func (w *Process) put(p parcel) {
	if w.away {
		w.unsaid.keep(p.message)
		proc.CloseAll(p.files)
		return
	}
	select {
	case w.queue <- p:
	default:
		proc.CloseAll(p.files)
		w.words.because("it did not take its messages, and was killed")
		w.Kill()
	}
}

// Stop has the worker end: by itself if it reads the message or sees the connection
// close, and by a signal after killAfter otherwise. A worker that is away cannot be
// told, and is killed.
func (w *Process) Stop() {
	switch {
	case w.away, w.heir && !w.Ready: // closing its connection would only make it look for another daemon
		w.Kill()
	case w.Ready:
		go func() { // sending may have to wait for the worker to read
			_ = w.control.Send(control.End{})
			_ = w.control.CloseWrite() // its last words, as why a kernel was ended, are still heard
		}()
	default: // without a client, a worker ends when its connection does
		w.control.Close()
	}
	go func() {
		late := time.NewTimer(killAfter)
		defer late.Stop()
		select {
		case <-w.Exited:
		case <-late.C:
			w.Kill()
		}
	}()
}

func (w *Process) Kill() { _ = w.process.Kill() }

func (w *Process) PID() int { return w.number }

// Ending says how the worker ended. exited must be closed.
func (w *Process) Ending() string {
	how := "it ended by itself"
	if w.err != nil {
		how = w.err.Error()
	}
	if cause := w.words.cause(w.Ready); cause != "" {
		how += ": " + cause
	}
	return how
}

// errUnknownEnd stands for the exit status of a process that this daemon did not start,
// and so cannot wait for.
var errUnknownEnd = errors.New("how is not known: an earlier daemon started it")

// Find finds a worker that an earlier daemon started. It returns nil if it has
// ended.
func Find(pid int, start uint64, uid uint32, log *slog.Logger) *Process {
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	end, err := proc.Open(pid)
	// Opened first and checked then: if a process with this number and start time is there
	// now, it is the one that was opened.
	if ticks, ok := proc.Start(pid); !ok || ticks != start {
		_ = process.Release()
		if err == nil {
			end.Close()
		}
		return nil
	}
	w := &Process{
		process: process, number: pid, Started: start, UID: uid, away: true, Ready: true, queue: make(chan parcel, maxQueued),
		words: &words{log: log, room: maxWords}, Exited: make(chan struct{}),
	}
	go func() {
		if err == nil {
			err = proc.AwaitEnd(end, pid, start)
		}
		if err != nil { // the system has no pidfd
			for proc.IsRunning(pid, start) {
				time.Sleep(proc.LookTime)
			}
		}
		w.err = errUnknownEnd
		_ = process.Release() // the handle holds a descriptor
		close(w.Exited)
	}()
	return w
}

// unsaid is what the daemon has to tell a worker that is away, once it comes.
type unsaid struct {
	revoke *control.Revoke
	watch  bool
}

// keep notes a message for a worker that is away. Only revocations and watches need to
// be kept: the worker asks again for whatever it wants, and hears of devices when it has
// said which it knows.
func (u *unsaid) keep(m control.ToWorker) {
	switch m := m.(type) {
	case control.Revoke:
		u.revoke = &m
	case control.Watch:
		u.watch = m.On
	}
}

// Legacy is what a replacement worker gets beside the client: the program's connection.
// It gets that together with the client and not later, so that it outlives the daemon
// from its first moment, as the worker that it replaces did.
type Legacy struct {
	Attached []byte // what the program is still to be told; nil if it knows
	Program  *os.File
}

func (l *Legacy) Close() {
	if l != nil {
		l.Program.Close()
	}
}

// Leave leaves a worker to the next daemon: it closes the connection without telling the worker to end.
func (w *Process) Leave() {
	w.left.Store(true)
	if !w.away {
		w.control.Close()
	}
}

// IsLeft says whether the worker was left to the next daemon.
func (w *Process) IsLeft() bool { return w.left.Load() }

// IsAway says whether the worker outlived an earlier daemon and has not come back yet. Only the loop
// calls it, as all that concerns coming and going.
func (w *Process) IsAway() bool { return w.away }

// IsRunning says whether the process is still there.
func (w *Process) IsRunning() bool { return proc.IsRunning(w.number, w.Started) }

// ComeBack lets the worker go on for its client, over a new connection and with a new pipe for its
// standard error, and sends it what was kept for it meanwhile.
func (w *Process) ComeBack(to *control.DaemonEnd, errors *os.File, client uint64) {
	w.control, w.away = to, false
	w.words.serves(client)
	go func() {
		_, _ = io.Copy(w.words, errors)
		errors.Close()
		w.words.close()
	}()
	w.queue = make(chan parcel, cap(w.queue))
	go w.sendQueued(w.queue, w.control)
	said := w.unsaid
	w.unsaid = unsaid{}
	if said.watch {
		w.Post(control.Watch{On: true})
	}
	if said.revoke != nil {
		w.Post(*said.revoke)
	}
}

// GoAway closes the connection of a worker that may not have understood that it was adopted. It is
// told when it comes again whether it is watched, and whether it must leave its device (nil: it
// need not).
func (w *Process) GoAway(watched bool, revoke *control.Revoke) {
	w.control.Close()
	w.control, w.away = nil, true
	w.unsaid = unsaid{revoke: revoke, watch: watched}
}

// AwaitExit waits until the process has ended, and closes the connection.
func (w *Process) AwaitExit() {
	<-w.Exited
	w.control.Close()
}

// Fake stands for a process that serves a client, for tests of those who post to workers.
func Fake(pid int, start uint64) *Process {
	return &Process{number: pid, Started: start, Ready: true, queue: make(chan parcel, 16)}
}

// Posted takes out what waits to be sent, for tests.
func (w *Process) Posted() (all []control.ToWorker) {
	for len(w.queue) > 0 {
		all = append(all, (<-w.queue).message)
	}
	return all
}
