package workers

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/confine"
	"muster/wire/control"
)

// idleProcess is one that ends when its connection does, as a worker without a client.
var idleProcess = []string{"/bin/sh", "-c", "cat <&3"}

// A worker that waits for a client while the devices change is replaced: it may not reach the new ones.
func TestWarmWorkersAreOfNow(t *testing.T) {
	within := Bounds{}
	p := NewPool(idleProcess, func() Bounds { return within }, 0, &Uids{}, slog.New(slog.DiscardHandler))
	defer p.Stop()
	w, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	p.add(w)
	within.reach.Read = []string{"/srv"} // a device was added
	other, err := p.Take(true)
	if err != nil || other == w {
		t.Fatalf("the worker is that of before: %v", err)
	}
	<-w.Exited
	p.add(other)
	if same, err := p.Take(true); same != other {
		t.Errorf("another worker is started, though nothing has changed: %v", err)
	}
	other.Stop()
	<-other.Exited
}

// A worker that waits for a client while a file that it reads is replaced, as a list of revoked certificates
// is, is replaced, too: what confines it knows the former file only.
func TestWarmWorkersReadTheFilesOfNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	p := NewPool(idleProcess, func() Bounds { return Bounds{on: true, reach: confine.Rules{Read: []string{file}}} }, 0, &Uids{}, slog.New(slog.DiscardHandler))
	defer p.Stop()
	waiting, err := p.start() // there is no list yet
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.add(waiting)
		if same, err := p.Take(true); same != waiting {
			t.Fatalf("another worker is started, though nothing has changed: %v", err)
		}
		p.add(waiting)
		next := file + ".next"
		if err := errors.Join(os.WriteFile(next, nil, 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
		other, err := p.Take(true)
		if err != nil || other == waiting {
			t.Fatalf("the worker is that of before: %v", err)
		}
		<-waiting.Exited
		waiting = other
	}
	waiting.Stop()
	<-waiting.Exited
}

// A lost device does not come back because no process can be started to try it.
func TestDeviceThatCannotBeTried(t *testing.T) {
	p := &Pool{command: []string{"/nonexistent/muster"}, bounds: func() Bounds { return Bounds{} }}
	if _, err := p.Probe(control.DeviceConfig{}, nil); !errors.Is(err, ErrNotTried) {
		t.Errorf("it was tried: %v", err)
	}
}
