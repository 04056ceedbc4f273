package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/ask"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/statefolder"
	"muster/wire"
	"muster/wire/control"
)

// lyingWorker serves the first client as far as a program needs to be attached, and
// lies to the next daemon. Other clients have real workers.
func lyingWorker() error {
	packet, err := firstPacket()
	if err != nil {
		return err
	}
	if !strings.Contains(packet, `"client":1,`) {
		return realWorker()
	}
	conn, err := control.OpenWorkerEnd(os.NewFile(3, "control"))
	if err != nil {
		return err
	}
	first, files, err := conn.Receive()
	if err != nil {
		return nil
	}
	l := &liar{serve: first.(control.Serve), held: []control.Held{{Name: "ring", File: files[0]}, {Name: "arena", File: files[1]}}}
	for {
		m, more, err := conn.Receive()
		if err != nil {
			break
		}
		switch m := m.(type) {
		case control.Ping:
			_ = conn.Send(control.Pong{Number: m.Number})
		case control.Hold:
			l.held = append(l.held, control.Held{Name: "program", File: more[0]})
			tellAttached(m, more[0], files)
		case control.End:
			return nil
		}
	}
	return l.lie(os.Getenv("MUSTER_TEST_LIE"))
}

type liar struct {
	serve control.Serve
	held  []control.Held
}

// dial connects to the next daemon, when there is one.
func (l *liar) dial() *net.UnixConn {
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.serve.Node, Net: "unix"})
		if err == nil {
			return conn
		}
		time.Sleep(time.Millisecond)
	}
}

// lie does one of the things that workers must not do, and waits to be killed for it.
func (l *liar) lie(how string) error {
	conn := l.dial()
	client, held := l.serve.Client, l.held
	ring, arena, program := held[0].File, held[1].File, held[2].File
	switch how {
	case "another client":
		client = 2
	case "other files":
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		held[0].File = null
	case "files in the wrong order":
		held[0].File, held[1].File = arena, ring
	case "a file for a socket":
		held[2].File = ring
	case "few files":
		held = held[1:]
	case "many files":
		for i := range 40 {
			held = append(held, control.Held{Name: fmt.Sprint("more", i), File: ring})
		}
	case "one file twice":
		held = append(held, control.Held{Name: "ring", File: ring})
	case "endless files":
		return l.send(conn, slices.Repeat([]*os.File{program}, 250))
	case "no JSON":
		_, _ = conn.Write([]byte("hello\n"))
		return l.waitForDeath()
	case "an endless line":
		_, _ = conn.Write([]byte(strings.Repeat("{", 1<<20)))
		return l.waitForDeath()
	case "another request":
		_, _ = conn.Write([]byte(`{"request":"status"}` + "\n"))
		return l.waitForDeath()
	case "another protocol":
		_, _ = fmt.Fprintf(conn, `{"request":"adopt","client":1,"protocol":%d}`+"\n", control.Protocol+1)
		return l.waitForDeath()
	}
	adopted, err := control.Introduce(conn, client, held)
	for err != nil && !errors.As(err, new(*control.NotAdopted)) { // it was the last daemon's socket
		adopted, err = control.Introduce(l.dial(), client, held)
	}
	if err == nil {
		l.lieAdopted(how, adopted.End)
	}
	return l.waitForDeath()
}

// lieAdopted lies about where the client stands.
func (l *liar) lieAdopted(how string, end *control.WorkerEnd) {
	said := control.ToDaemon(control.Standing{})
	switch how {
	case "a lease of its own":
		said = control.Standing{Lease: 1, Held: true, Memory: 1 << 20}
	case "a lease that was never given":
		said = control.Standing{Held: true, Memory: 1 << 20}
	case "a device that is not there":
		said = control.Standing{Held: true, Device: 1000}
	case "memory of others":
		said = control.Standing{Committed: 1 << 40}
	case "time that goes back":
		said = control.Standing{Kernels: 1 << 63}
	case "no standing":
		said = control.Want{Memory: 1 << 20, Pinned: -1}
	case "two standings":
		_ = end.Send(said)
	}
	_ = end.Send(said)
}

