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

// testRecording is a recording of which nobody writes anything.
func testRecording(t *testing.T, file *os.File) (*Recording, *text) {
	log := &text{}
	return &Recording{
		file: file, log: slog.New(slog.NewTextHandler(log, nil)), backlog: maxBacklog, left: 1 << 40,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), closed: make(chan struct{}),
	}, log
}

// A disk that is slow or full costs the recording, never the node.
func TestRecordingOnABadDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	file, err := openRecording(path)
	if err != nil {
		t.Fatal(err)
	}
	r, log := testRecording(t, file)
	r.backlog = 1000
	for range 100 {
		r.Add(vgpu.Entry{Event: vgpu.Tick{}})
	}
	if len(r.waiting) > 1000+lastLine || !r.ended || !strings.Contains(log.String(), `reason="the disk takes it too slowly"`) {
		t.Errorf("%d bytes wait: %s", len(r.waiting), log)
	}
	go r.write()
	r.Close()
	if text, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(text), "{\"end\":\"the disk takes it too slowly\"}\n") {
		t.Errorf("%s, %v", text, err)
	}

	// Opened for reading only, it cannot be written.
	if file, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	r, log = testRecording(t, file)
	r.Add(vgpu.Entry{Event: vgpu.Tick{}})
	r.flush()
	r.Add(vgpu.Entry{Event: vgpu.Tick{}})
	if !r.ended || len(r.waiting) != 0 || !strings.Contains(log.String(), "the recording ends here: it cannot be written") {
		t.Errorf("%+v: %s", r, log)
	}
	go r.write()
	r.Close()
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("it is said more than once: %s", log)
	}
}

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

// A recording tells of all users: it goes to a file of the node's own, and links that
// others may have laid are not followed.
func TestRecordingsAreTheNodesOwn(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if f, err := openRecording(link); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the target of a link was made")
	}
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	if f, err := openRecording(open); err == nil || !strings.Contains(err.Error(), "others may write to it") {
		f.Close()
		t.Errorf("a file that everybody may write to: %v", err)
	}
	f, err := openRecording(filepath.Join(dir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new one: %v, %v", info, err)
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
