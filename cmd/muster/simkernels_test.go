package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"muster/cmd/muster/cli"
	"muster/sim/question"
	"muster/workload/phased"
)

func TestInterruptedSimKernels(t *testing.T) {
	folder := t.TempDir()
	checkInterrupted(t, folder, "sim", "kernels", "--html", filepath.Join(folder, "report.html"), "--trace-csv", filepath.Join(folder, "calls.csv.gz"))
}

// The trace and the tables tell the same: calls done, those done elsewhere, bytes moved
// by calls that are done, and how long they queued.
func TestTraceAgreesWithTheNumbers(t *testing.T) {
	for _, send := range []string{question.SendTurn, question.SendAhead} {
		t.Run(send, func(t *testing.T) { checkTrace(t, send) })
	}
}

func checkTrace(t *testing.T, send string) {
	trace := filepath.Join(t.TempDir(), "calls.csv")
	var stdout, stderr bytes.Buffer
	args := []string{"sim", "kernels", "--workload", "mpi:iterations=5", "--span", "0", "--policy", "gr,ar,probe", "--nodes", "8", "--json", "--trace-csv", trace, "--send", send}
	if status := run(args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" }); status != cli.ExitDone {
		t.Fatal(stderr.String())
	}
	var told struct {
		Runs []struct {
			Policy  string
			Kernels int64
			Remote  float64 `json:"remote_share"`
			Moved   int64   `json:"moved_bytes"`
			Queue   float64 `json:"mean_queue_s"`
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &told); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, r := range told.Runs {
		done, remote, moved, queued := int64(0), 0.0, int64(0), 0.0
		for _, row := range rows[1:] {
			if row[0] != r.Policy {
				continue
			}
			at, stage := number(row[3]), row[4]
			switch stage {
			case "launched":
				queued -= at
			case "holding":
				queued += at
			case "sending", "returning":
				moved += int64(number(row[11]))
			case "done":
				done++
				if row[8] != row[10] {
					remote++
				}
			}
		}
		if done != r.Kernels || done == 0 || remote/float64(done) != r.Remote || moved != r.Moved || moved == 0 {
			t.Errorf("%s: the trace has %d calls, %v remote, %d bytes; told were %+v", r.Policy, done, remote, moved, r)
		}
		if mean := queued / float64(done); mean < r.Queue-1e-6 || mean > r.Queue+1e-6 {
			t.Errorf("%s: by the trace calls queue for %v s, told was %v", r.Policy, mean, r.Queue)
		}
	}
}

// The applications that docs/kernels.md describes can be read.
func TestDocsDescribeRealApplications(t *testing.T) {
	text, err := os.ReadFile("../../docs/kernels.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Describe your own applications\n\n")
	section, _, _ = strings.Cut("\n"+section, "\n\n    muster ")
	wl, err := phased.Read(strings.NewReader(strings.ReplaceAll(section, "\n    ", "\n")), "docs/kernels.md")
	if err != nil || len(wl.Apps) != 2 || wl.Apps[1].Name != "analysis" {
		t.Errorf("%v: %v", wl, err)
	}
}

// Every name of the JSON document stands in docs/kernels.md, in the section that explains it.
func TestDocsNameTheJSON(t *testing.T) {
	text, err := os.ReadFile("../../docs/kernels.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Take it further\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var stdout, stderr bytes.Buffer
	args := []string{"sim", "kernels", "--span", "20s", "--policy", "ag,ar,probe,gr", "--explain", "500", "--json"}
	if status := run(args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" }); status != cli.ExitDone {
		t.Fatal(stderr.String())
	}
	var document any
	if err := json.Unmarshal(stdout.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	var walk func(any)
	walk = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for name, value := range x {
				if !told[name] && !strings.Contains(section, "`"+name+"`") {
					t.Errorf("docs/kernels.md does not say what %q is", name)
				}
				told[name] = true
				walk(value)
			}
		case []any:
			for _, value := range x {
				walk(value)
			}
		}
	}
	walk(document)
	if len(told) < 50 {
		t.Errorf("the document has %d names only: %v", len(told), told)
	}
}
