package node

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/wire"
	"muster/wire/status"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// From the greeting to a device and back, with everything that people can see
// on the way.
func TestProgramGetsDevice(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	if result, err := p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: 64 << 20}, nil); err != nil || result != 0 {
		t.Fatal(result, err)
	}
	p.synchronise(t)
	var s status.Node
	eventually(t, "the worker's report is there", func() bool {
		s = statusOf(t, f)
		return s.Clients[0].Swaps > 0
	})
	if s.Pid != os.Getpid() || s.Up <= 0 || len(s.Clients) != 1 || s.Clients[0].Since <= 0 || s.Clients[0].Pid != int32(os.Getpid()) {
		t.Fatalf("%+v", s)
	}
	if !isProcess(s.Clients[0].Worker) {
		t.Errorf("the worker is process %d", s.Clients[0].Worker)
	}
	s.Pid, s.Up, s.Clients[0].Since, s.Clients[0].WaitTime, s.Clients[0].Pid, s.Clients[0].User, s.Clients[0].Worker = 1, 2, 3, 4, 5, "me", 6
	for i := range s.Devices { // this depends on the kernel, and TestStatusSaysWhatConfines shows it
		s.Devices[i].Confined = status.Confined{NoNewPrivs: true, Seccomp: true, Landlock: 6}
	}
	golden(t, "testdata/status.json", toJSON(t, s))
	p.leave()
	eventually(t, "the client is forgotten", func() bool {
		s := statusOf(t, f)
		return len(s.Clients) == 0 && s.Devices[0].Free == 256<<20 && s.Committed == 0
	})
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test ./node -update rewrites it): got\n%s", path, got)
	}
}

