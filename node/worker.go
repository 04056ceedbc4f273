package node

import (
	"errors"
	"fmt"
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
	"muster/wire"
	"muster/wire/control"
)

// startTime is how long a worker may take from being given its client to being ready. It
// opens the node's devices meanwhile, and a driver may have to wake many GPUs.
const startTime = time.Minute

// sharedStartTime is startTime of a worker under MPS. An MPS server can hang, which it has been seen to
// do after a worker was killed that had been stopped, and a worker without MPS is then the remedy.
const sharedStartTime = 20 * time.Second

// lookTime is how often begin looks whether a worker that is not ready yet was stopped.
const lookTime = 500 * time.Millisecond

// killAfter is how long a worker may take to end by itself before it is killed.
const killAfter = 2 * time.Second

// maxTries is how many workers are tried for one client.
const maxTries = 3

// firstPing is the number of the ping that a worker answers when it is ready.
const firstPing = 1

// maxQueued is how many messages may wait for a worker that does not read them before it
// is taken for dead: on a busy machine it may have to wait for a processor.
const maxQueued = 1024

// workerProcess is a worker, serving or waiting for a client.
type workerProcess struct {
	process *os.Process
	number  int                // of the process
	start   uint64             // when it was started, see processStart
	control *control.DaemonEnd // nil while it is away
	queue   chan parcel
	words   *words
	ready   bool               // it has answered its first ping
	heir    bool               // it was given a legacy, and outlives the daemon
	early   []control.ToDaemon // what it said before it was ready
	uid     uint32             // its own user number (uids); 0 if it has none
	bounds  bounds             // not known of one that an earlier daemon started
	files   string             // those that it may read one by one (confine.Rules.Files)
	exited  chan struct{}      // closed when the process has exited
	err     error              // how it ended; valid once exited is closed

	confined *confine.State // what confines it; nil until somebody asks (confines); the loop's

	away   bool        // it outlived an earlier daemon and has not come back yet; the loop's
	unsaid unsaid      // what it is to be told when it comes; the loop's
	left   atomic.Bool // it is left to the next daemon
}

