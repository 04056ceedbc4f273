package agent

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	wire "muster/wire/agent"
	"muster/wire/grant"
)

func testServe(g *grant.Grant, _, _ string, _ int, _ *slog.Logger) (*Served, error) {
	return &Served{Socket: "@" + g.ID, Libraries: "/opt/muster", Close: func() {}}, nil
}

func hog() {
	memory := make([]byte, 256<<20)
	for i := range memory {
		memory[i] = 1
	}
	select {}
}

// A command runs in its directory, with what is known of the job in its environment,
// and its exit status is told.
func TestCommand(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(7, "sh", "-c", `pwd; echo $MUSTER_JOB_ID $SLURM_JOB_ID $SLURM_PROCID $SLURM_NTASKS $SLURM_JOB_NODELIST $HOME $RCUDA_DEVICE_COUNT; echo wrong >&2; cat; exit 3`)
	h.send(s)
	end := h.await(s.Task, wire.Ended)
	if end.Cause != wire.Exited || end.Exit != 3 || end.Began == 0 || end.Ended < end.Began || end.Memory == 0 {
		t.Errorf("%+v", end)
	}
	if want, got := s.Spec.Directory+"\n7 7 0 1 n1 /nowhere 0\nwrong\n", h.output(s); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	// A Start that comes again starts nothing.
	h.send(s)
	h.await(s.Task, wire.Ended)
	h.send(wire.Done{Task: s.Task})
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Unknown)
	if entries, err := os.ReadDir(h.spool + "/tasks"); err != nil || len(entries) != 0 {
		t.Errorf("the spool has %v, %v", entries, err)
	}
	if strings.Count(h.output(s), "wrong") != 1 {
		t.Error("the command has run twice")
	}
}
