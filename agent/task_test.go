package agent

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// How tasks end, and what is told of it.
func TestEnds(t *testing.T) {
	h := newHead(t)
	h.run()
	for i, c := range []struct {
		name string
		make func(*wire.Start)
		want wire.End
		says string
	}{
		{"exit", shell("exit 4"), wire.End{Cause: wire.Exited, Exit: 4}, ""},
		{"signal", shell("kill -SEGV $$"), wire.End{Cause: wire.Exited, Signal: 11}, ""},
		{"no such command", func(s *wire.Start) { s.Spec.Arguments = []string{"no-such-command"} }, wire.End{Cause: wire.Exited, Exit: 127}, "no-such-command: not found in the job's PATH"},
		{"no program", func(s *wire.Start) { s.Spec.Arguments = []string{"/etc/passwd"} }, wire.End{Cause: wire.Exited, Exit: 126}, "/etc/passwd cannot be run"},
		{"no directory", func(s *wire.Start) { s.Spec.Directory = "/nowhere/at/all" }, wire.End{Cause: wire.NotBegun, Signal: wire.NoFiles}, "the job's directory"},
		{"no output", func(s *wire.Start) { s.Spec.Output = "nowhere/out" }, wire.End{Cause: wire.NotBegun, Signal: wire.NoFiles}, "the job's output nowhere/out"},
		{"no input", func(s *wire.Start) { s.Spec.Input = "nowhere" }, wire.End{Cause: wire.NotBegun, Signal: wire.NoFiles}, "the job's input nowhere"},
		{"no user", func(s *wire.Start) { s.Spec.User = "nobody-at-all" }, wire.End{Cause: wire.NotBegun}, "nobody-at-all"},
		{"script", func(s *wire.Start) { s.Spec.Script = "#!/bin/sh\nexit 5\n"; s.Spec.Arguments = nil }, wire.End{Cause: wire.Exited, Exit: 5}, ""},
		{"script without a first line", func(s *wire.Start) { s.Spec.Script = "exit 5\n"; s.Spec.Arguments = nil }, wire.End{Cause: wire.Exited, Exit: 126}, "does not begin with #!"},
		{"script of a shell that is not there", func(s *wire.Start) { s.Spec.Script = "#!/bin/no-shell\n"; s.Spec.Arguments = nil }, wire.End{Cause: wire.Exited, Exit: 126}, "after #!"},
		{"time limit", func(s *wire.Start) { s.Spec.Arguments, s.Spec.Time = []string{"sleep", "1000"}, 50*time.Millisecond }, wire.End{Cause: wire.TimedOut, Signal: 15}, "the time limit of 50ms"},
		{"memory limit", func(s *wire.Start) { s.Spec.Arguments = []string{self(t), "hog"}; s.Spec.Memory = 64 << 20 }, wire.End{Cause: wire.NoMemory, Signal: 9}, "64 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			s := h.job(uint64(i+1), "true")
			c.make(&s)
			h.send(s)
			end := h.await(s.Task, wire.Ended)
			if end.Cause != c.want.Cause || end.Exit != c.want.Exit || end.Signal != c.want.Signal || !strings.Contains(end.Reason, c.says) || (c.says == "") != (end.Reason == "") {
				t.Errorf("%+v, not %+v", *end, c.want)
			}
			h.send(wire.Done{Task: s.Task})
		})
	}
	h.t = t
}

func shell(script string) func(*wire.Start) {
	return func(s *wire.Start) { s.Spec.Arguments = []string{"sh", "-c", script} }
}

func self(t *testing.T) string {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Who is stopped can end as it likes, for as long as the grace is.
func TestStop(t *testing.T) {
	h := newHead(t)
	h.run()
	for i, c := range []struct {
		script string
		grace  time.Duration
		want   wire.End
	}{
		{"trap 'exit 9' TERM", time.Hour, wire.End{Exit: 9}},
		{"trap '' TERM", 50 * time.Millisecond, wire.End{Signal: 9}},
		{"trap '' TERM", 0, wire.End{Signal: 9}},
	} {
		s := h.job(uint64(i+1), "sh", "-c", c.script+"; echo > ready; while :; do sleep 0.01; done")
		h.send(s)
		h.awaitFile(s, "ready")
		h.send(wire.Stop{Task: s.Task, Cause: wire.Abandoned, Reason: "enough", Grace: c.grace})
		if end := h.await(s.Task, wire.Ended); end.Cause != wire.Abandoned || end.Reason != "enough" || end.Exit != c.want.Exit || end.Signal != c.want.Signal {
			t.Errorf("%s: %+v", c.script, *end)
		}
	}
	// Less time than was said before.
	s := h.job(9, "sh", "-c", "trap '' TERM; echo > ready; while :; do sleep 0.01; done")
	h.send(s)
	h.awaitFile(s, "ready")
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Grace: time.Hour})
	h.send(wire.Stop{Task: s.Task, Cause: wire.Abandoned})
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.Stopped || end.Signal != 9 {
		t.Errorf("%+v", *end)
	}
}

