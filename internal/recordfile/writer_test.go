package recordfile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// text is a log that several goroutines write.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *text) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *text) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// begun is a writer of which nobody writes anything to the file yet.
func begun(t *testing.T, open func(string) (*os.File, error), limit uint64) (w *Writer, path string, log *text) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "recording"), &text{}
	file, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	return NewWriter(file, limit, func(why string) []byte { return []byte("end: " + why + "\n") }, slog.New(slog.NewTextHandler(log, nil))), path, log
}

func own(path string) (*os.File, error) { return Open(path, "line", "node") }

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What was added is in the file, with the reason why it ends there.
func TestWriter(t *testing.T) {
	w, path, log := begun(t, own, 1<<20)
	_, _ = w.Write([]byte("line 1\n"))
	if err := w.Start(); err != nil || content(t, path) != "line 1\n" {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("line 2\n"))
	w.Close("over")
	if got := content(t, path); got != "line 1\nline 2\nend: over\n" || log.String() != "" {
		t.Errorf("%q: %s", got, log)
	}
	w, path, log = begun(t, own, lastLine+15)
	_ = w.Start()
	for range 3 {
		_, _ = w.Write([]byte("line 1\n"))
	}
	w.End(os.ErrInvalid)
	w.Close("over")
	if got := content(t, path); got != "line 1\nline 1\nend: the limit is reached\n" || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%q: %s", got, log)
	}
}

// A disk that is slow or full costs the recording, never the daemon.
func TestBadDisk(t *testing.T) {
	w, path, log := begun(t, own, 1<<20)
	w.backlog = 1000
	for range 200 {
		_, _ = w.Write([]byte("line 1\n"))
	}
	if len(w.waiting) > 1000+lastLine || w.ended == nil || !strings.Contains(log.String(), `reason="the disk takes it too slowly"`) {
		t.Errorf("%d bytes wait: %s", len(w.waiting), log)
	}
	go w.write()
	w.Close("over")
	if got := content(t, path); !strings.HasSuffix(got, "\nend: the disk takes it too slowly\n") {
		t.Errorf("%q", got)
	}

	readOnly := func(path string) (*os.File, error) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		return os.Open(path)
	}
	w, _, log = begun(t, readOnly, 1<<20)
	_, _ = w.Write([]byte("line 1\n"))
	w.flush()
	if _, err := w.Write([]byte("line 2\n")); err == nil || len(w.waiting) != 0 || !strings.Contains(log.String(), "the recording ends here") {
		t.Errorf("%+v: %s", w, log)
	}
	go w.write()
	w.Close("over")
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("it is said more than once: %s", log)
	}
	w, _, _ = begun(t, readOnly, 1<<20)
	_, _ = w.Write([]byte("line 1\n"))
	if err := w.Start(); err == nil {
		t.Error("it starts")
	}
}
