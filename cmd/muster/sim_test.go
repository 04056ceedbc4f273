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
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "report.html")
	root := newRoot(&stdout, &stderr, func(string) string { return "" })
	root.SetArgs([]string{"sim", "--cluster", "small", "--workload", "small", "--policy", "fcfs", "--html", page})
	c, err := root.ExecuteContextC(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("got the error %v", err)
	}
	if status := fail(&stderr, c, err, false); status != exitFailed {
		t.Errorf("the exit status is %d, want %d", status, exitFailed)
	}
	if stdout.Len() > 0 {
		t.Errorf("it printed %q", stdout.String())
	}
	if files, _ := os.ReadDir(filepath.Dir(page)); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}
