package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/build"
)

// TestCampaign is the beginning of what make soak plays, with hostile and odd content.
func TestCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("a campaign takes longer than a few seconds")
	}
	seed := uint64(1)
	if text := os.Getenv("MUSTER_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	// Folders of tests are closed to workers of other users.
	dir, err := os.MkdirTemp("", "muster-chaos-cluster-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; all logs are kept in %s", seed, dir)
			return
		}
		os.RemoveAll(dir)
	})
	made := t.TempDir()
	for d := made; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := build.Muster("../..", made); err != nil {
		t.Fatal(err)
	}
	r, err := Run(Options{Muster: filepath.Join(made, "muster"), Dir: dir, Seed: seed, Faults: 30, Content: 0.75, Nodes: 3, Width: 8, Patience: 4 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Line())
	if len(r.Violations) > 0 {
		history, _ := os.ReadFile(filepath.Join(dir, "history"))
		t.Errorf("%s\n%s", strings.Join(r.Violations, "\n"), history)
	}
	if r.Jobs["COMPLETED"] < 5 {
		t.Errorf("%d jobs completed: that proves little", r.Jobs["COMPLETED"])
	}
}
