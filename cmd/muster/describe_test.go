package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"muster/cmd/muster/cli"
)

// A description fits a terminal of 100 by 60, whatever the log.
func TestDescriptionFitsTheTerminal(t *testing.T) {
	args, err := filepath.Glob("../../workload/testdata/*.gz")
	if err != nil || len(args) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	everything := "id,submit,run,walltime,nodes,gpus,gpu_memory,memory,user,queue,status\n"
	for i := range 40 {
		for _, s := range []string{"completed", "failed", "cancelled", "timeout", ""} {
			n := strings.Repeat("9", i%9+1)
			everything += strings.Join([]string{"", "2024-01-01 00:00:" + []string{"00", "01", "30"}[i%3], n, n, n[:min(6, len(n))], n[:1], "", "1TB",
				strings.Repeat("long name ", i+1), strings.Repeat("queue", i+1), s}, ",") + "\n"
		}
	}
	everything += ",2024-03-01 00:00:00,1000000,2000000,1,0,,1TB,u,q,\n"
	for _, arg := range append(args, "-", "tsubame:days=21", "general", "congested", "small") {
		var stdout, stderr bytes.Buffer
		status := run([]string{"workload", "describe", "--skip-bad", "--cluster", "tsubame", arg}, strings.NewReader(everything), &stdout, &stderr, func(string) string { return "" })
		if status != cli.ExitDone {
			t.Fatalf("%s: %s", arg, &stderr)
		}
		lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
		if len(lines) > 60 {
			t.Errorf("%s: %d lines:\n%s", arg, len(lines), &stdout)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s: %d columns: %s", arg, n, line)
			}
		}
	}
}
