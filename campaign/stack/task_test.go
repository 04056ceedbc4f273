package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/agent"
	"muster/model"
	"muster/node/ask"
	wire "muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
	"muster/wire/status"
)

// book is the daemon's of a node.
type book struct{ socket string }

func (b book) Admit(l grant.Loan) error {
	_, err := ask.AdmitLoan(b.socket, l, time.Time{})
	return err
}

func (b book) Revoke(id string) error {
	_, err := ask.RevokeGrant(b.socket, id, "the job has ended")
	return err
}

func (b book) Limit(id string, limit int) error {
	_, err := ask.LimitGrant(b.socket, id, limit)
	return err
}

// agentOf runs the agent of a node, and returns the head's side of its connection.
func agentOf(t *testing.T, n *theNode) net.Conn {
	t.Helper()
	return agentWith(t, n, func(*agent.Config) {})
}

// agentWith runs an agent with other settings.
func agentWith(t *testing.T, n *theNode, set func(*agent.Config)) net.Conn {
	t.Helper()
	head, err := net.Listen("unix", filepath.Join(t.TempDir(), "head"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", head.Addr().String())
	}
	cfg := agent.Config{
		Node: "near", Spool: filepath.Join(t.TempDir(), "spool"), Cores: 1, Socket: n.socket, Grants: book{n.socket}, Supervisor: []string{made("muster"), "task"}, Cgroup: "none",
		Dial: dial, DialStream: func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) },
		Status: func(context.Context) (*status.Node, error) { return nodeStatus(n.socket) },
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	set(&cfg)
	for d := cfg.Spool; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // users reach their scripts
	}
	go func() { ended <- agent.Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		head.Close()
	})
	conn, err := head.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// await reads what an agent says until it is what a test waits for.
