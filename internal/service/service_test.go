package service

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/misuse"
)

// A duration in a daemon's log has its unit, in both forms.
func TestLoggedDurations(t *testing.T) {
	for _, text := range []bool{false, true} {
		var written bytes.Buffer
		log, err := Log{Level: "info", Text: text, JSON: !text}.Logger(&written)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("done", "took", 92*time.Millisecond)
		if !strings.Contains(written.String(), "92ms") || strings.HasPrefix(written.String(), "{") == text {
			t.Errorf("text %v: %s", text, written.String())
		}
	}
}

func TestUnknownLevel(t *testing.T) {
	_, err := Log{Level: "loud"}.Logger(&bytes.Buffer{})
	if !misuse.Is(err) {
		t.Error(err)
	}
}

// childVariable has the script of the process that TestSignals starts: a process of its own, because
// signals stay caught.
const childVariable = "MUSTER_TEST_SIGNALS"

// TestMain is also the daemon that TestSignals starts.
func TestMain(m *testing.M) {
	if script := os.Getenv(childVariable); script != "" {
		os.Exit(beDaemon(script))
	}
	os.Exit(m.Run())
}

// beDaemon sends itself the signals of a script, separated by spaces, and waits after each for what
// follows it: reload, stop, kill or handover. It returns 0 if all of that came.
func beDaemon(script string) int {
	stopped := make(chan struct{})
	var gone atomic.Bool
	s := listen(func() { close(stopped) }, gone.Load)
	for step := range strings.FieldsSeq(script) {
		name, wanted, _ := strings.Cut(step, ":")
		if name == "gone" {
			gone.Store(true)
			name = "HUP"
		}
		number := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR2": syscall.SIGUSR2}[name]
		if err := syscall.Kill(os.Getpid(), number); err != nil {
			return 1
		}
		<-map[string]<-chan struct{}{"reload": s.Reload, "stop": stopped, "kill": s.Kill, "handover": s.Handover}[wanted]
	}
	select {
	case <-s.Kill:
		if strings.HasSuffix(script, "kill") {
			return 0
		}
		return 2
	default:
		return 0
	}
}

func TestSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"TERM:stop",
		"TERM:stop TERM:kill",
		"INT:kill",
		"HUP:reload HUP:reload TERM:stop INT:kill",
		"USR2:handover",
		"gone:kill",
	} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childVariable+"="+script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", script, err, out)
		}
	}
}

// A log that is no terminal is never taken for one that was closed.
func TestNoTerminal(t *testing.T) {
	if terminalGone(&bytes.Buffer{})() {
		t.Error("a buffer was taken for a closed terminal")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	gone := terminalGone(f)
	f.Close()
	if gone() {
		t.Error("a file was taken for a closed terminal")
	}
}