func (l *liar) send(conn *net.UnixConn, files []*os.File) error {
	_, _ = fmt.Fprintf(conn, `{"request":"adopt","client":1,"protocol":%d}`+"\n", control.Protocol)
	_, _ = conn.Read(make([]byte, 100))
	names, _ := json.Marshal(map[string][]string{"held": slices.Repeat([]string{"program"}, len(files))})
	_ = wire.SendFiles(conn, append(names, '\n'), files...)
	return l.waitForDeath()
}

// waitForDeath waits until the program has gone, so that nothing is left of a liar
// that is not killed.
func (l *liar) waitForDeath() error {
	conn, err := net.FileConn(l.held[len(l.held)-1].File)
	if err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, 1))
	return nil
}

// A worker that lies to the next daemon is ended with its client, and nobody else
// notices.
func TestLyingWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	const refused, neverCame = "-", "--" // the daemon has nothing to tell the program with
	for _, c := range []struct{ lie, reason string }{
		{"another client", refused}, {"other files", refused}, {"files in the wrong order", refused}, {"a file for a socket", refused},
		{"few files", refused}, {"many files", refused}, {"one file twice", refused}, {"another protocol", refused},
		{"endless files", neverCame}, {"no JSON", neverCame}, {"an endless line", neverCame}, {"another request", neverCame}, // it could come again, and does not
		{"a lease of its own", "its worker is broken: it speaks of lease 1, and the last that it was granted is 0"},
		{"a lease that was never given", "its worker is broken: it holds lease 0 of device 0 with 1048576 bytes, and was granted lease 0 of device -1 with 0"},
		{"a device that is not there", "its worker is broken: it holds lease 0 of device 1000 with 0 bytes, and was granted lease 0 of device -1 with 0"},
		{"memory of others", "its worker is broken: it has 1099511627776 bytes of the swap area, and was granted 0"},
		{"time that goes back", "its worker is broken: it ran 9223372036854775808 kernels in 0s, and has told of 0 in 0s"},
		{"no standing", "its worker is broken: it begins with want, and not with where it stands"},
		{"two standings", "its worker is broken: it says where it stands, and was not adopted"},
	} {
		t.Run(c.lie, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			if c.reason == neverCame {
				h.cfg.WorkerTimeout = settings.MinWorkerTimeout
			}
			h.worker, h.environment = "lying worker", []string{"MUSTER_TEST_LIE=" + c.lie}
			h.start()
			p, honest := h.connect(), h.connect()
			worker := h.file(1).Worker
			h.restart()
			eventually(t, "the liar is dead", func() bool { return !proc.IsRunning(worker.Pid, worker.Start) })
			eventually(t, "only the other client is left", func() bool {
				s := h.status()
				return len(s.Clients) == 1 && s.Clients[0].ID == 2 && !s.Clients[0].Away
			})
			if reason, closed := p.shared.Closed(); closed != (len(c.reason) > 2) || closed && reason != c.reason {
				t.Errorf("its program hears %q\nwant %q", reason, c.reason)
			}
			addVectors(t, honest)
			if files := descriptorsOf(h.daemon.Process.Pid); files > 60 {
				t.Errorf("the daemon has %d descriptors", files)
			}
		})
	}
}

func descriptorsOf(pid int) int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return len(files)
}

