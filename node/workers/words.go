package workers

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"muster/node/settings"
)

// Bounds on what is kept of a worker's output: a program can make its worker write, and
// must not fill the machine's disk that way.
const (
	maxWords = 64 << 10 // bytes in the log, of one worker
	maxPanic = 16 << 10 // at least, from the beginning of a panic on
	maxLine  = 2 << 10  // bytes of a line
	maxCause = 160      // bytes of what a program is told
)

// words takes what a worker writes on its standard error: a panic, what a library
// complains about, or its own log. Each line becomes one of the daemon's log, with
// the number of the client.
type words struct {
	log *slog.Logger

	mu     sync.Mutex
	client uint64 // 0 while it has none
	line   []byte // the incomplete line
	room   int    // bytes that may still be logged
	unsaid int    // bytes that were not logged
	fatal  string // the first line of a panic
	last   string // the last line
}

// serves says which client the worker has from now on.
func (w *words) serves(client uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = client
}

// because notes why the daemon ends the worker, in place of the worker's own last
// words.
func (w *words) because(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fatal == "" {
		w.fatal = why
	}
}

// Write takes a part of the text. It never fails and never waits, since that would stop
// the worker.
func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	for {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		w.line = append(w.line, part[:min(len(part), maxLine-len(w.line))]...)
		if !whole {
			return n, nil
		}
		w.take()
		b = rest
	}
}

// close handles what is left when the worker has ended.
func (w *words) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.take()
	if w.unsaid > 0 {
		w.log.Warn("a worker wrote more than is kept", append(w.whose(), "bytes", w.unsaid)...)
	}
}

// take handles a complete line. The caller must hold mu.
func (w *words) take() {
	line := string(w.line)
	w.line = w.line[:0]
	if line == "" {
		return
	}
	w.last = line
	switch {
	case w.fatal == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		w.fatal, w.room = line, max(w.room, maxPanic)
	case strings.HasSuffix(w.fatal, "[recovered]") && strings.HasPrefix(line, "\tpanic: "):
		w.fatal = line[1:] // a panic that says more was made of the first one
	}
	if w.room < len(line) {
		w.room = 0
		w.unsaid += len(line)
		return
	}
	w.room -= len(line)
	w.log.Warn("a worker wrote", append(w.whose(), "text", line)...)
}

// whose names the client in the log, if the worker has one.
func (w *words) whose() []any {
	if w.client == 0 {
		return nil
	}
	return []any{"client", w.client}
}

// cause is why the worker ended, as far as it wrote that: its panic. For a worker that
// was never ready it is the last line that it wrote.
func (w *words) cause(ready bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.fatal
	if text == "" && !ready {
		text = w.last
	}
	return settings.Printable(strings.ToValidUTF8(text[:min(len(text), maxCause)], ""))
}
