package recordfile

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	flushEvery = time.Second // at most this much is lost if the daemon is killed
	flushSize  = 64 << 10    // written sooner if this much waits
	maxBacklog = 64 << 20    // if more waits, the disk cannot keep up, and the recording ends
	lastLine   = 512         // bytes of the limit that are reserved for the last line, if there is one
)

// Writer adds lines to a recording. Who adds one never waits for the disk: a goroutine of the writer's own
// writes them. At the limit, or when the disk does not take it, the recording ends with a whole line, and
// the daemon goes on. One goroutine adds lines, and closes it.
type Writer struct {
	file    *os.File
	log     *slog.Logger
	last    func(why string) []byte
	left    int64 // bytes that may still be added, the last line not counted
	backlog int   // bytes that may wait to be written

	mu      sync.Mutex
	waiting []byte // whole lines
	ended   error  // why nothing more is added; nil while it is

	// Used only by the goroutine that writes.
	spare   []byte
	written int64

	wake    chan struct{} // flushSize bytes are waiting
	closing chan struct{} // closed by Close
	closed  chan struct{} // closed when everything is written
}

// NewWriter returns a writer of at most limit bytes. last makes the last line, which says why the recording
// ends; nil if there is to be none. The first lines may be added before Start.
func NewWriter(file *os.File, limit uint64, last func(why string) []byte, log *slog.Logger) *Writer {
	w := &Writer{
		file: file, log: log, last: last, left: int64(min(limit, 1<<62)), backlog: maxBacklog,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	if last != nil {
		w.left -= lastLine
	}
	return w
}

// Start writes what was added: a disk that cannot be written is an error, before the daemon serves anybody.
func (w *Writer) Start() error {
	if w.flush(); w.ended != nil {
		return errors.Join(fmt.Errorf("%s cannot be written: %w", w.file.Name(), w.ended), w.file.Close())
	}
	go w.write()
	return nil
}

// Write adds a line. It never waits.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int64(len(line)) > w.left {
		w.end(errors.New("the limit is reached"))
	} else if len(w.waiting)+len(line) > w.backlog {
		w.end(errors.New("the disk takes it too slowly"))
	}
	if w.ended != nil {
		return 0, w.ended
	}
	w.left -= int64(len(line))
	w.waiting = append(w.waiting, line...)
	if len(w.waiting) >= flushSize {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// End ends the recording because what follows cannot be recorded.
func (w *Writer) End(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(why)
}

// end adds the last line, once. The caller holds the lock.
func (w *Writer) end(why error) {
	if w.ended != nil {
		return
	}
	w.log.Warn("the recording ends here", "file", w.file.Name(), "reason", why)
	w.ended = why
	w.conclude(why.Error())
}

func (w *Writer) conclude(why string) {
	if w.last == nil {
		return
	}
	line := w.last(why[:min(len(why), lastLine/2)])
	if len(line) == 0 || len(line) > lastLine {
		line = w.last("an event could not be recorded")
	}
	w.waiting = append(w.waiting, line...)
}

// Close writes what is left, and that the recording ends because its daemon does.
func (w *Writer) Close(why string) {
	w.mu.Lock()
	if w.ended == nil {
		w.ended = errors.New(why)
		w.conclude(why)
	}
	w.mu.Unlock()
	close(w.closing)
	<-w.closed
}

// write writes lines until the recording is closed.
func (w *Writer) write() {
	defer close(w.closed)
	regularly := time.NewTicker(flushEvery)
	defer regularly.Stop()
	for open := true; open; {
		select {
		case <-regularly.C:
		case <-w.wake:
		case <-w.closing:
			open = false
		}
		w.flush()
	}
	if err := w.file.Close(); err != nil {
		w.log.Error("the recording is perhaps not whole", "file", w.file.Name(), "error", err)
	}
}

// flush writes what waits. If that fails, the incomplete part is cut off again.
func (w *Writer) flush() {
	w.mu.Lock()
	lines := w.waiting
	w.waiting, w.spare = w.spare[:0], nil
	w.mu.Unlock()
	if cap(lines) <= 4*flushSize {
		w.spare = lines
	}
	if len(lines) == 0 {
		return
	}
	n, err := w.file.Write(lines)
	if err == nil {
		w.written += int64(n)
		return
	}
	_ = w.file.Truncate(w.written) // half a line would look as if the daemon had been killed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(err)
	w.waiting = nil
}
