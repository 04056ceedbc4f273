package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The error names the missing file and what the user can do about it.
func TestToolsIn(t *testing.T) {
	dir := t.TempDir()
	if _, err := ToolsIn("muster", []string{"", dir}, dir, "mm"); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "libcuda.so.1"))
	if _, err := ToolsIn("muster", []string{"", dir}, dir, "mm"); err == nil || !strings.Contains(err.Error(), "make examples") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "mm"))
	if found, err := ToolsIn("muster", []string{"", dir}, dir, "mm"); err != nil || found.Lib != dir || found.Programs != dir {
		t.Errorf("%+v, %v", found, err)
	}
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutSettings(t *testing.T) {
	if got := WithoutSettings([]string{"A=1", "MUSTER_HEAD=x", "SLURM_JOB_ID=2", "B="}); !slices.Equal(got, []string{"A=1", "B="}) {
		t.Error(got)
	}
}

// AwaitQuiet waits no longer than its patience, and stops when the context ends.
func TestAwaitQuiet(t *testing.T) {
	if left, err := AwaitQuiet(t.Context(), time.Hour, 1e9); err != nil || left != time.Hour {
		t.Error(left, err)
	}
	if left, err := AwaitQuiet(t.Context(), 1, -1); err != nil || left > 0 {
		t.Error(left, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := AwaitQuiet(ended, time.Hour, -1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for text, good := range map[string]bool{"10m": true, "0s": true, "-1s": false, "25h": false, "soon": false} {
		if _, err := Patience(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
	if !strings.Contains(Machine(), "processor") {
		t.Error(Machine())
	}
}