// startWorker starts a worker within some bounds. Its end of the connection is descriptor 3.
func startWorker(command []string, within bounds, log *slog.Logger) (*workerProcess, error) {
	own, child, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	w := &workerProcess{
		control: own, queue: make(chan parcel, maxQueued),
		words: &words{log: log, room: maxWords}, exited: make(chan struct{}), bounds: within, files: within.files(), // before they are opened
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
	w.start, _ = processStart(w.pid())
	go func() {
		w.err = cmd.Wait()
		w.words.close()
		close(w.exited)
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

// errEndedEarly says that a worker ended before it was ready, and did not say why.
var errEndedEarly = errors.New("the worker ended before it was ready")

// begin gives the worker its client, with the legacy if the client had another worker
// before, and waits until the worker is ready, which it shows by answering a ping. It
// gives up, and kills the worker, when gone is closed, when it has taken too long, or when the
// worker was stopped by a signal. Once it has returned without an error, post sends
// messages.
func (w *workerProcess) begin(s control.Serve, files []*os.File, left *legacy, gone <-chan struct{}) error {
	w.words.serves(s.Client)
	if left != nil {
		w.heir = true
		s.Hold = &control.Hold{Attached: left.attached}
		files = append(slices.Clone(files), left.program)
	}
	if err := w.control.Send(s, files...); err != nil {
		return early(err)
	}
	_ = w.control.Send(control.Ping{Number: firstPing}) // an error is ignored: if the worker has ended, Receive below may still find why
	limit := startTime
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
				waits = !isStopped(w.pid())
			}
		}
		w.kill()
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
			w.ready = true
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

// attach gives the worker the connection of its program; the worker then tells the
// program that it is attached. If the worker has just ended and the client can be
// rebuilt, that is no error: the next worker does it.
func (w *workerProcess) attach(attached []byte, program *os.File, held []control.Held) error {
	err := w.control.Send(control.Hold{Attached: attached}, program)
	if err != nil && canOutlive(held) {
		return nil
	}
	return err
}

// maxEarly is how many messages a worker may send before it is ready.
const maxEarly = 64

// receive returns the next message of a worker, beginning with those that came before it
// was ready.
func (w *workerProcess) receive() (control.ToDaemon, error) {
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
		return errEndedEarly
	}
	return fmt.Errorf("the worker is broken: %w", err)
}

// sendQueued sends what was posted, until the worker ends.
func (w *workerProcess) sendQueued(queue <-chan parcel, to *control.DaemonEnd) {
	for {
		select {
		case p := <-queue:
			if w.send(p, to) != nil {
				return
			}
		case <-w.exited:
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
func (w *workerProcess) send(p parcel, to *control.DaemonEnd) error {
	if p.lock != nil {
		lock, err := wire.OpenLock(p.lock)
		if err != nil {
			w.words.because("a new device's lock could not be opened for it: " + err.Error())
			w.kill()
			return err
		}
		p.files = []*os.File{lock}
	}
	defer closeFiles(p.files)
	return to.Send(p.message, p.files...)
}

// post sends a message without waiting. It takes over the files, and closes them once
// they are sent.
func (w *workerProcess) post(m control.ToWorker, files ...*os.File) {
	w.put(parcel{message: m, files: files})
}

// postDevice tells the worker of a new device.
func (w *workerProcess) postDevice(m control.AddDevice, lock *os.File) {
	w.put(parcel{message: m, lock: lock})
}

// put queues a message. Only the loop may call it, as away and unsaid are the loop's. A
// worker whose queue is full does not read its messages, and is killed.
func (w *workerProcess) put(p parcel) {
	if w.away {
		w.unsaid.keep(p.message)
		closeFiles(p.files)
		return
	}
	select {
	case w.queue <- p:
	default:
		closeFiles(p.files)
		w.words.because("it did not take its messages, and was killed")
		w.kill()
	}
}

// stop has the worker end: by itself if it reads the message or sees the connection
// close, and by a signal after killAfter otherwise. A worker that is away cannot be
// told, and is killed.
func (w *workerProcess) stop() {
	switch {
	case w.away, w.heir && !w.ready: // closing its connection would only make it look for another daemon
		w.kill()
	case w.ready:
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
		case <-w.exited:
		case <-late.C:
			w.kill()
		}
	}()
}

func (w *workerProcess) kill() { _ = w.process.Kill() }

func (w *workerProcess) pid() int { return w.number }

// ending says how the worker ended. exited must be closed.
func (w *workerProcess) ending() string {
	how := "it ended by itself"
	if w.err != nil {
		how = w.err.Error()
	}
	if cause := w.words.cause(w.ready); cause != "" {
		how += ": " + cause
	}
	return how
}

// employ finds a worker for a client and starts it. A warm worker may have been killed
// while it waited, as when memory ran out, which is not the program's fault: if a worker
// ends before it is ready and does not say why, another one is tried, up to maxTries. with is the
// spare that the client was given; nil if none.
func (d *daemon) employ(c *client, serve control.Serve, files []*os.File, left *legacy, with *spare) (*workerProcess, error) {
	for try := 1; ; try++ {
		if c.peer.user.uid != nobody {
			serve.Owner = c.peer.key()
		}
		serve.MPS = d.mpsOf(c)
		w, err := d.anyWorker(c, &serve, with, try)
		if err != nil {
			return nil, because(err, resultSystemNotReady, "%v", err)
		}
		if err = d.lend(w, &c.peer.user, &serve); err == nil {
			if left != nil { // a failure to write is reported, but no reason to end the client
				d.ask(func() { _ = d.writeDown(c, w) })
			}
			err = w.begin(serve, files, left, c.gone)
		}
		if err == nil {
			return w, nil
		}
		d.dismiss(w)
		d.ask(func() { d.leaveSpare(c) })
		if d.refusedByMPS(c, &serve, err) {
			continue
		}
		switch {
		case !errors.Is(err, errEndedEarly):
			return nil, refuse(resultSystemNotReady, "no worker can serve the program: %v", err)
		case try >= maxTries: // tries that MPS refused count, too
			return nil, refuse(resultSystemNotReady, "no worker can serve the program: of %d that were tried each ended before it was ready, the last so: %s", try, w.ending())
		}
		d.log.Warn("a worker ended before it was ready: another is started", "client", c.id, "ending", w.ending())
	}
}

// anyWorker finds a worker for a client at the given try: the spare that it was given, if that has
// the terms it needs, or one of the pool.
func (d *daemon) anyWorker(c *client, serve *control.Serve, with *spare, try int) (*workerProcess, error) {
	switch {
	case with == nil || try > 1:
	case with.serves(d, serve.MPS, serve.Pace):
		return with.worker, nil
	default:
		d.dismiss(with.worker)
		d.ask(func() { d.leaveSpare(c) })
	}
	return d.pool.take(try == 1)
}

// dismiss ends a worker, waits until it has exited, and takes its user number back.
func (d *daemon) dismiss(w *workerProcess) {
	w.stop()
	<-w.exited
	w.control.Close()
	d.uids.giveBack(w.uid)
}
