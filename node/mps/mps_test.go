package mps

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/device"
	"muster/internal/need"
	"muster/node/settings"
)

// Anybody may make the folder in which a site's service would be. What is there counts only if
// it is root's or the node's user's, and a pipe there keeps no node waiting.
func TestStrangersMPS(t *testing.T) {
	const stranger = 54321
	number := fmt.Appendln(nil, os.Getpid())
	for name, put := range map[string]func(t *testing.T, folder, file string) error{
		"a folder": func(t *testing.T, folder, file string) error {
			onlyRoot(t)
			return errors.Join(os.WriteFile(file, number, 0o644), os.Chown(folder, stranger, stranger))
		},
		"a file": func(t *testing.T, folder, file string) error {
			onlyRoot(t)
			return errors.Join(os.WriteFile(file, number, 0o644), os.Chown(file, stranger, stranger))
		},
		"a link": func(t *testing.T, folder, file string) error {
			return errors.Join(os.WriteFile(file+".other", number, 0o644), os.Symlink(file+".other", file))
		},
		"a link to the folder": func(t *testing.T, folder, file string) error {
			onlyRoot(t)
			real := t.TempDir()
			return errors.Join(os.WriteFile(filepath.Join(real, Program+".pid"), number, 0o644), os.Remove(folder), os.Symlink(real, folder), os.Lchown(folder, stranger, stranger))
		},
		"a pipe": func(t *testing.T, folder, file string) error {
			if err := syscall.Mkfifo(file, 0o644); err != nil {
				return err
			}
			f, err := os.OpenFile(file, os.O_RDWR, 0) // so that its reader waits for what comes
			if err == nil {
				t.Cleanup(func() { f.Close() })
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "nvidia-mps")
			if err := errors.Join(os.Mkdir(folder, 0o755), put(t, folder, filepath.Join(folder, Program+".pid"))); err != nil {
				t.Fatal(err)
			}
			t.Setenv(device.MPSVariable, folder)
			if _, running := sites(); running {
				t.Error("it is taken for the site's")
			}
		})
	}
}

// With mps: off, workers are kept from a service also that begins after the node did.
func TestOffIsOffForLaterMPS(t *testing.T) {
	t.Setenv(device.MPSVariable, t.TempDir())
	if s, err := Open(settings.MPSOff, "", 8, true, slog.New(slog.DiscardHandler)); err != nil || s.Nowhere() == "" || s.Folder() != "" {
		t.Errorf("%v: workers look for it at %q", err, s.Nowhere())
	}
}

// Of a long log only the end is read.
func TestLastWords(t *testing.T) {
	s := Service{dir: t.TempDir()}
	path := filepath.Join(s.logDir(), "control.log")
	err := errors.Join(os.Mkdir(s.logDir(), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, 64<<20))
	f, opened := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err = errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, "\nno GPU any more"); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	said := s.lastWords()
	runtime.ReadMemStats(&after)
	if !strings.HasSuffix(said, "\nno GPU any more") {
		t.Errorf("it said %q", said)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("that took %d bytes", took)
	}
}

// Few workers have as many queues of the device as without MPS; many share what there is.
func TestQueuesForWorkers(t *testing.T) {
	for vgpus, want := range map[int]int{1: 8, 4: 8, 8: 8, 12: 6, 20: 4, 44: 2, 1000: 2} {
		if got := Queues(vgpus); got != want {
			t.Errorf("%d queues for each of %d workers, want %d", got, vgpus, want)
		}
	}
}

func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can give files away")
	}
}

func TestShares(t *testing.T) {
	mine := At("/pipe").Share("root")
	without := At("").Share("root")
	for _, c := range []struct {
		s       *Sharing
		asked   uint32
		limit   int
		want    int
		refused string
	}{
		{mine, 0, 0, 0, ""}, {mine, 25, 0, 25, ""}, {mine, 0, 50, 50, ""}, {mine, 25, 50, 25, ""}, {mine, 75, 50, 50, ""},
		{mine, 101, 0, 0, "give 1% to 100%"}, {without, 25, 0, 0, "ask the administrator for mps: on"}, {without, 0, 50, 50, ""},
	} {
		got, err := c.s.ShareOf(c.asked, 0, c.limit)
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("asked for %d of %d: %d, %v", c.asked, c.limit, got, err)
		}
	}
	if os.Geteuid() == 0 {
		if _, err := mine.ShareOf(25, 1000, 0); err == nil || !strings.Contains(err.Error(), "serves programs of user root only") {
			t.Errorf("another user: %v", err)
		}
	}
}