func await[M wire.ToHead](t *testing.T, in io.Reader, is func(M) bool) M {
	t.Helper()
	for {
		m, err := wire.ReadToHead(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := m.(M); ok && is(got) {
			return got
		}
	}
}

func sendTo(t *testing.T, conn net.Conn, messages ...wire.ToAgent) {
	t.Helper()
	for _, m := range messages {
		b, err := wire.Encode(nil, m)
		if err == nil {
			_, err = conn.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A job of another user than the agent's uses the GPU that it was granted, but only for the
// duration of the job.
func TestTaskOfAUser(t *testing.T) {
	t.Parallel()
	who, err := user.Lookup("nobody")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("only root starts tasks of others")
	}
	if err := buildDevices(); err != nil {
		t.Fatal(err)
	}
	n := newWorld(t).start("--name", "near", "--devices", nearDevices)
	conn := agentOf(t, n)
	in := bufio.NewReader(conn)
	hello := await(t, in, func(wire.Hello) bool { return true })
	dir := t.TempDir()
	for _, d := range []string{built.dir, filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	g := &grant.Grant{ID: "1.1.0", User: who.Username, Secret: grant.NewCredential(), Devices: []grant.Device{{Node: "near", Device: 1}}, Limit: grant.AllDevices}
	sendTo(t, conn, wire.Welcome{Cluster: "c", Silence: time.Hour}, wire.Lend{Loan: g.Loan("near")})
	if lent := await(t, in, func(l wire.Lent) bool { return l.ID == g.ID }); lent.Error != "" {
		t.Fatal(lent.Error)
	}
	start := wire.Start{Task: wire.Task{Job: 1, Attempt: 1}, Incarnation: hello.Incarnation, Grant: g, Spec: wire.Spec{
		User: who.Username, Directory: dir, Script: "#!/bin/sh\nprintf 'see\\nuse 0\\nadd 0 5\\nshow 0\\n' | " + made("devices") + "\n",
		Processes: 1, All: 1, Nodes: []string{"near"}, Cores: 1, Output: "out",
	}}
	sendTo(t, conn, start)
	// What was measured of the program is told before the end of its task.
	measured := model.Measured{}
	r := await(t, in, func(m wire.ToHead) bool {
		if p, is := m.(wire.Profiles); is && len(p.Tasks) == 1 && p.Tasks[0].Task == start.Task {
			measured = p.Tasks[0].Measured
		}
		r, is := m.(wire.Report)
		return is && r.State == wire.Ended
	}).(wire.Report)
	if measured == (model.Measured{}) {
		t.Error("the task has ended, and nothing was measured of it")
	}
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if want := "init 0\ndevices 1 B:96MiB:1\nuse 0: 0\nadd 0: 0\nvalue 5 show 0: 0\n"; err != nil || string(text) != want || r.End.Cause != wire.Exited {
		t.Errorf("%q, not %q; %+v %v", text, want, *r.End, err)
	}
	n.eventually("the grant is revoked", func() bool {
		s, err := ask.Grants(n.socket)
		return err == nil && len(s.Grants) == 0
	})
	n.idle()
}

// A task is suspended on one node, and goes on on another as if nothing had been: its script, its program with
// the GPU, and its output.
func TestTaskGoesOnOnAnotherNode(t *testing.T) {
	t.Parallel()
	criu := needCRIU(t)
	for name, cgroup := range map[string]string{"groups": "", "no groups": "none"} {
		t.Run(name, func(t *testing.T) { testTaskGoesOn(t, criu, cgroup) })
	}
}

func testTaskGoesOn(t *testing.T, criu, cgroup string) {
	program := example(t, "sc")
	w := newWorld(t)
	shared, dir := t.TempDir(), t.TempDir()
	nodes, conns, ins, hellos, spools := [2]*theNode{}, [2]net.Conn{}, [2]io.Reader{}, [2]wire.Hello{}, [2]string{}
	for i, name := range []string{"near", "far"} {
		nodes[i] = w.start("--name", name, "--devices", "soft:memory=64M;soft:memory=64M")
		conns[i] = agentWith(t, nodes[i], func(c *agent.Config) {
			c.Node, c.Cgroup, c.Checkpoints = name, cgroup, agent.Checkpoints{Dir: shared, CRIU: criu}
			spools[i] = c.Spool
		})
		ins[i] = bufio.NewReader(conns[i])
		hellos[i] = await(t, ins[i], func(wire.Hello) bool { return true })
	}
	if hellos[0].Checkpoints == "" || hellos[0].Checkpoints != hellos[1].Checkpoints {
		t.Fatalf("the nodes have the folders %q (%s) and %q (%s)", hellos[0].Checkpoints, hellos[0].NoCheckpoints, hellos[1].Checkpoints, hellos[1].NoCheckpoints)
	}
	begin := func(i int, attempt uint32, device int, from string) wire.Task {
		id := wire.Task{Job: 1, Attempt: attempt}
		g := &grant.Grant{ID: id.String(), User: "root", Secret: grant.NewCredential(), Devices: []grant.Device{{Node: hellos[i].Node, Device: device}}, Limit: grant.AllDevices}
		sendTo(t, conns[i], wire.Welcome{Cluster: "c", Silence: time.Hour}, wire.Lend{Loan: g.Loan(hellos[i].Node)}, wire.Start{
			Task: id, Incarnation: hellos[i].Incarnation, Grant: g, From: from, Spec: wire.Spec{
				User: "root", Directory: dir, Script: "#!/bin/bash\necho begun\n" + program + " --repeat 20000\necho ended $?\nexit 7\n",
				Processes: 1, All: 1, Nodes: []string{hellos[i].Node}, Cores: 1, Output: "out", Append: from != "",
			},
		})
		return id
	}
	computes := func(n *theNode) func() bool {
		return func() bool { s := n.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 300 }
	}
	id := begin(0, 1, 0, "")
	nodes[0].eventually("it computes", computes(nodes[0]))
	sendTo(t, conns[0], wire.Checkpoint{Task: id, Folder: "1.1-a"})
	if c := await(t, ins[0], func(wire.Checkpointed) bool { return true }); c.Error != "it is not suspended" {
		t.Errorf("of a task that runs it says %q", c.Error)
	}
	sendTo(t, conns[0], wire.Suspend{Task: id})
	await(t, ins[0], func(r wire.Report) bool { return r.State == wire.Suspended })
	sendTo(t, conns[0], wire.Checkpoint{Task: id, Folder: "1.1-a"})
	if c := await(t, ins[0], func(wire.Checkpointed) bool { return true }); c.Error != "" || c.Bytes == 0 {
		t.Fatalf("%+v", c)
	}
	sendTo(t, conns[0], wire.Stop{Task: id, Cause: wire.Stopped}, wire.Done{Task: id})
	await(t, ins[0], func(r wire.Report) bool { return r.State == wire.Ended })
	sendTo(t, conns[0], wire.Done{Task: id})
	// The script is put where it was, which on this one machine is the other node's spool: that must have forgotten it.
	nodes[0].eventually("it has forgotten the script", func() bool {
		_, err := os.Stat(filepath.Join(spools[0], "scripts", id.String()))
		return os.IsNotExist(err)
	})

	id = begin(1, 2, 1, "1.1-a")
	if r := await(t, ins[1], func(r wire.Report) bool { return r.Task == id }); r.State != wire.Running {
		t.Fatalf("%+v", r.End)
	}
	nodes[1].eventually("it computes again", computes(nodes[1]))
	// It can be suspended there like any other, and saved again.
	sendTo(t, conns[1], wire.Suspend{Task: id})
	await(t, ins[1], func(r wire.Report) bool { return r.State == wire.Suspended })
	sendTo(t, conns[1], wire.Checkpoint{Task: id, Folder: "1.2-b"})
	if c := await(t, ins[1], func(wire.Checkpointed) bool { return true }); c.Error != "" {
		t.Fatalf("%+v", c)
	}
	sendTo(t, conns[1], wire.Discard{Folder: "1.1-a"}, wire.Resume{Task: id})
	r := await(t, ins[1], func(r wire.Report) bool { return r.State == wire.Ended })
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if want := "begun\nsc: 20000 scans of 8192 elements right"; err != nil || !strings.HasPrefix(string(text), want) || !strings.HasSuffix(string(text), "\nended 0\n") || r.End.Cause != wire.Exited || r.End.Exit != 7 {
		t.Errorf("%q; %+v %v", text, *r.End, err)
	}
	w.eventually("what was saved is removed", func() bool { _, err := os.Stat(filepath.Join(shared, "1.1-a")); return os.IsNotExist(err) })
}

// A job of a head is moved by command from a node that is drained to another one: its user sees where it was,
// one output and its exit status, and nothing is left of the way. One that cannot be saved stays, and says why.
func TestJobGoesOnOnAnotherNode(t *testing.T) {
	criu := needCRIU(t)
	program := example(t, "sc")
	t.Setenv("MUSTER_CRIU", criu) // it runs alone
	w := newWorld(t)
	state, shared, dir := t.TempDir(), t.TempDir(), t.TempDir()
	for d := state; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // users reach their scripts
	}
	at := filepath.Join(state, "head.socket")
	head := w.execute(made("muster"), "head", "--policy", "easy", "--page", "none", "--socket", at, "--state", filepath.Join(state, "head"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the head's log:\n%s", head.output)
		}
	})
	join := func(name string, more ...string) *theNode {
		return w.start(append([]string{"--name", name, "--devices", "soft:memory=64M", "--head", "unix:" + at, "--spool", filepath.Join(state, name)}, more...)...)
	}
	t.Setenv("MUSTER_HEAD", "unix:"+at)
	ask := w.muster
	job := func(id string) (j api.Job) {
		if err := json.Unmarshal([]byte(ask("job", id, "--json")), &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	w.eventually("the head is there", func() bool { _, err := os.Stat(at); return err == nil })
	n1 := join("n1", "--checkpoint-dir", shared)
	w.eventually("the node has joined", func() bool { return strings.Contains(ask("nodes"), "n1") })
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/bash\necho begun\n"+program+" --repeat 30000\necho ended $?\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ask("submit", "--gres=gpu:1", "-t30", "-D", dir, "-o", "out", script)
	w.eventually("it computes", func() bool { s := n1.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 300 })
	ask("drain", "--reason", "new memory", "n1")
	n2 := join("n2", "--checkpoint-dir", shared)
	w.eventually("the other has joined", func() bool { return strings.Contains(ask("nodes"), "n2") })
	ask("job", "move", "1")
	w.eventually("it goes on there", func() bool {
		j := job("1")
		if j.State == api.Suspended && strings.HasPrefix(j.Why, "it cannot") || j.State.Over() {
			t.Fatalf("it is %s: %s", j.State, j.Why)
		}
		return j.State == api.Running && j.NodeList == "n2" && slices.Equal(j.Before, []string{"n1"})
	})
	w.eventually("it computes there", func() bool { s := n2.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 300 })
	n1.idle()
	w.eventually("it ends", func() bool { return job("1").State.Over() })
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if j := job("1"); j.ExitCode != 7 || err != nil || !strings.HasPrefix(string(text), "begun\nsc: 30000 scans of 8192 elements right") || !strings.HasSuffix(string(text), "\nended 0\n") {
		t.Errorf("%+v\n%s, %v", j, text, err)
	}
	w.eventually("the folder is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(shared, "[0-9]*"))
		return err == nil && len(left) == 0
	})
	n2.idle()
	// A program with a connection to another one.
	if err := os.WriteFile(script, []byte("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/"+portOf(t)+"\necho connected\nsleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ask("submit", "-t30", "-D", dir, "-o", "out2", script)
	w.eventually("it is connected", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "out2"))
		return err == nil && string(text) == "connected\n"
	})
	ask("job", "move", "2")
	w.eventually("it stays", func() bool {
		j := job("2")
		return j.State == api.Suspended && strings.HasPrefix(j.Why, "it cannot be moved: node n2: CRIU says no")
	})
	ask("job", "resume", "2")
	w.eventually("it goes on where it was", func() bool { j := job("2"); return j.State == api.Running && j.NodeList == "n2" })
	ask("cancel", "2")
	w.eventually("it is over", func() bool { return job("2").State.Over() })
}

// portOf is a port of this machine where somebody answers until the test ends.
func portOf(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