// A process may be killed before the supervisor has heard that it became its program. How it ended
// counts all the same.
func TestKilledBeforeItWasHeardOf(t *testing.T) {
	for _, heard := range []bool{true, false} { // false: somebody keeps the pipe open
		c := &child{pid: 7, enters: true, exited: true, status: syscall.WaitStatus(syscall.SIGKILL), gone: make(chan struct{})}
		s := &supervisor{progress: progress{begun: true}, ranks: []*child{c}, children: map[int]*child{7: c}, inbox: make(chan func())}
		if !s.isOver() {
			t.Error("nobody tells that it has exited, and the task is not over")
		}
		if heard {
			go func() { s.inbox <- func() { c.enters = false; s.settle(c) } }()
		}
		s.hearAll()
		if end := s.ending(); end.Signal != 9 {
			t.Errorf("heard %t: %+v", heard, end)
		}
		s.settle(c) // when it is heard of late, all is done
	}
}

// A supervisor whose folder was removed ends: nobody would find what it writes.
func TestFolderThatWasRemoved(t *testing.T) {
	t.Parallel()
	s := &supervisor{dir: filepath.Join(t.TempDir(), "removed"), inbox: make(chan func()), log: slog.New(slog.DiscardHandler), f: &taskFile{}}
	if err := s.finish(); err != nil {
		t.Error(err)
	}
}