// Each device of a program has addresses of its own, and the same ones each
// time.
func TestWhatProgramsSee(t *testing.T) {
	f := run(t, testConfig())
	first, err := connect(f.socket, hello(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer first.leave()
	second, err := connect(f.socket, hello(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.leave()
	if len(first.devices) != 2 || first.devices[0].Name != "Muster vGPU" || first.devices[0].Memory != 256<<20 {
		t.Errorf("%+v", first.devices)
	}
	if bytes.Equal(first.devices[0].Uuid, first.devices[1].Uuid) || !bytes.Equal(first.devices[1].Uuid, second.devices[1].Uuid) {
		t.Error("devices cannot be told apart, or change")
	}
	a, b := first.attached, second.attached
	if a.ArenaBase+a.ArenaSize > b.ArenaBase || a.ArenaSize < 4*a.Memory || a.Client == b.Client || a.Warp != 32 {
		t.Errorf("%+v, %+v", a, b)
	}
}

func TestRefusals(t *testing.T) {
	cfg := testConfig()
	cfg.Limits.Clients = 3
	cfg.Limits.Default = settings.UserLimits{Clients: 2, Memory: 100 << 20}
	f := run(t, cfg)
	for _, c := range []struct {
		name   string
		hello  func(*wire.Hello)
		device uint32
		result int32
		reason string
	}{
		{"magic", func(h *wire.Hello) { h.Magic++ }, 0, refusal.Mismatch, "the greeting is not Muster's"},
		{"version", func(h *wire.Hello) { h.Version = 99 }, 0, refusal.Mismatch, fmt.Sprintf("speaks version 99 of Muster's protocol and the node version %d", wire.Version)},
		{"schema", func(h *wire.Hello) { h.Schema++ }, 0, refusal.Mismatch, "from different builds of Muster"},
		{"device", func(*wire.Hello) {}, 2, refusal.InvalidDevice, "there is no device 2: the node shows 2"},
		{"last device of all", func(*wire.Hello) {}, 1<<32 - 1, refusal.InvalidDevice, "there is no device 4294967295"},
	} {
		h := hello()
		c.hello(h)
		_, err := connect(f.socket, h, c.device)
		var refused *wire.Refused
		if !errors.As(err, &refused) || refused.Result != c.result || !strings.Contains(refused.Reason, c.reason) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	first, second := mustConnect(t, f), mustConnect(t, f)
	if first.attached.Memory != 100<<20 || first.devices[0].Memory != 100<<20 {
		t.Errorf("the program sees %d bytes", first.attached.Memory)
	}
	_, err := connect(f.socket, hello(), 0)
	if err == nil || !strings.Contains(err.Error(), "use this node already, as many as limits.clients allows: wait for one to end, or ask the administrator to raise it") {
		t.Error(err)
	}
	alloc := func(p *program, size uint64) int32 {
		result, err := p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: size}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	// The limit is one for all of a user's programs.
	if r := alloc(first, 60<<20); r != 0 {
		t.Error(r)
	}
	if r := alloc(second, 41<<20); r != refusal.OutOfMemory {
		t.Error(r)
	}
	if r := alloc(second, 40<<20); r != 0 {
		t.Error(r)
	}
	first.leave()
	eventually(t, "its memory is free again", func() bool { return statusOf(t, f).Committed == 40<<20 })
	mustConnect(t, f)
}

func TestNodeWideLimitAndWishes(t *testing.T) {
	cfg := testConfig()
	cfg.Limits.Clients = 1
	cfg.Visible = 1
	cfg.Swap.Size = 300 << 20
	f := run(t, cfg)
	h := hello()
	h.Memory = 1 << 40 // more than the node has anywhere
	p, err := connect(f.socket, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	if p.attached.Memory != 300<<20 || len(p.devices) != 1 {
		t.Errorf("%+v", p.attached)
	}
	if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "the node serves 1 clients, as many as it may") {
		t.Error(err)
	}
}

// A worker that dies takes its program with it, and nothing else.
func TestWorkerDies(t *testing.T) {
	f := run(t, testConfig())
	victim, other := mustConnect(t, f), mustConnect(t, f)
	victim.synchronise(t)
	if err := victim.Post(&wire.HostStop{}); err != nil {
		t.Fatal(err)
	}
	_, err := victim.Call(&wire.Synchronise{}, nil)
	var closed *wire.ClosedError
	if !errors.As(err, &closed) || closed.Reason != "its worker has ended: exit status 3" {
		t.Error(err)
	}
	if _, err := victim.conn.Read(make([]byte, 1)); err != io.EOF {
		t.Error("the connection:", err)
	}
	other.synchronise(t)
	if s := statusOf(t, f); len(s.Clients) != 1 || s.Devices[0].Assigned != 1 {
		t.Errorf("%+v", s)
	}
}

func TestTalkativeProgramIsEnded(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	if _, err := p.conn.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ended", func() bool { _, closed := p.shared.Closed(); return closed })
	if reason, _ := p.shared.Closed(); reason != "it sent what it must not, on its socket" {
		t.Error(reason)
	}
}

// A program waits for a device until another lets it go.
func TestProgramsTakeTurns(t *testing.T) {
	cfg := testConfig()
	cfg.Devices = cfg.Devices[:1]
	cfg.VGPUs = 1
	f := run(t, cfg)
	first, second := mustConnect(t, f), mustConnect(t, f)
	first.synchronise(t)
	pending, err := second.Start(wire.Header{Op: wire.OpSynchronise}, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second is ready", func() bool { return statusOf(t, f).Clients[1].State == "ready" })
	if err := first.Post(&wire.SyncPoint{}); err != nil { // the test worker lets go
		t.Fatal(err)
	}
	if result, _, err := pending.Wait(); err != nil || result != 0 {
		t.Fatal(result, err)
	}
	s := statusOf(t, f)
	if s.Clients[0].State != "waiting" || s.Clients[1].State != "assigned" || s.Clients[1].WaitTime <= 0 {
		t.Errorf("%+v", s.Clients)
	}
}

// Whatever comes first on a connection, the daemon goes on.
func TestFloodOfBadConnections(t *testing.T) {
	f := run(t, testConfig())
	seed := uint64(20)
	random := rand.New(rand.NewPCG(seed, 0))
	var good bytes.Buffer
	if err := wire.WriteRecord(&good, hello()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		var text []byte
		switch i % 5 {
		case 0: // nothing
		case 1: // noise
			text = make([]byte, random.IntN(200))
			for j := range text {
				text[j] = byte(random.Uint32())
			}
		case 2: // breaks off
			text = good.Bytes()[:random.IntN(good.Len())]
		case 3: // a greeting, then noise
			text = append(bytes.Clone(good.Bytes()), "this is no request for a device"...)
		case 4:
			text = []byte(`{"request":"` + strings.Repeat("x", random.IntN(6000)) + "\"}\n")
		}
		wg.Go(func() {
			conn, err := net.Dial("unix", f.socket)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write(text)
			if i%2 == 0 {
				_ = conn.(*net.UnixConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}
		})
	}
	wg.Wait()
	mustConnect(t, f).synchronise(t)
}

// One user's idle connections do not grow without bound: the oldest make room,
// those first whose other side can come again. The user is served all the while.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	cfg := testConfig()
	cfg.Connections.Local = 4
	f := run(t, cfg)
	dial := func() *net.UnixConn {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: f.socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(4 * time.Minute))
		return conn
	}
	greet := func() *net.UnixConn {
		t.Helper()
		conn := dial()
		if err := wire.WriteRecord(conn, hello()); err != nil {
			t.Fatal(err)
		}
		for _, m := range []wire.Message{&wire.Welcome{}, &wire.Device{}, &wire.Device{}} {
			if err := wire.ReadAs(conn, m); err != nil {
				t.Fatal(err)
			}
		}
		return conn
	}
	var all []*net.UnixConn
	for range 20 {
		all = append(all, dial(), greet())
		statusOf(t, f) // is answered, perhaps in the place of another
	}
	isOpen := func(conn *net.UnixConn) bool {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	eventually(t, "most were closed", func() bool {
		all = slices.DeleteFunc(all, func(conn *net.UnixConn) bool { return !isOpen(conn) })
		return len(all) <= cfg.Connections.Local
	})
	mustConnect(t, f).synchronise(t)
}

// Programs come and go at once, some in the middle of it, and nothing is left.
func TestAttachRaces(t *testing.T) {
	cfg := testConfig()
	f := run(t, cfg)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			p, err := connect(f.socket, hello(), uint32(i%2))
			if err != nil {
				t.Error(err)
				return
			}
			defer p.leave()
			switch i % 4 {
			case 0: // gone at once
			case 1:
				_, _ = p.Start(wire.Header{Op: wire.OpSynchronise}, nil) // gone while it waits
			case 2:
				_, _ = p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: 2 << 20}, nil)
			case 3:
				_ = p.Post(&wire.HostStop{}) // its worker dies
			}
		})
	}
	wg.Wait()
	eventually(t, "all are forgotten", func() bool {
		s := statusOf(t, f)
		return len(s.Clients) == 0 && s.Committed == 0 && s.Devices[0].Free == s.Devices[0].Memory && s.Devices[1].Free == s.Devices[1].Memory
	})
	f.stop()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	if left := children(t); len(left) > 0 {
		t.Error("processes are left:", left)
	}
}

// children lists the children of this process.
func children(t testing.TB) []string {
	t.Helper()
	var all []string
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

func TestGracefulShutdownWaits(t *testing.T) {
	cfg := testConfig()
	cfg.Connections.Greet = time.Second
	f := run(t, cfg)
	p := mustConnect(t, f)
	p.synchronise(t)
	idle, err := net.Dial("unix", f.socket) // a connection that never becomes a client
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	f.stop()
	// It ends, perhaps with a refusal: it may still have waited to be accepted.
	if _, err := io.ReadAll(idle); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if err := p.Post(&wire.SyncPoint{}); err != nil { // it is served as before
		t.Fatal(err)
	}
	p.synchronise(t)
	p.leave()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	if _, err := ask.Status(f.socket); !errors.Is(err, ask.ErrNoNode) {
		t.Error(err)
	}
}

func TestShutdownEndsProgramsAfterGrace(t *testing.T) {
	for _, how := range []string{"grace", "kill"} {
		t.Run(how, func(t *testing.T) {
			cfg := testConfig()
			if how == "grace" {
				cfg.Grace = 10 * time.Millisecond
			}
			f := run(t, cfg)
			p := mustConnect(t, f)
			p.synchronise(t)
			f.stop()
			if how == "kill" {
				close(f.kill)
			}
			if err := <-f.done; err != nil {
				t.Error(err)
			}
			f.done <- nil
			if reason, closed := p.shared.Closed(); !closed || reason != "the node has been shut down" {
				t.Errorf("%q, %v", reason, closed)
			}
		})
	}
}

func TestMetricsAndHealth(t *testing.T) {
	cfg := testConfig()
	cfg.HTTP = freePort(t)
	f := run(t, cfg)
	p := mustConnect(t, f)
	p.synchronise(t)
	eventually(t, "the worker's report is there", func() bool { return statusOf(t, f).Clients[0].Swaps > 0 })
	get := func(path string) string {
		t.Helper()
		response, err := http.Get("http://" + cfg.HTTP + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return string(text)
	}
	if got := get("/healthz"); got != "ok\n" {
		t.Errorf("%q", got)
	}
	metrics := get("/metrics")
	for _, want := range []string{
		`muster_clients{state="assigned"} 1`, `muster_clients_total 1`, `muster_kernels_total 3`, `muster_grants_total 1`,
		`muster_device_assigned{device="0",name="Big"} 1`, `muster_wait_seconds_count 1`, `muster_wait_seconds_bucket{le="+Inf"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, metrics)
		}
	}
	p.leave()
	eventually(t, "the client is counted among the past", func() bool {
		m := get("/metrics")
		return strings.Contains(m, "muster_clients{state=\"assigned\"} 0\n") && strings.Contains(m, "muster_kernels_total 3\n") && strings.Contains(m, "muster_clients_total 1\n")
	})
	// What Prometheus reads: comments, and names with a number.
	lines := bufio.NewScanner(strings.NewReader(metrics))
	for lines.Scan() {
		var value float64
		line := lines.Text()
		if strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value); err != nil || !strings.HasPrefix(line, "muster_") {
			t.Errorf("%q", line)
		}
	}
}

func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	// A socket whose daemon was killed.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	cfg := testConfig()
	cfg.Socket = settings.Socket{Address: path, Mode: 0o600}
	f := run(t, cfg)
	mustConnect(t, f).leave()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if err := Run(t.Context(), cfg, testOptions()); err == nil || !strings.Contains(err.Error(), "a node answers at "+path+" already") {
		t.Error(err)
	}
	f.stop()
	if err := <-f.done; err != nil {
		t.Error(err)
	}
	f.done <- nil
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket is still there:", err)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct {
		change func(*settings.Config)
		want   string
	}{
		{func(c *settings.Config) { c.Devices = nil }, "the node has no devices"},
		{func(c *settings.Config) { c.VGPUs = 0 }, "0 virtual GPUs on a device"},
		{func(c *settings.Config) { c.Swap.Size = 0 }, "the swap area has no size"},
		{func(c *settings.Config) { c.Warm = -1 }, "must not be negative"},
		{func(c *settings.Config) { c.WorkerTimeout = -1 }, "must not be negative"},
		{func(c *settings.Config) { c.WorkerTimeout = time.Millisecond }, "a worker_timeout of 1ms would kill workers that are only busy: give 1s or more, or 0 for none"},
		{func(c *settings.Config) { c.WorkerUIDs = settings.UIDRange{First: 1, Last: 70000} }, "worker_uids 1-70000: 65534 belongs to nobody"},
		{func(c *settings.Config) { c.Socket.Address = "" }, "the node has no socket"},
		{func(c *settings.Config) { c.Devices[0].Memory = 3 }, "device 0 (soft Big): profile Big: memory of 3 bytes"},
		{func(c *settings.Config) { c.Devices[1].Reserve = 127 << 20 }, "nothing is left for programs"},
		{func(c *settings.Config) { c.HTTP = "nowhere:nothing" }, "the port for metrics and health (http, --http) cannot be opened"},
		{func(c *settings.Config) { c.Socket.Address = "/no/such/folder/socket" }, "opening the socket"},
		{func(c *settings.Config) { c.Devices = make([]settings.Device, 17) }, "at most 16 devices"},
	} {
		cfg := testConfig()
		c.change(&cfg)
		if err := Run(t.Context(), cfg, testOptions()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
