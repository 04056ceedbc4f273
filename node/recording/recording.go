package recording

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"muster/internal/recordfile"
	"muster/node/settings"
	"muster/node/vgpu"
)

const (
	flushEvery = time.Second // at most this much is lost if the daemon is killed
	flushSize  = 64 << 10    // written sooner if this much waits
	maxBacklog = 64 << 20    // if more waits, the disk cannot keep up, and the recording ends
	lastLine   = 512         // bytes of the limit that are reserved for the last line
	NodeEnded  = "the node has ended"
)

// Recording writes what the dispatcher is told and decides to a file. The loop
// adds lines and never waits for the disk; a goroutine of the recording's own
// writes them. A nil recording records nothing.
type Recording struct {
	file    *os.File
	log     *slog.Logger
	backlog int // bytes that may wait to be written

	// Used by the loop, and by close once the loop has ended.
	left  int64  // bytes that may still be added, lastLine not counted
	line  []byte // buffer for the next line
	ended bool   // nothing is added any more

	mu      sync.Mutex
	waiting []byte // whole lines
	failed  bool   // the file cannot be written

	// Used only by the goroutine that writes.
	spare   []byte
	written int64

	wake    chan struct{} // flushSize bytes are waiting
	closing chan struct{} // closed by close
	closed  chan struct{} // closed when everything is written
}

// Start begins to record; nil if the settings say nothing of that.
func Start(cfg settings.Record, h vgpu.Header, log *slog.Logger) (*Recording, error) {
	if cfg.File == "" {
		return nil, nil
	}
	r, err := begin(cfg, h, log)
	if err != nil {
		return nil, err
	}
	log.Info("what the dispatcher decides is recorded", "file", cfg.File, "limit", cfg.Limit)
	return r, nil
}

func begin(cfg settings.Record, h vgpu.Header, log *slog.Logger) (*Recording, error) {
	first, err := vgpu.AppendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	least := uint64(len(first)) + lastLine
	if cfg.Limit < least {
		return nil, fmt.Errorf("the limit of %d bytes is too small: give at least %d", cfg.Limit, least)
	}
	file, err := openRecording(cfg.File)
	if err != nil {
		return nil, err
	}
	r := &Recording{
		file: file, log: log, backlog: maxBacklog, left: int64(min(cfg.Limit-least, 1<<62)), waiting: first,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	r.flush() // a disk that cannot be written is reported before the node is up
	if r.failed {
		return nil, errors.Join(fmt.Errorf("%s cannot be written", cfg.File), file.Close())
	}
	go r.write()
	return r, nil
}

// openRecording opens the file of a recording.
func openRecording(path string) (*os.File, error) {
	return recordfile.Open(path, vgpu.HeaderPrefix, "node")
}

// Add records one event.
func (r *Recording) Add(e vgpu.Entry) {
	if r == nil || r.ended {
		return
	}
	line, err := vgpu.AppendEntry(r.line[:0], e)
	r.line = line
	switch {
	case err != nil:
		r.end(err.Error())
	case int64(len(line)) > r.left:
		r.end("the limit is reached")
	default:
		r.left -= int64(len(line))
		r.put(line)
	}
}

// put hands a line to the goroutine that writes. It never waits.
func (r *Recording) put(line []byte) {
	r.mu.Lock()
	waiting := len(r.waiting) + len(line)
	fits := waiting <= r.backlog
	if fits && !r.failed {
		r.waiting = append(r.waiting, line...)
	}
	r.ended = r.ended || r.failed
	r.mu.Unlock()
	if !fits {
		r.end("the disk takes it too slowly")
	}
	if waiting >= flushSize {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// end adds the last line, with the reason. The node goes on without a recording.
func (r *Recording) end(why string) {
	if r.ended {
		return
	}
	r.ended = true
	if why != NodeEnded {
		r.log.Warn("the recording ends here", "file", r.file.Name(), "reason", why)
	}
	line, err := vgpu.AppendEnd(nil, why[:min(len(why), lastLine/2)])
	if err != nil || len(line) > lastLine {
		line, _ = vgpu.AppendEnd(nil, "an event could not be recorded")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.waiting = append(r.waiting, line...)
	}
}

// Close writes what is left. The loop must have ended.
func (r *Recording) Close() {
	if r == nil {
		return
	}
	r.end(NodeEnded)
	close(r.closing)
	<-r.closed
}

// write writes lines until the recording is closed.
func (r *Recording) write() {
	defer close(r.closed)
	regularly := time.NewTicker(flushEvery)
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

// flush writes what waits. If that fails, the incomplete part is cut off again.
func (r *Recording) flush() {
	r.mu.Lock()
	lines := r.waiting
	r.waiting, r.spare = r.spare[:0], nil
	r.mu.Unlock()
	if cap(lines) <= 4*flushSize {
		r.spare = lines
	}
	if len(lines) == 0 {
		return
	}
	n, err := r.file.Write(lines)
	if err == nil {
		r.written += int64(n)
		return
	}
	r.log.Error("the recording ends here: it cannot be written", "file", r.file.Name(), "error", err)
	_ = r.file.Truncate(r.written) // half a line would look as if the node had been killed
	r.mu.Lock()
	r.failed, r.waiting = true, nil
	r.mu.Unlock()
}
