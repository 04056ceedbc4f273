package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/agent/agentcore"
	"muster/internal/need"
	wire "muster/wire/agent"
)

// What is saved of a task becomes processes with all rights: nothing is read that others could have written,
// nor anything that no agent writes.
func TestSavedTaskIsRefused(t *testing.T) {
	good := savedTask{Version: savedVersion, Root: 4711, Marker: strings.Repeat("ab", markerBytes), Socket: "@muster-task-ABC", Script: "/spool/scripts/1.1.0/script"}
	for _, c := range []struct {
		change func(*savedTask)
		want   string
	}{
		{func(t *savedTask) { t.Version = 2 }, "it has version 2"},
		{func(t *savedTask) { t.Root = 1 }, "a process or a marker"},
		{func(t *savedTask) { t.Marker = "x" }, "a process or a marker"},
		{func(t *savedTask) { t.Socket = "@muster" }, "a socket"},
		{func(t *savedTask) { t.Socket = "/run/x" }, "a socket"},
		{func(t *savedTask) { t.Script = "/etc/passwd" }, "a script"},
		{func(t *savedTask) { t.Script = "/spool/../etc/script" }, "a script"},
		{func(t *savedTask) { t.Script = "script" }, "a script"},
	} {
		bad := good
		c.change(&bad)
		text, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSaved(text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "saved")
	if _, err := readSaved(dir); err == nil {
		t.Error("a folder that is not there was read")
	}
	text, _ := json.Marshal(good)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(dir, savedName, text); err != nil {
		t.Fatal(err)
	}
	if got, err := readSaved(dir); err != nil || *got != good {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := readSaved(dir); err == nil || !strings.Contains(err.Error(), "alone") {
		t.Errorf("a folder where others may write: %v", err)
	}
}

// Nodes know the same folder by its name, wherever each has it, and remove only what was saved in it.
func TestCheckpointsFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	one, err := nameOf(dir)
	two, err2 := nameOf(link)
	if err != nil || err2 != nil || one != two || one == "" {
		t.Errorf("%q %v, %q %v", one, err, two, err2)
	}
	c := Checkpoints{Dir: dir, Trouble: "there is no CRIU"}
	if name, why := c.name(); name != "" || why != c.Trouble {
		t.Errorf("%q, %q", name, why)
	}
	if err := os.Mkdir(filepath.Join(dir, "1.1-a"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", folderName, "a/b", "1.1-a"} {
		if err := c.discard(name); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 || left[0].Name() != folderName {
		t.Errorf("%v is left", left)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := nameOf(dir); err == nil {
		t.Error("a folder where everybody may write")
	}
}

// A task that cannot be saved says why, and stays as it is. One whose saved processes are not there does
// not begin, and another node may have it.
func TestTaskThatCannotBeSaved(t *testing.T) {
	h := newHead(t)
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	h.run(func(c *Config) { c.Checkpoints = Checkpoints{Dir: shared, CRIU: "criu"} })
	start := h.job(1, "sleep", "1000")
	h.send(start)
	h.await(start.Task, wire.Running)
	h.send(wire.Suspend{Task: start.Task})
	h.await(start.Task, wire.Suspended)
	dir := filepath.Join(h.spool, tasksName, start.Task.String())
	conn, err := dialIn(dir, socketName)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := control{conn}
	c.say(request{Watch: true})
	c.say(request{Order: &agentcore.Order{Save: &agentcore.SaveIn{Folder: filepath.Join(t.TempDir(), "1.1-a")}}})
	in := json.NewDecoder(conn)
	for {
		var s saying
		if err := in.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Saved != nil {
			if s.Saved.Folder != "1.1-a" || !strings.Contains(s.Saved.Error, "nothing can be saved here") {
				t.Errorf("%+v", s.Saved)
			}
			break
		}
	}
	h.send(wire.Resume{Task: start.Task})
	h.await(start.Task, wire.Running)
	h.send(wire.Stop{Task: start.Task, Cause: wire.Stopped})
	h.await(start.Task, wire.Ended)
	gone := h.job(2, "true")
	gone.From = "1.1-b"
	h.send(gone)
	if end := h.await(gone.Task, wire.Ended); end.Cause != wire.NotReady || end.Began != 0 || !strings.Contains(end.Reason, errNotRestored.Error()) {
		t.Errorf("%+v", end)
	}
	// Nothing else that is wrong here is the task's fault either: it ran elsewhere.
	nobodys := h.job(3, "true")
	nobodys.From, nobodys.Spec.User = "1.1-b", "muster-nobody-has-this-name"
	h.send(nobodys)
	if end := h.await(nobodys.Task, wire.Ended); end.Cause != wire.NotReady || end.Began != 0 {
		t.Errorf("%+v", end)
	}
	nobodys.Task.Job, nobodys.From = 4, ""
	h.send(nobodys)
	if end := h.await(nobodys.Task, wire.Ended); end.Cause != wire.NotBegun {
		t.Errorf("%+v", end)
	}
}

// testSave takes CRIU's part: a process of the supervisor's writes a file, but not before there is one that lets
// it, beside the folder.
func testSave(ctx context.Context, s Saving) (uint64, error) {
	folder := filepath.Dir(s.Dir)
	if _, err := os.Stat(filepath.Join(filepath.Dir(folder), "may")); err != nil {
		return 0, errors.New("nothing can be saved here")
	}
	cmd := exec.Command("/bin/sh", "-c", "echo >"+folder+".begun; while [ ! -e "+folder+".let ]; do sleep 0.01; done; mkdir -p "+s.Dir)
	return 7, s.Run(ctx, cmd)
}

// The agent is killed while a task is saved: the save goes on, the next agent hears how it ended when it asks
// again, and the task goes on as if nothing had been. Orders that come meanwhile wait.
func TestAgentIsKilledWhileATaskIsSaved(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root saves tasks")
	}
	shared := t.TempDir()
	if err := errors.Join(os.Chmod(shared, 0o755), os.WriteFile(filepath.Join(shared, "may"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENT_TEST_CHECKPOINTS", shared)
	h := newHead(t)
	h.spawn()
	job := h.job(1, "sh", "-c", "while [ ! -e done ]; do sleep 0.01; done")
	h.send(job)
	h.await(job.Task, wire.Running)
	h.send(wire.Suspend{Task: job.Task})
	h.await(job.Task, wire.Suspended)
	h.send(wire.Checkpoint{Task: job.Task, Folder: "1.1-a"})
	h.awaitPath(filepath.Join(shared, "1.1-a.begun"))
	h.kill()
	h.spawn()
	h.send(wire.Suspend{Task: job.Task}) // as a head does that is told that it starts
	h.await(job.Task, wire.Suspended)
	h.send(wire.Checkpoint{Task: job.Task, Folder: "1.1-a"})
	if err := os.WriteFile(filepath.Join(shared, "1.1-a.let"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		if c, ok := h.next().(wire.Checkpointed); ok {
			if c.Error != "" || c.Bytes != 7 || c.Folder != "1.1-a" {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	if _, err := readSaved(filepath.Join(shared, "1.1-a")); err != nil {
		t.Error(err)
	}
	h.send(wire.Resume{Task: job.Task})
	h.await(job.Task, wire.Running)
	if err := os.WriteFile(filepath.Join(job.Spec.Directory, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if end := h.await(job.Task, wire.Ended); end.Cause != wire.Exited || end.Exit != 0 {
		t.Errorf("%+v", end)
	}
}
