package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muster/internal/recordfile"
	"muster/node/recording"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire"
)

// recordedBy runs a daemon that records, lets programs use it, and ends it.
func recordedBy(t *testing.T, cfg settings.Config, use func(f *fixture)) (log string) {
	t.Helper()
	var text syncBuffer
	opts := testOptions()
	opts.Log = slog.New(slog.NewTextHandler(&text, nil))
	opts.Version = "muster test"
	f := runWith(t, cfg, opts)
	use(f)
	f.stop()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	return text.String()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// takeTurns has two programs use one device, again and again.
func takeTurns(t *testing.T, f *fixture, rounds int) {
	t.Helper()
	first, second := mustConnect(t, f), mustConnect(t, f)
	for range rounds {
		first.synchronise(t)
		pending, err := second.Start(wire.Header{Op: wire.OpSynchronise}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Post(&wire.SyncPoint{}); err != nil {
			t.Fatal(err)
		}
		if result, _, err := pending.Wait(); err != nil || result != 0 {
			t.Fatal(result, err)
		}
		if err := second.Post(&wire.SyncPoint{}); err != nil {
			t.Fatal(err)
		}
	}
	first.leave()
	second.leave()
	eventually(t, "both are forgotten", func() bool { return len(statusOf(t, f).Clients) == 0 })
}

func replayed(t *testing.T, path string) vgpu.Replayed {
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

func recordingConfig(t *testing.T) settings.Config {
	cfg := testConfig()
	cfg.Devices, cfg.VGPUs = cfg.Devices[:1], 1
	cfg.Record.File = filepath.Join(t.TempDir(), "decisions.jsonl")
	return cfg
}

// What a daemon decided is decided again, and a second daemon replaces the
// recording of the first.
func TestDecisionsAreRecorded(t *testing.T) {
	cfg := recordingConfig(t)
	for _, rounds := range []int{5, 1} {
		cfg.Socket.Address = freshSocket()
		log := recordedBy(t, cfg, func(f *fixture) { takeTurns(t, f, rounds) })
		r := replayed(t, cfg.Record.File)
		if r.Header.Node != "test" || r.Header.Muster != "muster test" || r.End != recording.NodeEnded || r.Cut || len(r.Header.Config.Devices) != 1 {
			t.Errorf("%+v", r)
		}
		// In each round both want, run and release, the last release perhaps too late.
		if r.Events < 6*rounds+1 || r.Effects < rounds*2 {
			t.Errorf("only %d events and %d effects in %d rounds", r.Events, r.Effects, rounds)
		}
		if !strings.Contains(log, "what the dispatcher decides is recorded") || strings.Contains(log, "the recording ends") {
			t.Error(log)
		}
	}
	if info, err := os.Stat(cfg.Record.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}

// At the limit the recording ends, is said to, and is whole as far as it goes.
func TestRecordingIsBounded(t *testing.T) {
	cfg := recordingConfig(t)
	cfg.Record.Limit = 2000
	log := recordedBy(t, cfg, func(f *fixture) { takeTurns(t, f, 5) })
	r := replayed(t, cfg.Record.File)
	if r.End != "the limit is reached" || r.Events < 3 || r.Events > 20 {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(cfg.Record.File); err != nil || info.Size() > 2000 {
		t.Error(info.Size(), err)
	}
	if !strings.Contains(log, `msg="the recording ends here"`) || !strings.Contains(log, `reason="the limit is reached"`) {
		t.Error(log)
	}
}

// What waits is written although nothing more happens.
func TestRecordingIsWrittenRegularly(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a second")
	}
	cfg := recordingConfig(t)
	recordedBy(t, cfg, func(f *fixture) {
		p := mustConnect(t, f)
		p.synchronise(t)
		eventually(t, "the grant is in the file", func() bool {
			text, _ := os.ReadFile(cfg.Record.File)
			return bytes.Contains(text, []byte(`"kind":"grant"`))
		})
		if r := replayed(t, cfg.Record.File); r.End != "" || r.Events < 2 { // it can be replayed meanwhile
			t.Errorf("%+v", r)
		}
		p.leave() // or the daemon would wait for it
	})
}

func TestRecordingsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, precious, busy := filepath.Join(dir, "pipe"), filepath.Join(dir, "precious"), filepath.Join(dir, "busy")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("not a recording"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := recordfile.Open(busy, vgpu.HeaderPrefix, "node")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		file  string
		limit uint64
		want  string
	}{
		{dir, settings.DefaultRecordLimit, fmt.Sprintf("recording: %s is no ordinary file (d---------): give the name of one, or of none that is there", dir)},
		{pipe, settings.DefaultRecordLimit, fmt.Sprintf("recording: %s is no ordinary file (p---------)", pipe)},
		{"/dev/null", settings.DefaultRecordLimit, "recording: /dev/null is no ordinary file (Dc---------)"},
		{precious, settings.DefaultRecordLimit, fmt.Sprintf("recording: %s is there already and is no recording, so it is not replaced: give another name, or remove it", precious)},
		{busy, settings.DefaultRecordLimit, fmt.Sprintf("recording: another node records to %s: give another name", busy)},
		{filepath.Join(dir, "no/such/file"), settings.DefaultRecordLimit, "no such file or directory"},
		{precious + "/file", settings.DefaultRecordLimit, "not a directory"},
		{filepath.Join(dir, "small"), 100, "recording: the limit of 100 bytes is too small: give at least "},
	} {
		cfg := testConfig()
		cfg.Record = settings.Record{File: c.file, Limit: c.limit}
		if err := Run(t.Context(), cfg, testOptions()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.file, err, c.want)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "not a recording" {
		t.Errorf("%q, %v", text, err)
	}
}
