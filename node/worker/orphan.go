package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"muster/internal/whois"
	"muster/wire"
	"muster/wire/control"
)

// A worker outlives its daemon, so that the daemon can be restarted, upgraded or killed while
// programs run. If the connection ends without control.End, the worker is an orphan: it serves its
// client with the lease that it has, and messages that need the daemon wait. Meanwhile the
// goroutine of receive looks for the next daemon at the node's socket, for the time that Serve
// named (OrphanGrace). It also watches the program's connection, of which the worker has a
// descriptor, as the daemon did.
//
// Messages to the daemon are dropped while there is none. What they said is part of the client's
// standing, which the loop sends first to the next daemon, after it has handled everything that the
// last one had sent.

const (
	firstPause    = 20 * time.Millisecond // between two attempts to reach the next daemon
	longestPause  = 500 * time.Millisecond
	introduceTime = 5 * time.Second // for a daemon to answer
)

// line is the worker's side of the connection for sending. The loop sends; receive replaces the
// connection. The lock keeps the loop from sending to the next daemon before its standing.
type line struct {
	mu      sync.Mutex
	current *control.WorkerEnd
	open    bool // messages are sent; else they are dropped
	closed  bool // for good, by the worker itself
	kernels uint64
	busy    time.Duration // total of what Ran has reported, to all daemons
}

// say sends a message to the daemon, if there is one.
func (l *line) say(m control.ToDaemon) {
	l.mu.Lock()
	switch said := m.(type) {
	case control.Ran:
		l.kernels += uint64(said.Kernels)
		l.busy += said.Busy
	case control.Standing:
		said.Kernels, said.Busy = l.kernels, l.busy
		m = said
	}
	to := l.current
	if !l.open {
		to = nil
	}
	l.mu.Unlock()
	if to != nil {
		_ = to.Send(m) // receive finds out if the daemon has died
	}
}

// cut notes that the daemon has died. It returns false if the worker closed the connection itself.
func (l *line) cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = false
	l.current.Close()
	return !l.closed
}

// join replaces the last daemon by the next. Nothing is sent to it before the loop has called
// begin, to send the standing first.
func (l *line) join(next *control.WorkerEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		next.Close()
		return false
	}
	l.current, l.open = next, false // closed again: the loop may have begun with a daemon that died since
	return true
}

// begin lets messages be sent to a daemon from now on, unless it has died already.
func (l *line) begin(end *control.WorkerEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = l.current == end && !l.closed
}

// isOpen says whether messages are sent, or never will be.
func (l *line) isOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open || l.closed
}

// close closes the connection for good.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.current.Close()
}

// nextDaemon tells the loop that a daemon has adopted the worker. It goes through the inbox, behind
// everything that the last daemon sent.
type nextDaemon struct {
	control.Hold
	end *control.WorkerEnd
}

// hold keeps a descriptor for the next daemon, if the worker may have one.
func (w *worker) hold(name string, f *os.File) {
	if f == nil {
		return
	}
	if w.serve.OrphanGrace == 0 {
		f.Close()
		return
	}
	w.held = append(w.held, control.Held{Name: name, File: f})
}

// letGo closes the held descriptors.
func (w *worker) letGo() {
	for _, h := range w.held {
		h.File.Close()
	}
	if w.program != nil {
		w.program.Close()
	}
}

// attach takes the program's connection, and tells the program that it is attached. If that fails
// the program has ended, which the daemon will see.
func (w *worker) attach(m control.Hold, connection *os.File) {
	conn, err := net.FileConn(connection)
	program, ok := conn.(*net.UnixConn)
	if !ok || w.program != nil || len(w.held) < 2 {
		w.log.Warn("the program cannot be attached", "error", err)
		connection.Close()
		return
	}
	// Otherwise the program knows: a previous worker has told it, or the program was restored.
	if len(m.Attached) > 0 && (!w.serve.Resume || !w.shared.Used()) {
		if err := wire.SendFiles(program, m.Attached, w.held[0].File, w.held[1].File); err != nil {
			w.log.Info("the program has ended before it was attached", "error", err)
		}
	}
	w.program = program
	w.hold("program", connection)
}

// noteLost notes that a device is lost, for the standing.
func (w *worker) noteLost(m control.ToWorker) {
	if lost, ok := m.(control.Lost); ok && lost.Device < len(w.serve.Devices) {
		w.serve.Devices = slices.Clone(w.serve.Devices)
		w.serve.Devices[lost.Device].Gone = true
	}
}

// completed adds to a message what the core does not know.
func (w *worker) completed(m control.ToDaemon) control.ToDaemon {
	if standing, ok := m.(control.Standing); ok {
		standing.Devices = w.serve.Devices
		return standing
	}
	if report, ok := m.(control.Report); ok && w.pace != nil {
		report.Stats.Held = w.pace.Held()
		return report
	}
	return m
}