// The ranks of a job have one output file, which is emptied once.
func TestRanks(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", `echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_JOB_NODELIST $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID; [ $MUSTER_LOCALID != 2 ] || exit 6`)
	s.Spec.Processes, s.Spec.First, s.Spec.All, s.Spec.Cores, s.Spec.CoresPerProcess, s.Spec.Nodes = 4, 4, 8, 4, 1, []string{"n1", "n2"}
	s.Spec.ArrayJob, s.Spec.ArrayTask = 90, 3
	if err := os.WriteFile(filepath.Join(s.Spec.Directory, "out"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.send(s)
	if end := h.await(s.Task, wire.Ended); end.Exit != 6 {
		t.Errorf("%+v", *end)
	}
	lines := strings.Split(strings.TrimSpace(h.output(s)), "\n")
	slices.Sort(lines)
	if got, want := strings.Join(lines, "|"), "4 0 8 1 n[1-2] 90 3|5 1 8 1 n[1-2] 90 3|6 2 8 1 n[1-2] 90 3|7 3 8 1 n[1-2] 90 3"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// A job has nothing of what was open when the agent was started.
func TestDescriptors(t *testing.T) {
	secret, err := os.CreateTemp(t.TempDir(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	open, err := syscall.Dup(int(secret.Fd())) // unlike those of Go, it is inherited
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(open) }()
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", "ls -l /proc/self/fd")
	h.send(s)
	if end := h.await(s.Task, wire.Ended); end.Exit != 0 {
		t.Errorf("%+v", *end)
	}
	if got := h.output(s); got == "" || strings.Contains(got, secret.Name()) {
		t.Errorf("the job has\n%s", got)
	}
}

// What a task starts ends with it, whatever it has done to get away.
func TestEscapees(t *testing.T) {
	h := newHead(t)
	h.run()
	escape := `(setsid sh -c 'trap "" TERM HUP; echo $$ > setsid; sleep 1000; :' &)
(nohup sh -c 'echo $$ > nohup; sleep 1000; :' >/dev/null 2>&1 &)
(env -i /bin/sh -c 'trap "" TERM; echo $$ > bare; sleep 1000; :' & )
while ! [ -s setsid -a -s nohup -a -s bare ]; do sleep 0.01; done; `
	ends := h.job(1, "sh", "-c", escape)
	h.send(ends)
	if end := h.await(ends.Task, wire.Ended); end.Cause != wire.Exited || end.Exit != 0 {
		t.Errorf("%+v", *end)
	}
	stopped := h.job(2, "sh", "-c", escape+"echo > ready; sleep 1000")
	h.send(stopped)
	h.awaitFile(stopped, "ready")
	h.send(wire.Stop{Task: stopped.Task, Cause: wire.Stopped, Reason: "enough", Grace: 20 * time.Millisecond})
	if end := h.await(stopped.Task, wire.Ended); end.Cause != wire.Stopped || end.Reason != "enough" {
		t.Errorf("%+v", *end)
	}
	for _, s := range []wire.Start{ends, stopped} {
		for _, name := range []string{"setsid", "nohup", "bare"} {
			h.isGone(h.awaitFile(s, name))
		}
	}
}

// A task that does nothing but start processes which leave it is ended all the same.
func TestForkStorm(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", `storm() { trap '' TERM; echo > ready; for i in 1 2 3 4 5 6 7 8 9 10; do setsid sh -c 'sleep 0.05; exec sleep 1000' & done; sleep 0.01; }; while :; do storm; done`)
	h.send(s)
	h.awaitFile(s, "ready")
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Grace: 100 * time.Millisecond})
	h.await(s.Task, wire.Ended)
	f, err := readTask(filepath.Join(h.spool, tasksName, s.Task.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range allProcesses() {
		if p, ok := statOf(pid); ok && p.state != 'Z' && marked(pid, []byte(markerName+"="+f.Marker), os.Getuid()) {
			t.Errorf("process %d goes on", pid)
		}
	}
}

// A signal changes nothing but what the processes make of it; suspended ones stand
// still, and their time limit with them.
func TestSignalAndSuspend(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", `trap 'echo got > got; echo' USR1; echo $$ > pid; i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.01; done`)
	s.Spec.Time = time.Hour
	h.send(s)
	h.awaitFile(s, "pid")
	h.send(wire.Signal{Task: s.Task, Signal: int(syscall.SIGUSR1)})
	h.awaitFile(s, "got")
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Suspended)
	pid, _ := strconv.Atoi(h.awaitFile(s, "pid"))
	for state := byte(0); state != 'T' && state != 'D'; { // a shell waits for what it starts, and that stands still
		p, ok := statOf(pid)
		if !ok {
			t.Fatal("a suspended process has ended")
		}
		state = p.state
	}
	h.send(wire.Resume{Task: s.Task})
	h.await(s.Task, wire.Running)
	before := h.awaitFile(s, "count")
	for h.awaitFile(s, "count") == before {
		time.Sleep(time.Millisecond)
	}
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Suspended)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Grace: time.Minute})
	if end := h.await(s.Task, wire.Ended); end.Signal != int(syscall.SIGTERM) {
		t.Errorf("a suspended task does not hear that it is to end: %+v", *end)
	}
}

// Tasks stay on the cores that they were given, and no two have the same.
func TestCores(t *testing.T) {
	own, err := ownCores()
	if err != nil || len(own) < 2 {
		need.Missing(t, need.CPU, "one core cannot be divided")
	}
	h := newHead(t)
	h.run(func(c *Config) { c.Cores = 2 })
	var got []string
	for i := range 2 {
		s := h.job(uint64(i+1), "sh", "-c", "grep Cpus_allowed_list /proc/self/status > cores; sleep 1000")
		h.send(s)
		got = append(got, h.awaitFile(s, "cores"))
	}
	want := []string{fmt.Sprintf("Cpus_allowed_list:\t%d", own[0]), fmt.Sprintf("Cpus_allowed_list:\t%d", own[1])}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	s := h.job(3, "true")
	h.send(s)
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.NotBegun {
		t.Errorf("%+v", *end)
	}
}

// The programs of a task with GPUs find them.
func TestGrant(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1, "sh", "-c", `echo $MUSTER_SOCKET $LD_LIBRARY_PATH $RCUDA_DEVICE_COUNT $RCUDA_DEVICE_1`)
	s.Spec.Environment = append(s.Spec.Environment, "LD_LIBRARY_PATH=/usr/lib/mine")
	s.Grant = testGrant()
	h.send(s)
	h.await(s.Task, wire.Ended)
	if got, want := h.output(s), "@1.1.0 /opt/muster:/usr/lib/mine 2 n2:3\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

