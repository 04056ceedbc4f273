package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/wire/api"
)

// A check that finds nothing proves nothing: here each must find what is wrong.
func TestWrongIsFound(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lines"), 0o755); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1000, 0)
	hits := []hit{
		{kind: JobKill, node: "n1", job: 7, from: at, until: at},
		{kind: NodeRestart, node: "n2", from: at, until: at.Add(time.Second)},
		{kind: NodeKill, node: "n3", from: at, until: at.Add(time.Second)},
		{kind: LinkCut, node: "n4", from: at, until: at.Add(nodeTimeout)},
		{kind: GatewayCut, node: "n5", from: at, until: at.Add(9 * time.Second)},
		{kind: GatewayStall, node: "n6", from: at, until: at.Add(9 * time.Second)},
		{kind: GatewayCut, node: "n6", from: at.Add(10 * time.Second), until: at.Add(19 * time.Second)},
		{kind: SpoolDiskFull, node: "n7", from: at, until: at.Add(time.Second)},
	}
	good := "begin 0 0 1.5\nend 0 0 2.5\n"
	plain := &asked{tasks: 1, parts: 1}
	job := func(id uint64, state api.State, attempt uint32, node, why string) api.Job {
		return api.Job{ID: id, State: state, Attempt: attempt, Nodes: []string{node}, Why: why, Start: 999, End: 1002}
	}
	lent := func(exit int, lender string) api.Job {
		j := job(8, api.Failed, 1, "n1", "")
		j.ExitCode, j.End, j.Devices = exit, 1020, []api.Device{{Node: lender, Borrowed: true}}
		return j
	}
	const silent = "node has not been heard of for 0:06"
	for _, c := range []struct {
		name, lines string
		asked       *asked
		job         api.Job
		want        string
	}{
		{"right", good, plain, job(1, api.Completed, 1, "n1", ""), ""},
		{"no end", "begin 0 0 1.5\n", plain, job(1, api.Completed, 1, "n1", ""), "says no end"},
		{"begun twice", good + "begin 0 0 3.5\n", plain, job(1, api.Completed, 1, "n1", ""), "says begin twice"},
		{"a part is missing", good, &asked{tasks: 1, parts: 2}, job(1, api.Completed, 1, "n1", ""), "part 1 says no begin"},
		{"two attempts", "begin 0 0 1\n" + "begin 1 0 2\nend 1 0 3\n", plain, job(1, api.Completed, 2, "n1", ""), "may not be started anew"},
		{"two attempts, as asked", "begin 0 0 1\n" + "begin 1 0 2\nend 1 0 3\n", &asked{parts: 1, requeue: true}, job(1, api.Completed, 2, "n1", ""), ""},
		{"an attempt of which the head knows nothing", good + "begin 1 0 3\n", &asked{parts: 1, requeue: true}, job(1, api.Completed, 1, "n1", ""), "it has an attempt 2"},
		{"killed", "begin 0 0 1.5\n", plain, job(7, api.Failed, 1, "n1", ""), ""},
		{"killed by nobody", "begin 0 0 1.5\n", plain, job(8, api.Failed, 1, "n1", ""), "no fault made it fail"},
		{"its node's spool was full, and others could have run it", "", plain, job(8, api.Failed, 1, "n7", ""), "no fault made it fail"},
		{"one of its nodes' spools was full", "begin 0 0 1.5\n", &asked{parts: 2}, job(8, api.Failed, 1, "n7", ""), ""},
		{"a full spool keeps no node away", "begin 0 0 1.5\n", plain, job(8, api.NodeFail, 1, "n7", silent), "for long enough"},
		{"its GPU went", "begin 0 0 1.5\n", &asked{parts: 1, gpus: true}, job(8, api.Failed, 1, "n2", ""), ""},
		{"its own GPU survives", "begin 0 0 1.5\n", &asked{parts: 1, gpus: true}, job(8, api.Failed, 1, "n3", ""), "no fault made it fail"},
		{"its lender was out of reach when it began", "begin 0 0 1.5\n", &asked{parts: 1, gpus: true}, lent(3, "n5"), ""},
		{"a cut that sessions survive", "begin 0 0 1.5\n", &asked{parts: 1, gpus: true}, lent(5, "n5"), "no fault made it fail"},
		{"cuts that are too long for sessions", "begin 0 0 1.5\n", &asked{parts: 1, gpus: true}, lent(5, "n6"), ""},
		{"cancelled by nobody", "", plain, job(8, api.Cancelled, 0, "n1", ""), "nobody cancelled it"},
		{"away for long", "begin 0 0 1.5\n", plain, job(8, api.NodeFail, 1, "n4", silent), ""},
		{"away for a moment", "begin 0 0 1.5\n", plain, job(8, api.NodeFail, 1, "n3", silent), "for long enough"},
		{"lost for no reason", "begin 0 0 1.5\n", plain, job(8, api.NodeFail, 1, "n4", "lost"), "no fault lost its processes"},
		{"a time limit that nobody set", "begin 0 0 1.5\n", plain, job(8, api.Timeout, 1, "n1", ""), "no fault explains that"},
	} {
		path := filepath.Join(dir, "lines", "8")
		if c.job.ID != 8 {
			path = filepath.Join(dir, "lines", map[uint64]string{1: "1", 7: "7"}[c.job.ID])
		}
		if err := os.WriteFile(path, []byte(c.lines), 0o644); err != nil {
			t.Fatal(err)
		}
		p := &campaign{o: &Options{Dir: dir}, faults: &injector{hits: hits}}
		got := strings.Join(p.wrongWith(c.asked, &c.job), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Two processes that live are seen together, and one that has gone is not.
func TestTogether(t *testing.T) {
	own := &seen{pid: os.Getpid(), started: startOf(os.Getpid())}
	parent := &seen{pid: os.Getppid(), started: startOf(os.Getppid())}
	if !together([]*seen{own, parent}) {
		t.Error("both live")
	}
	if together([]*seen{own, {pid: os.Getpid(), started: "another"}}) {
		t.Error("the number is another process's now")
	}
}
