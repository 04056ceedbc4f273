package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	wire "muster/wire/agent"
)

// BenchmarkStart is from the head's Start to the first instruction of the job's program
// (until-running), and to the report of its end.
func BenchmarkStart(b *testing.B) {
	h := newHead(b)
	h.run()
	n := uint64(0)
	var running time.Duration
	least := time.Hour
	for b.Loop() {
		n++
		s := h.job(n, "date", "+%s%N")
		sent := time.Now()
		h.send(s)
		h.await(s.Task, wire.Ended)
		at, err := strconv.ParseInt(strings.TrimSpace(h.output(s)), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		took := time.Unix(0, at).Sub(sent)
		running += took
		least = min(least, took)
		h.send(wire.Done{Task: s.Task})
	}
	b.ReportMetric(float64(least.Microseconds())/1000, "ms-at-least")
	b.ReportMetric(float64(running.Microseconds())/float64(n)/1000, "ms-until-running")
}

// BenchmarkSupervisorMemory is what a supervisor has, and how much of that no other
// process shares.
func BenchmarkSupervisorMemory(b *testing.B) {
	h := newHead(b)
	h.run()
	s := h.job(1, "sleep", "1000")
	h.send(s)
	h.await(s.Task, wire.Running)
	pid, err := lockHolder(filepath.Join(h.spool, tasksName, s.Task.String(), lockName))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		b.Fatal(err)
	}
	private := 0.0
	for _, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			n, _ := strconv.ParseFloat(f[1], 64)
			private += n / 1024
		}
	}
	b.ReportMetric(private, "MiB-private")
	b.ReportMetric(float64(resident([]process{{pid: pid}}))/(1<<20), "MiB-resident")
}
