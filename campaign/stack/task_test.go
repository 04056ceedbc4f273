package stack

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"muster/agent"
	"muster/node/ask"
	wire "muster/wire/agent"
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
	r := await(t, in, func(r wire.Report) bool { return r.State == wire.Ended })
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
