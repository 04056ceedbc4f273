package recording

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/node/settings"
	"muster/node/vgpu"
)

// An event that has no form in JSON ends the recording, with the reason.
func TestRecordingOfANameThatJSONCannotHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	cfg := settings.Record{File: path, Limit: settings.DefaultRecordLimit}
	log := &text{}
	r, err := Start(cfg, vgpu.Header{Config: vgpu.Config{Devices: []vgpu.Device{{Name: "gpu", Slots: 1, Speed: 1, Memory: 1}}}}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.Add(vgpu.Entry{Event: vgpu.Attach{Client: 1, User: "\xff"}})
	r.Add(vgpu.Entry{Event: vgpu.Tick{}})
	r.Close()
	if got := played(t, path); got.Events != 0 || !strings.Contains(got.End, "is not UTF-8") || !strings.Contains(log.String(), "is not UTF-8") {
		t.Errorf("%+v: %s", got, log)
	}
}

// A node that does not record pays nothing for it.
func TestNoRecording(t *testing.T) {
	var r *Recording
	if n := testing.AllocsPerRun(10, func() { r.Add(vgpu.Entry{Event: vgpu.Tick{}}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	r.Close()
}

// BenchmarkRecord is what recording adds to one event of the loop.
func BenchmarkRecord(b *testing.B) {
	cfg := settings.Record{File: filepath.Join(b.TempDir(), "recording"), Limit: 1 << 40}
	r, err := Start(cfg, vgpu.Header{}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	e := vgpu.Entry{Now: time.Hour, Event: vgpu.Want{Client: 1, Need: 1 << 30, Pinned: vgpu.AnyDevice}, Effects: []vgpu.Effect{{Kind: vgpu.Grant, Client: 1, Memory: 1 << 30, Lease: 1}}}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(e)
	}
}

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

// played plays a recording again.
func played(t *testing.T, path string) vgpu.Replayed {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := vgpu.Replay(bytes.NewReader(text))
	if err != nil || r.Difference != nil {
		t.Fatalf("%+v, %v in\n%s", r, err, text)
	}
	return r
}
