// Package line is a worker's connection to its daemon, and to the next one if that dies. It knows the messages
// that a daemon which adopts a worker must hear, and the program's connection, by which it learns that nobody
// is served any more. What the messages are about it does not know.
package line

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
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
// goroutine that receives looks for the next daemon at the node's socket, for the time that Serve
// named (Terms.Grace). It also watches the program's connection, of which the worker has a
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

// Line is the worker's side of the connection. The loop sends (Say); one goroutine receives, and replaces the
// connection (Outlive). The lock keeps the loop from sending to the next daemon before its standing.
type Line struct {
	Terms
	ctx        context.Context // the worker's
	log        *slog.Logger
	complainTo func(*os.File) // takes the file to which the next daemon wants complaints

	// Only the goroutine that receives uses these.
	control   *control.WorkerEnd // to the current daemon
	program   *net.UnixConn      // the program's connection; nil until it is attached
	dismissed bool               // the daemon has ended the client, so no next daemon will want it

	owner int            // the user that the daemon runs as
	held  []control.Held // descriptors to hand to the next daemon

	mu      sync.Mutex
	current *control.WorkerEnd
	open    bool // messages are sent; else they are dropped
	closed  bool // for good, by the worker itself
	kernels uint64
	busy    time.Duration // total of what Ran has reported, to all daemons
}

// Terms are under which the worker may outlive its daemon.
type Terms struct {
	Client uint64
	Node   string        // the socket at which the next daemon is found
	Grace  time.Duration // for so long; 0: not at all
}

// New makes a line of the connection to the first daemon. Ring and arena are the memory shared with the program.
func New(ctx context.Context, end *control.WorkerEnd, terms Terms, ring, arena *os.File, log *slog.Logger) *Line {
	l := &Line{Terms: terms, ctx: ctx, log: log, complainTo: func(f *os.File) { f.Close() }, control: end, owner: os.Geteuid(), current: end, open: true}
	if terms.Grace > 0 {
		l.held = []control.Held{{Name: "ring", File: ring}, {Name: "arena", File: arena}}
	}
	return l
}

// ComplainAt has the process complain to the next daemon on its standard error.
func (l *Line) ComplainAt() { l.complainTo = complainAt }

// Receive receives the daemon's next message.
func (l *Line) Receive() (control.ToWorker, []*os.File, error) { return l.control.Receive() }

// Answer answers a ping.
func (l *Line) Answer(ping control.Ping) { _ = l.control.Send(control.Pong{Number: ping.Number}) }

// Dismiss notes that the daemon has ended the client.
func (l *Line) Dismiss() { l.dismissed = true }

// Dismissed says whether the daemon has ended the client.
func (l *Line) Dismissed() bool { return l.dismissed }

// Say sends a message to the daemon, if there is one.
func (l *Line) Say(m control.ToDaemon) {
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

// Cut notes that the daemon has died. It returns false if the worker closed the connection itself.
func (l *Line) Cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = false
	l.current.Close()
	return !l.closed
}

// join replaces the last daemon by the next. Nothing is sent to it before the loop has called
// Begin, to send the standing first.
func (l *Line) join(next *control.WorkerEnd) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		next.Close()
		return false
	}
	l.current, l.open = next, false // closed again: the loop may have begun with a daemon that died since
	return true
}

// Begin lets messages be sent to a daemon from now on, unless it has died already.
func (l *Line) Begin(end *control.WorkerEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = l.current == end && !l.closed
}

// IsOpen says whether messages are sent, or never will be.
func (l *Line) IsOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open || l.closed
}

// Close closes the connection for good.
func (l *Line) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.current.Close()
}

// Hold keeps a descriptor for the next daemon, if the worker may have one.
func (l *Line) Hold(name string, f *os.File) {
	if f == nil {
		return
	}
	if l.Grace == 0 {
		f.Close()
		return
	}
	l.held = append(l.held, control.Held{Name: name, File: f})
}

// LetGo closes the held descriptors.
func (l *Line) LetGo() {
	for _, h := range l.held {
		h.File.Close()
	}
	if l.program != nil {
		l.program.Close()
	}
}

// Attach takes the program's connection, and tells the program that it is attached, unless it
// knows: a previous worker has told it, or the program was restored. If that fails
// the program has ended, which the daemon will see.
func (l *Line) Attach(m control.Hold, connection *os.File, knows bool) {
	conn, err := net.FileConn(connection)
	program, ok := conn.(*net.UnixConn)
	if !ok || l.program != nil || len(l.held) < 2 {
		l.log.Warn("the program cannot be attached", "error", err)
		connection.Close()
		return
	}
	if len(m.Attached) > 0 && !knows {
		if err := wire.SendFiles(program, m.Attached, l.held[0].File, l.held[1].File); err != nil {
			l.log.Info("the program has ended before it was attached", "error", err)
		}
	}
	l.program = program
	l.Hold("program", connection)
}

const (
	DaemonEnded = "the node daemon ended"
	startAgain  = "; what the program had on its device is lost: if muster ps finds no node, start one with muster node (or systemctl start muster), then start the program again"
)

// Outlive looks for the next daemon after the last one has died. It returns the connection to the one that has
// adopted the worker, to be handed to Begin, or the reason why the worker must end.
func (l *Line) Outlive() (next *control.WorkerEnd, why string) {
	if l.dismissed || l.program == nil || l.Grace == 0 {
		return nil, DaemonEnded + startAgain
	}
	gone := l.watchProgram()
	defer func() { // stop watching: the next daemon watches the program
		_ = l.program.SetReadDeadline(time.Unix(1, 0))
		<-gone
	}()
	grace := time.NewTimer(l.Grace)
	defer grace.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		next, err := l.introduce()
		var refused *control.NotAdopted
		switch {
		case err == nil && l.join(next):
			l.control = next
			return next, ""
		case err == nil:
			return nil, DaemonEnded + startAgain
		case errors.As(err, &refused):
			return nil, "the node was started again and did not take the program over: " + refused.Reason
		}
		select {
		case <-time.After(pause):
		case why, ended := <-gone:
			if ended {
				return nil, why
			}
		case <-grace.C:
			return nil, fmt.Sprintf("%s, and for %v no other came (orphan_grace in the node's configuration)%s", DaemonEnded, l.Grace, startAgain)
		case <-l.ctx.Done():
			return nil, DaemonEnded + startAgain
		}
	}
}

// watchProgram reports when the program has ended, with the reason that the client is told. The
// channel is closed when watching stops.
func (l *Line) watchProgram() <-chan string {
	_ = l.program.SetReadDeadline(time.Time{})
	gone := make(chan string, 1)
	go func() {
		defer close(gone)
		said, err := wire.AwaitEnd(l.program)
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
func (l *Line) introduce() (*control.WorkerEnd, error) {
	dialled, err := net.DialTimeout("unix", l.Node, introduceTime)
	if err != nil {
		return nil, err
	}
	conn := dialled.(*net.UnixConn)
	defer conn.Close()
	defer context.AfterFunc(l.ctx, func() { conn.Close() })()
	if err := isOf(conn, l.owner); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(introduceTime))
	adopted, err := control.Introduce(conn, l.Client, l.held)
	if err != nil {
		return nil, err
	}
	l.complainTo(adopted.Errors)
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
