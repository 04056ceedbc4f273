package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"muster/head"
	"muster/internal/recordfile"
	"muster/policy/history"
)

const (
	// DefaultRecordLimit is how large a recording may become if nothing is said.
	DefaultRecordLimit = 1 << 30

	recordEvery = time.Second // at most this much is lost if the head is killed
	recordFlush = 64 << 10    // with this much waiting, it is written at once
	maxBacklog  = 64 << 20    // with more waiting, the disk cannot keep up

	// historyPrefix is how the file of a history begins.
	historyPrefix = `{"history":`
)

// recording writes everything that the policy is told and decides to a file. The loop adds lines
// and never waits for the disk; the recording's own goroutine writes them. At the limit, or when
// the file cannot be written, the recording ends, and the head continues.
type recording struct {
	file *os.File
	log  *slog.Logger
	left int64 // bytes that may still be added; only the loop uses it

	mu      sync.Mutex
	waiting []byte // whole lines
	ended   error  // why nothing more is added; nil while it is

	written int64         // bytes in the file; only the goroutine uses it
	wake    chan struct{} // signalled when recordFlush bytes wait
	closing chan struct{} // closed to make the goroutine end
	closed  chan struct{} // closed when everything is written
}

var _ io.Writer = (*recording)(nil)

// record starts a recording, if the configuration names a file.
func (d *daemon) record(core *head.Core) error {
	if d.cfg.Record == "" {
		return nil
	}
	file, err := openRecording(d.cfg.Record)
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	r := &recording{
		file: file, log: d.log, left: d.cfg.RecordLimit,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	core.Record(r, d.header())
	if r.flush(); r.ended != nil { // errors are reported before the head serves
		return errors.Join(fmt.Errorf("recording to %s: %w", d.cfg.Record, r.ended), file.Close())
	}
	d.recording = r
	go r.write()
	d.log.Info("what the policy decides is recorded", "file", d.cfg.Record, "limit", d.cfg.RecordLimit)
	return nil
}

// header is the first line of recordings and snapshots.
func (d *daemon) header() history.Header {
	return history.Header{Policy: d.spec(), Muster: d.Version, Note: "muster head of cluster " + d.cfg.Core.Cluster}
}

// spec is the full specification of the policy, including preemption classes.
func (d *daemon) spec() string {
	if d.Spec != nil {
		return d.Spec(d.cfg.Policy)
	}
	return d.cfg.Policy
}

// openRecording opens the file of a recording.
func openRecording(path string) (*os.File, error) {
	return recordfile.Open(path, historyPrefix, "head")
}

// Write adds a line. It never waits.
func (r *recording) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended != nil:
		return 0, r.ended
	case int64(len(line)) > r.left:
		return 0, r.end(fmt.Errorf("its limit is reached (--record-limit)"))
	case len(r.waiting)+len(line) > maxBacklog:
		return 0, r.end(errors.New("the disk takes it too slowly"))
	}
	r.left -= int64(len(line))
	r.waiting = append(r.waiting, line...)
	if len(r.waiting) >= recordFlush {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// end ends the recording. The caller holds the lock.
func (r *recording) end(why error) error {
	if r.ended == nil {
		r.ended = why
		r.log.Warn("the recording ends here", "file", r.file.Name(), "reason", why)
	}
	return r.ended
}

// close writes what is left. It must be called after the loop has ended.
func (r *recording) close() {
	if r == nil {
		return
	}
	close(r.closing)
	<-r.closed
}

// write writes the waiting lines every recordEvery, or sooner, until the recording is closed.
func (r *recording) write() {
	defer close(r.closed)
	regularly := time.NewTicker(recordEvery)
	defer regularly.Stop()
	for open := true; open; {
		select {
		case <-regularly.C:
		case <-r.wake:
		case <-r.closing:
			open = false
		}
		r.flush()
	}
	if err := r.file.Close(); err != nil {
		r.log.Error("the recording is perhaps not whole", "file", r.file.Name(), "error", err)
	}
}

// flush writes what waits. If that fails, the file is cut back to the last whole line.
func (r *recording) flush() {
	r.mu.Lock()
	lines := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	n, err := r.file.Write(lines)
	if err == nil {
		r.written += int64(n)
		return
	}
	_ = r.file.Truncate(r.written) // half a line would look like a killed head
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = nil
	_ = r.end(err)
}