// Processes that are nobody's workers are not adopted, whoever they are, and whatever
// they bring.
func TestStrangersAreNotAdopted(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	addVectors(t, p)
	worker := h.file(1).Worker
	h.kill()
	stopProcess(t, worker.Pid) // so that it is waited for
	h.start()
	try := func() {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: h.cfg.Socket.Address, Net: "unix"})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, err = control.Introduce(conn, 1, nil)
		var refused *control.NotAdopted
		if !errors.As(err, &refused) || !strings.HasSuffix(refused.Reason, "is no worker that the node waits for") {
			t.Error(err)
		}
	}
	try()
	asUser(t, 4321, try)
	if !h.client(1).Away {
		t.Error("the client was given to a stranger")
	}
	_ = syscall.Kill(worker.Pid, syscall.SIGCONT)
	h.settled(1)
	addVectors(t, p)
}

// A process that has the number of a worker, and is another one, is none: the file is
// of a worker that has ended.
func TestAnotherProcessOfThatNumber(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	f := h.file(1)
	h.kill()
	f.Worker.Start++
	text, err := json.Marshal(f.ClientFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.cfg.State, "client-1.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	if s := h.status(); len(s.Clients) != 0 {
		t.Errorf("%+v", s.Clients)
	}
	if _, err := p.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the program hears something")
	}
	want := fmt.Sprintf("the node was started again and did not take the program over: process %d of user root is no worker that the node waits for", f.Worker.Pid)
	if reason, _ := p.shared.Closed(); reason != want {
		t.Errorf("got %s\nwant %s", reason, want)
	}
}

// Somebody else takes the node's name while there is no daemon. He is given nothing.
func TestImpostorGetsNothing(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	addVectors(t, p)
	h.kill()
	heard := make(chan string, 1)
	asUser(t, 4321, func() {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.cfg.Socket.Address, Net: "unix"})
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		b := make([]byte, 1000)
		n, files, _ := wire.ReceiveFiles(conn, b)
		heard <- fmt.Sprintf("%q with %d files", b[:n], len(files))
	})
	if got := <-heard; got != `"" with 0 files` {
		t.Errorf("the impostor heard %s", got)
	}
	h.start()
	h.settled(1)
	addVectors(t, p)
}

// What the dead left is removed, and what nobody can read harms nobody.
func TestStaleState(t *testing.T) {
	h := newHouse(t)
	h.cfg.Swap.Dir = t.TempDir()
	h.start()
	h.connect()
	f := h.file(1)
	h.kill()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(h.cfg.State, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dead := f
	dead.Client, dead.Worker.Pid = 7, 1<<22+1 // more than any process has
	text, err := json.Marshal(dead.ClientFile)
	if err != nil {
		t.Fatal(err)
	}
	put("client-7.json", string(text))
	standing, err := os.ReadFile(filepath.Join(h.cfg.State, "standing-1"))
	if err != nil {
		t.Fatal(err)
	}
	put("standing-7", string(standing))
	put("standing-12", string(standing)) // of nobody
	lost := f
	lost.Client = 6
	if text, err = json.Marshal(lost.ClientFile); err != nil {
		t.Fatal(err)
	}
	put("client-6.json", string(text)) // where it stands is damaged
	put("standing-6", strings.Repeat("x", len(standing)))
	other := dead
	other.Client, other.Worker, other.Boot = 8, f.Worker, "another"
	if text, err = json.Marshal(other.ClientFile); err != nil {
		t.Fatal(err)
	}
	put("client-8.json", string(text))
	put("client-9.json", string(text)) // that of another
	put("client-10.json", "{")
	put("client-11.json", `{"version":1,"worker":{"pid":-1}}`)
	put("client-nonsense.json", "{}")
	put(".part-client-3.json", "half")
	old, fresh := filepath.Join(h.cfg.Swap.Dir, "muster-swap-1"), filepath.Join(h.cfg.Swap.Dir, "muster-swap-2")
	for _, path := range []string{old, fresh} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.settled(1)
	names := []string{}
	for _, path := range h.files() {
		names = append(names, filepath.Base(path))
	}
	if got := strings.Join(names, " "); got != "client-1.json lock-0 lock-1 node.json standing-1" {
		t.Errorf("the folder has %s", got)
	}
	if left, _ := filepath.Glob(h.cfg.Swap.Dir + "/*"); len(left) != 1 || left[0] != fresh {
		t.Errorf("the swap folder has %v", left)
	}
	if q := h.connect(); q.attached.Client != 8 { // the last number that was given
		t.Errorf("the next client is %d", q.attached.Client)
	}
	// The node's own file is damaged: the clients cannot be adopted, and are told.
	p := h.connect()
	h.kill()
	put("node.json", "{}")
	h.start()
	if _, err := p.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the program hears something")
	}
	if s := h.status(); len(s.Clients) != 0 {
		t.Errorf("%+v", s.Clients)
	}
}

