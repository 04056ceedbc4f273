package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var small = Limit{16, "is it a test?"}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFile(t *testing.T) {
	for _, text := range []string{"", "hello", strings.Repeat("x", 16)} {
		got, err := small.ReadFile(file(t, text))
		if err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	// What the system makes up as it is read has no size.
	if text, err := (Limit{1 << 16, ""}).ReadFile("/proc/self/status"); err != nil || !strings.Contains(string(text), "Pid:") {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestReadFileRefuses(t *testing.T) {
	folder := t.TempDir()
	for path, want := range map[string]string{
		file(t, strings.Repeat("x", 17)): ": larger than 16B: is it a test?",
		"/proc/self/status":              "/proc/self/status: larger than 16B: is it a test?",
		"/dev/zero":                      "/dev/zero is a device: name a file",
		folder:                           folder + " is a folder: name a file in it",
	} {
		if text, err := small.ReadFile(path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want %s", path, text, err, want)
		}
	}
	if _, err := small.ReadFile(filepath.Join(folder, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// pipe makes a named pipe, and opens it for writing.
func pipe(t *testing.T) (path string, writer *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0) // both, or it would wait for a reader
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	return path, writer
}

func TestPipes(t *testing.T) {
	path, _ := pipe(t)
	if text, err := small.readFile(path, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "this pipe did not end within 10ms") {
		t.Errorf("a silent pipe: got %q, %v", text, err)
	}
	path, writer := pipe(t)
	if _, err := writer.WriteString(strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	if text, err := small.ReadFile(path); err == nil || !strings.Contains(err.Error(), "larger than 16B") {
		t.Errorf("an endless pipe: got %q, %v", text, err)
	}
	// As <(echo hello) makes it.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if text, err := small.ReadFile(fmt.Sprintf("/proc/self/fd/%d", r.Fd())); err != nil || string(text) != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestPublic(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if got := Public(file); got != want {
			t.Errorf("mode %o: got %v", mode, got)
		}
	}
	if Public(dir) || Public(filepath.Join(dir, "none")) {
		t.Error("what is no file is public")
	}
}