func testGrant() *grant.Grant {
	return &grant.Grant{ID: "1.1.0", User: "alice", Secret: grant.NewCredential(), Devices: []grant.Device{{Node: "n1"}, {Node: "n2", Device: 3}}, Limit: -1}
}

// The other parts of a job with a script hold their share until they are stopped.
func TestOtherPart(t *testing.T) {
	h := newHead(t)
	h.run()
	s := h.job(1)
	s.Task.Part, s.Spec.Nodes, s.Spec.Script = 1, []string{"n0", "n1"}, "#!/bin/sh\necho\n"
	h.send(s)
	h.await(s.Task, wire.Running)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped, Grace: time.Hour})
	if end := h.await(s.Task, wire.Ended); end.Cause != wire.Stopped {
		t.Errorf("%+v", *end)
	}
	if _, err := os.Stat(filepath.Join(s.Spec.Directory, "out")); err == nil {
		t.Error("the other part has run the script too")
	}
}

// ---- users ----

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	if exec.Command("id", "nobody").Run() != nil {
		need.Missing(t, need.Root, "there is no user nobody")
	}
}

// A job's processes and files are its user's. Nothing that the user names is opened by
// root, and nothing of the environment reaches root's code.
func TestUser(t *testing.T) {
	needRoot(t)
	h := newHead(t)
	h.run()
	s := h.job(1)
	s.Spec.User, s.Spec.Script = "nobody", "#!/bin/sh\nid -un; id -G; umask; stat -c '%U %a' $0; cat $0 > copy; echo $HOME\n"
	s.Spec.Environment = []string{"PATH=/usr/bin:/bin", "LD_PRELOAD=./mine.so", "HOME=/nowhere"}
	if err := os.Chmod(s.Spec.Directory, 0o777); err != nil {
		t.Fatal(err)
	}
	h.send(s)
	if end := h.await(s.Task, wire.Ended); end.Exit != 0 {
		t.Errorf("%+v", *end)
	}
	group, err := exec.Command("id", "-G", "nobody").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The loader of every program in the job complains, and of no other.
	var said []string
	for _, line := range strings.Split(h.output(s), "\n") {
		if !strings.Contains(line, "mine.so") {
			said = append(said, line)
		}
	}
	if got, want := strings.Join(said, "\n"), "nobody\n"+string(group)+"0022\nnobody 500\n/nowhere\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	log, err := os.ReadFile(filepath.Join(h.spool, tasksName, "1.1.0", logName))
	if err != nil || strings.Contains(string(log), "mine.so") {
		t.Errorf("the supervisor has the job's environment: %s %v", log, err)
	}
	info, err := os.Stat(filepath.Join(s.Spec.Directory, "out"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Errorf("the output is root's: %v", err)
	}
}

// A user who names another's file as output, or has a link to it there, does not get
// it.
func TestForeignFiles(t *testing.T) {
	needRoot(t)
	h := newHead(t)
	h.run()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, use := range []func(*wire.Start){
		func(s *wire.Start) { s.Spec.Output, s.Spec.Append = secret, true }, // what is there already would be the job's to read
		func(s *wire.Start) { s.Spec.Output = secret },
		func(s *wire.Start) { s.Spec.Error = secret },
		func(s *wire.Start) { s.Spec.Input = secret },
		func(s *wire.Start) {
			if err := os.Symlink(secret, filepath.Join(s.Spec.Directory, "out")); err != nil {
				t.Fatal(err)
			}
		},
		func(s *wire.Start) { s.Spec.Output, s.Spec.Arguments = "/proc/self/mem", []string{"true"} },
	} {
		s := h.job(uint64(i+1), "id")
		s.Spec.User = "nobody"
		if err := os.Chmod(s.Spec.Directory, 0o777); err != nil {
			t.Fatal(err)
		}
		use(&s)
		h.send(s)
		end := h.await(s.Task, wire.Ended)
		if i < 5 && (end.Cause != wire.NotBegun || !strings.Contains(end.Reason, "denied")) {
			t.Errorf("%d: %+v", i, *end)
		}
		if i == 0 { // nor is it shown to the user
			if said, outcome := h.file(s.Task, "output", false); said != "" || !strings.Contains(outcome.Reason, "denied") {
				t.Errorf("%q %+v", said, outcome)
			}
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "root's\n" {
		t.Errorf("%q %v", text, err)
	}
}
