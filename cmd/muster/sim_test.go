package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/cmd/muster/cli"
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
	if status := fail(&stderr, c, err, false); status != cli.ExitInterrupted {
		t.Errorf("the exit status is %d, want %d", status, cli.ExitInterrupted)
	}
	if stdout.Len() > 0 {
		t.Errorf("it printed %q", stdout.String())
	}
	if files, _ := os.ReadDir(folder); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}
