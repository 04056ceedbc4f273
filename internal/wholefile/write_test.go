package wholefile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/need"

	"golang.org/x/sys/unix"
)

// A file is written whole, or what was there stays and nothing is left beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	say := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		}
	}
	if err := Write(file, say("first", nil)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := Write(file, say("sec", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "first" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("left are %v", files)
	}
	if err := Write("/dev/null", say("gone", nil)); err != nil {
		t.Error(err)
	}
	if err := Write(file+".gz", say("zipped", nil)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); string(text) != "zipped" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// The error says what is wrong with the folder, which is what the user can change.
func TestCannotWrite(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none", "a"): "there is no folder", filepath.Join(plain, "a"): "is no folder",
	} {
		for _, err := range []error{CheckFolder(file), Write(file, func(io.Writer) error { return nil })} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", file, err, want)
			}
		}
	}
	if err := CheckFolder(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
}

// A full disk is named once, with the file that the user asked for.
func TestFullDisk(t *testing.T) {
	full := "/dev/full"
	if _, err := os.Stat(full); err != nil {
		need.Missing(t, need.System, "there is no "+full)
	}
	err := Write(full, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return fmt.Errorf("the page: %w", err)
	})
	if want := full + " cannot be written: no space left on device"; err == nil || err.Error() != want {
		t.Errorf("it says %v, not %s", err, want)
	}
}

// Many may replace a file at the same time: a reader finds what one of them wrote, and nothing is left over.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 20 {
				if err := Replace(path, bytes.Repeat([]byte{byte('a' + i)}, 5000), 0o640); err != nil {
					t.Error(err)
				}
				if text, err := os.ReadFile(path); err != nil || len(text) != 5000 || strings.Count(string(text), string(text[:1])) != 5000 {
					t.Error("half written", err)
				}
			}
		})
	}
	writers.Wait()
	left, err := os.ReadDir(filepath.Dir(path))
	if info, _ := os.Stat(path); err != nil || len(left) != 1 || info.Mode().Perm() != 0o640 {
		t.Error(left, info, err)
	}
	if Replace(filepath.Join(path, "beside"), nil, 0o600) == nil {
		t.Error("a file in a file")
	}
}

// A file that cannot be replaced for lack of room is as it was, and nothing is left beside it.
func TestReplaceOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := Replace(path, make([]byte, 1<<20), 0o600)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	left, _ := os.ReadDir(filepath.Dir(path))
	if err == nil || string(text) != "before" || len(left) != 1 {
		t.Errorf("%v; it has %.20q, and there are %v", err, text, left)
	}
}