// The folder is the node's alone.
func TestStateFolder(t *testing.T) {
	start := func(change func(*settings.Config)) error {
		cfg := testConfig()
		cfg.OrphanGrace, cfg.State = time.Minute, filepath.Join(t.TempDir(), "state")
		change(&cfg)
		ended := make(chan struct{})
		close(ended)
		opts := testOptions()
		opts.Kill = ended
		return Run(t.Context(), cfg, opts)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*settings.Config)
		want   string
	}{
		{"made", func(c *settings.Config) {}, ""},
		{"others may use it", func(c *settings.Config) { c.State = open }, "others may use " + open + ": chmod 0700 " + open},
		{"a file", func(c *settings.Config) { c.State = file }, "the node's state cannot be kept (state, --state): "},
		{"no state is wanted", func(c *settings.Config) { c.State, c.OrphanGrace = file, 0 }, ""},
	} {
		err := start(c.change)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
	for socket, want := range map[string]string{
		"@muster": "@muster", "@a.b/c": "@a%2Eb+c", "/run/muster.sock": "+run+muster%2Esock", "@..": "@%2E%2E", "@\xff+": "@%FF%2B",
	} {
		if got := statefolder.Key(socket); got != want {
			t.Errorf("%q: %q, want %q", socket, got, want)
		}
	}
}

// A node whose usual folder cannot be made works without.
func TestUsualStateFolder(t *testing.T) {
	socket := freshSocket()
	folder := filepath.Join(statefolder.Parent(), statefolder.Key(socket))
	cfg := testConfig()
	cfg.OrphanGrace, cfg.Socket.Address = time.Minute, socket
	f := run(t, cfg)
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 || !statefolder.Restarting(socket) {
		t.Errorf("%v, %v", info, err)
	}
	mustConnect(t, f).synchronise(t)
	close(f.kill)
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	if _, err := os.Stat(folder); err == nil || statefolder.Restarting(socket) {
		t.Error("it is left")
	}
}

// Programs wait for a daemon that was killed a moment ago, since it may be started again, and not
// for one that has been gone for long.
func TestNobodyWaitsForADeadNode(t *testing.T) {
	socket := freshSocket()
	parent := statefolder.Parent()
	if err := statefolder.MakeParent(parent); err != nil {
		need.Missing(t, need.System, "there is no usual place for a state here:", err)
	}
	f, err := statefolder.Open("", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Remove(f.Dir)
		_ = os.Remove(parent) // unless another node has its state there
	})
	f.Leave() // as a daemon does that was killed
	if !statefolder.Restarting(socket) {
		t.Error("nobody waits for a node that was killed just now")
	}
	long := time.Now().Add(-2 * statefolder.DeadTime)
	if err := os.Chtimes(f.Dir, long, long); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := ask.AwaitServing(t.Context(), &said, socket, 0); !errors.Is(err, ask.ErrNoNode) || said.Len() > 0 {
		t.Errorf("for a node that has been gone for long: %v, and it says %q", err, said.String())
	}
	f, err = statefolder.Open("", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Leave()
	for end := time.Now().Add(2 * time.Minute); !statefolder.Restarting(socket); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next node does not touch the folder")
		}
	}
}
