package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An interrupted run fails, says so, and leaves nothing behind.
func TestInterruptedSim(t *testing.T) {
	folder := t.TempDir()
	checkInterrupted(t, folder, "sim", "--cluster", "small", "--workload", "small", "--policy", "fcfs", "--html", filepath.Join(folder, "report.html"))
}

// checkInterrupted runs a command that is to write into a folder, and is interrupted.
func checkInterrupted(t *testing.T, folder string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stdout, stderr bytes.Buffer
	root := newRoot(&stdout, &stderr, func(string) string { return "" })
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("got the error %v", err)
	}
	if status := fail(&stderr, c, err, false); status != exitInterrupted {
		t.Errorf("the exit status is %d, want %d", status, exitInterrupted)
	}
	if stdout.Len() > 0 {
		t.Errorf("it printed %q", stdout.String())
	}
	if files, _ := os.ReadDir(folder); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}

// Whatever is asked for is a step, a time, or an error that says how to ask.
func FuzzMoments(f *testing.F) {
	for _, list := range []string{"", "1", "12,1h30m", "1-00:00:00", "0", "-1", "x", "1,,2", "99999999999999999999", "1e3"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		moments, err := parseMoments(list, "step", "1h30m")
		if err != nil {
			if !strings.Contains(err.Error(), "--explain") {
				t.Errorf("%q: %v", list, err)
			}
			return
		}
		for _, m := range moments {
			if m.Step < 0 || m.At < 0 || m.Step > 0 && m.At > 0 {
				t.Errorf("%q is %+v", list, moments)
			}
		}
	})
}