const (
	daemonEnded = "the node daemon ended"
	startAgain  = "; what the program had on its device is lost: if muster ps finds no node, start one with muster node (or systemctl start muster), then start the program again"
)

// outlive looks for the next daemon after the last one has died. It returns the reason if the
// worker must end, and "" if a daemon has adopted it.
func (w *worker) outlive() (why string) {
	if w.dismissed || w.program == nil || w.serve.OrphanGrace == 0 {
		return daemonEnded + startAgain
	}
	gone := w.watchProgram()
	defer func() { // stop watching: the next daemon watches the program
		_ = w.program.SetReadDeadline(time.Unix(1, 0))
		<-gone
	}()
	grace := time.NewTimer(w.serve.OrphanGrace)
	defer grace.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		next, err := w.introduce()
		var refused *control.NotAdopted
		switch {
		case err == nil && w.line.join(next):
			w.control = next
			w.inbox.Put(nextDaemon{end: next})
			w.consumer.Wake()
			return ""
		case err == nil:
			return daemonEnded + startAgain
		case errors.As(err, &refused):
			return "the node was started again and did not take the program over: " + refused.Reason
		}
		select {
		case <-time.After(pause):
		case why, ended := <-gone:
			if ended {
				return why
			}
		case <-grace.C:
			return fmt.Sprintf("%s, and for %v no other came (orphan_grace in the node's configuration)%s", daemonEnded, w.serve.OrphanGrace, startAgain)
		case <-w.ctx.Done():
			return daemonEnded + startAgain
		}
	}
}

// askForAnother tells the daemon that the client needs another worker, and waits to be killed. It
// must not exit before the daemon knows: until then only this process has the client's memory
// files. If the daemon dies meanwhile, the next one gets the standing first, as it expects, and
// then the same request.
func (w *worker) askForAnother(m control.Rebuild) {
	late := time.NewTimer(w.serve.OrphanGrace + killTime)
	defer late.Stop()
	said := false
	for {
		switch open := w.line.isOpen(); {
		case open && !said:
			w.say(m)
			said = true
		case !open:
			said = false
		}
		news, heard := w.inbox.Take()
		if next, ok := news.(nextDaemon); ok {
			w.line.begin(next.end)
			s := w.core.Standing()
			w.say(control.Standing{Lease: s.Lease, Failed: true, Committed: s.Committed}) // what the client had on a device is lost
			said = false
		}
		if heard {
			continue
		}
		select {
		case <-w.inbox.News():
		case <-late.C:
			return
		case <-w.ctx.Done(): // no daemon has come
			return
		}
	}
}

// killTime is the longest that a daemon takes to kill a worker that has asked for another.
const killTime = 10 * time.Second

// watchProgram reports when the program has ended, with the reason that the client is told. The
// channel is closed when watching stops.
func (w *worker) watchProgram() <-chan string {
	_ = w.program.SetReadDeadline(time.Time{})
	gone := make(chan string, 1)
	go func() {
		defer close(gone)
		said, err := wire.AwaitEnd(w.program)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case said:
			gone <- "the program sent what it must not, on its socket"
		default:
			gone <- "the program ended"
		}
	}()
	return gone
}

// introduce asks the daemon at the node's socket to adopt this worker.
func (w *worker) introduce() (*control.WorkerEnd, error) {
	dialled, err := net.DialTimeout("unix", w.serve.Node, introduceTime)
	if err != nil {
		return nil, err
	}
	conn := dialled.(*net.UnixConn)
	defer conn.Close()
	defer context.AfterFunc(w.ctx, func() { conn.Close() })()
	if err := isOf(conn, w.owner); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(introduceTime))
	adopted, err := control.Introduce(conn, w.serve.Client, w.held)
	if err != nil {
		return nil, err
	}
	w.complainTo(adopted.Errors)
	return adopted.End, nil
}

// isOf refuses a daemon of another user. While no daemon runs any user may listen at its address,
// and would be given the program's memory.
func isOf(conn *net.UnixConn, owner int) error {
	peer, err := whois.Of(conn)
	if err != nil {
		return err
	}
	if int(peer.Uid) != owner {
		return fmt.Errorf("user %d answers at the node's socket, which was user %d's", peer.Uid, owner)
	}
	return nil
}

// complainAt makes a file this process's standard error: the former one was a pipe to the last
// daemon, which nobody reads any more.
func complainAt(f *os.File) {
	defer f.Close()
	_ = syscall.Dup3(int(f.Fd()), int(os.Stderr.Fd()), 0) // it works without
}
