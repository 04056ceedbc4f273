package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/proc"
	"muster/node/recording"
	"muster/node/settings"
	"muster/node/statefolder"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/status"
)

// house is a node whose daemons come and go: processes that are killed.
type house struct {
	*testing.T
	cfg         settings.Config
	worker      string
	environment []string
	daemon      *exec.Cmd
}

func newHouse(t *testing.T) *house {
	h := &house{T: t, cfg: testConfig(), worker: "real worker"}
	h.cfg.OrphanGrace, h.cfg.State = time.Minute, filepath.Join(t.TempDir(), "state")
	h.cfg.Warm = 1
	return h
}

// start starts the next daemon.
func (h *house) start() {
	h.Helper()
	text, err := json.Marshal(h.cfg)
	if err != nil {
		h.Fatal(err)
	}
	h.daemon = process(h.T, "daemon", h.cfg.Socket.Address, append(h.environment, "MUSTER_TEST_CONFIG="+string(text), "MUSTER_TEST_WORKER="+h.worker)...)
}

// kill kills the daemon.
func (h *house) kill() {
	h.Helper()
	kill(h.T, h.daemon)
}

func (h *house) restart() {
	h.Helper()
	h.kill()
	h.start()
}

func (h *house) status() status.Node {
	h.Helper()
	return statusOf(h.T, &fixture{socket: h.cfg.Socket.Address})
}

// client is the picture of a client; it fails if it is not there.
func (h *house) client(id uint64) status.Client {
	h.Helper()
	for _, c := range h.status().Clients {
		if c.ID == id {
			return c
		}
	}
	h.Fatalf("client %d is not there: %+v", id, h.status().Clients)
	return status.Client{}
}

func (h *house) connect() *program {
	h.Helper()
	return mustConnect(h.T, &fixture{socket: h.cfg.Socket.Address})
}

// file is what is written of a client.
func (h *house) file(id uint64) (f survival.Heir) {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.cfg.State, fmt.Sprintf("client-%d.json", id)))
	if err != nil {
		h.Fatal(err)
	}
	if err := json.Unmarshal(text, &f.ClientFile); err != nil {
		h.Fatal(err)
	}
	standing, err := (&statefolder.Folder{Dir: h.cfg.State}).Slots(fmt.Sprintf("standing-%d", id))
	if err != nil {
		h.Fatal(err)
	}
	defer standing.Close()
	if err := standing.Read(&f.ClientState); err != nil {
		h.Fatal(err)
	}
	return f
}

// files lists what is in the state folder.
func (h *house) files() []string {
	names, _ := filepath.Glob(filepath.Join(h.cfg.State, "*"))
	return names
}

// settled waits until all workers have come back and said where they stand.
func (h *house) settled(ids ...uint64) {
	h.Helper()
	eventually(h.T, "all workers are back", func() bool {
		for _, c := range h.status().Clients {
			if c.Away {
				return false
			}
		}
		return true
	})
	if got := len(h.status().Clients); got != len(ids) {
		h.Fatalf("%d clients, where %v were expected", got, ids)
	}
	for _, id := range ids {
		h.client(id)
	}
}

// alloc has the client ask the daemon for room, and waits for that elsewhere.
func (p *program) alloc(at, size uint64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.do(&wire.MemAlloc{Addr: p.attached.ArenaBase + at, Size: size}, nil, true) }()
	return done
}

// The daemon is killed under a program. The program goes on while there is none, waits
// where it needs one, and goes on with the next as if nothing had been.
func TestDaemonIsReplaced(t *testing.T) {
	h := newHouse(t)
	h.start()
	before := h.connect() // so that numbers differ from those of a new node
	p := h.connect()
	before.leave()
	addVectors(t, p)
	eventually(t, "it was reported", func() bool { return h.client(2).Kernels == 1 && h.client(2).CopiedIn > 0 })
	was := h.client(2)
	h.kill()
	addVectors(t, p) // with what it has
	waits := p.alloc(64<<20, 64<<20)
	h.start()
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	h.settled(2)
	addVectors(t, p)
	eventually(t, "all is counted", func() bool { return h.client(2).Kernels == 3 && h.client(2).CopiedIn == 3*was.CopiedIn })
	is := h.client(2)
	if is.Pid != was.Pid || is.User != was.User || is.Program != was.Program || is.Limit != was.Limit || is.Waits != was.Waits ||
		is.Since < was.Since || is.BusyTime < was.BusyTime {
		t.Errorf("it was %+v\nand is %+v", was, is)
	}
	if s := h.status(); s.Committed < 64<<20 || s.Devices[0].BusyTime < is.BusyTime {
		t.Errorf("%+v", s)
	}
	p.leave()
	eventually(t, "nothing is left of it", func() bool {
		s := h.status()
		return len(s.Clients) == 0 && s.Committed == 0 && s.Devices[0].Free == s.Devices[0].Memory && s.Devices[1].Free == s.Devices[1].Memory
	})
	if q := h.connect(); q.attached.Client != 3 {
		t.Errorf("the next client has number %d", q.attached.Client)
	}
}

// Programs that end while there is no daemon take their workers with them.
func TestProgramEndsWithoutDaemon(t *testing.T) {
	h := newHouse(t)
	h.start()
	p, q := h.connect(), h.connect()
	addVectors(t, p)
	addVectors(t, q)
	worker := h.file(1).Worker
	eventually(t, "it was reported", func() bool { return h.client(1).Kernels == 1 })
	eventually(t, "it was written", func() bool { return h.file(1).Kernels == 1 })
	h.kill()
	p.leave()
	eventually(t, "the worker has ended", func() bool { return !proc.IsRunning(worker.Pid, worker.Start) })
	h.start()
	h.settled(2)
	if s := h.status(); s.Devices[0].Free+s.Devices[1].Free == s.Devices[0].Memory+s.Devices[1].Memory {
		t.Errorf("the other client has nothing: %+v", s.Devices)
	}
	addVectors(t, q)
}

// If no daemon comes, programs and workers end, and are told why. What is left in the
// folder goes with the next daemon.
func TestNoDaemonComes(t *testing.T) {
	h := newHouse(t)
	h.cfg.OrphanGrace = 300 * time.Millisecond
	h.start()
	p := h.connect()
	addVectors(t, p)
	worker := h.file(1).Worker
	h.kill()
	_, err := p.conn.Read(make([]byte, 1))
	reason, closed := p.shared.Closed()
	want := "the node daemon ended, and for 300ms no other came (orphan_grace in the node's configuration); what the program had on its device is lost: if muster ps finds no node, start one with muster node (or systemctl start muster), then start the program again"
	if err == nil || !closed || reason != want {
		t.Errorf("got %v, %q\nwant %s", err, reason, want)
	}
	eventually(t, "the worker has ended", func() bool { return !proc.IsRunning(worker.Pid, worker.Start) })
	h.start()
	if s := h.status(); len(s.Clients) != 0 || s.Devices[0].Free != s.Devices[0].Memory {
		t.Errorf("%+v", s)
	}
	_ = h.daemon.Process.Signal(syscall.SIGTERM)
	_ = h.daemon.Wait()
	if _, err := os.Stat(h.cfg.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files are left: %v", h.files())
	}
}

// A daemon that hands over exits at once and leaves nothing undone: its socket is free,
// all is written, and its workers wait for the next.
func TestHandover(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(h *house) error
	}{
		{"SIGUSR2", func(h *house) error { return h.daemon.Process.Signal(syscall.SIGUSR2) }},
		{"SIGTERM", func(h *house) error { return h.daemon.Process.Signal(syscall.SIGTERM) }},
		{"request", func(h *house) error { return ask.Stop(t.Context(), h.cfg.Socket.Address, "handover") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.cfg.Handover = true
			h.cfg.Socket.Address = filepath.Join(t.TempDir(), "socket")
			h.start()
			p := h.connect()
			addVectors(t, p)
			eventually(t, "it was reported", func() bool { return h.client(1).Kernels == 1 })
			start, _ := proc.Start(h.daemon.Process.Pid)
			if err := c.end(h); err != nil {
				t.Fatal(err)
			}
			if c.name == "request" && proc.IsRunning(h.daemon.Process.Pid, start) {
				t.Error("Stop has returned, and the daemon still runs")
			}
			if err := h.daemon.Wait(); err != nil {
				t.Errorf("the daemon ended with %v", err)
			}
			if _, err := os.Stat(h.cfg.Socket.Address); err == nil {
				t.Error("its socket is left")
			}
			if f := h.file(1); f.Kernels != 1 { // though it was not time for statistics
				t.Errorf("%+v", f)
			}
			addVectors(t, p)
			h.start()
			h.settled(1)
			addVectors(t, p)
			if c := h.client(1); !isProcess(c.Worker) {
				t.Errorf("the client's worker is process %d", c.Worker)
			}
		})
	}
}

// Without state there is nothing to hand over: the daemon ends as ever.
func TestHandoverWithoutState(t *testing.T) {
	cfg := testConfig()
	cfg.Handover = true
	if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), "orphan_grace") {
		t.Error(err)
	}
	f := run(t, testConfig())
	if err := ask.Stop(t.Context(), f.socket, "handover"); err == nil || !strings.Contains(err.Error(), "orphan_grace") {
		t.Error(err)
	}
	if err := ask.Stop(t.Context(), f.socket, "sometime"); err == nil || !strings.Contains(err.Error(), "give grace, now, handover") {
		t.Error(err)
	}
	p := mustConnect(t, f)
	if err := ask.Stop(t.Context(), f.socket, "now"); err != nil {
		t.Error(err)
	}
	if reason, closed := p.shared.Closed(); !closed || reason != "the node has been shut down" {
		t.Error(reason)
	}
}

// Nobody but root and its owner may stop a node.
func TestWhoMayStopANode(t *testing.T) {
	cfg := testConfig()
	f := run(t, cfg)
	asUser(t, 4321, func() {
		if err := ask.Stop(t.Context(), f.socket, "now"); err == nil || !strings.Contains(err.Error(), "only root and user root, whose node it is, may stop it, not 4321") {
			t.Error(err)
		}
	})
}

// Limits of the next daemon are for those who come: nobody loses what he has.
func TestAdoptedBeyondLimits(t *testing.T) {
	h := newHouse(t)
	h.start()
	p, q := h.connect(), h.connect()
	for i, p := range []*program{p, q} {
		if err := <-p.alloc(64<<20, 48<<20); err != nil {
			t.Fatal(i, err)
		}
		addVectors(t, p)
	}
	h.kill()
	h.cfg.Limits.Clients, h.cfg.Limits.Default.Clients, h.cfg.Swap.Size, h.cfg.VGPUs = 2, 1, 64<<20, 1
	h.start()
	h.settled(1, 2)
	addVectors(t, p)
	addVectors(t, q)
	if _, err := connect(h.cfg.Socket.Address, hello(), 0); err == nil || !strings.Contains(err.Error(), "as many as it may") {
		t.Errorf("a third client: %v", err)
	}
	if err := <-p.alloc(128<<20, 32<<20); err == nil || !strings.HasSuffix(err.Error(), "result 2") {
		t.Errorf("more memory: %v", err)
	}
	p.leave()
	eventually(t, "the first is forgotten", func() bool { return len(h.status().Clients) == 1 })
	if _, err := connect(h.cfg.Socket.Address, hello(), 0); err == nil || !strings.Contains(err.Error(), "as limits.clients allows") {
		t.Errorf("one more of the user: %v", err)
	}
	q.leave()
	eventually(t, "nothing is taken", func() bool {
		s := h.status()
		return len(s.Clients) == 0 && s.Committed == 0 && s.Devices[0].Free == s.Devices[0].Memory
	})
}

// The next daemon has other devices: clients leave those that are gone, and use those
// that came, with their memory.
func TestAdoptedWithOtherDevices(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	filled := func(want byte) error {
		got, err := p.fetch(&wire.CopyOut{Src: p.attached.ArenaBase + 64<<20}, 4096)
		if err == nil && !bytes.Equal(got, bytes.Repeat([]byte{want}, 4096)) {
			err = fmt.Errorf("the memory has %d", got[0])
		}
		return err
	}
	if err := errors.Join(<-p.alloc(64<<20, 4096), p.do(&wire.CopyIn{Dst: p.attached.ArenaBase + 64<<20}, bytes.Repeat([]byte{7}, 4096), false)); err != nil {
		t.Fatal(err)
	}
	addVectors(t, p)
	if c := h.client(1); c.Device == nil || *c.Device != 0 {
		t.Fatalf("it does not run on the larger device: %+v", c)
	}
	big, small := h.cfg.Devices[0], h.cfg.Devices[1]
	small.Index = 0
	another := big
	another.Name, another.Memory, another.Index = "Another", 64<<20, 1
	h.kill()
	h.cfg.Devices = []settings.Device{small, another}
	h.start()
	h.settled(1)
	eventually(t, "the device that is gone was left, and removed", func() bool {
		s := h.status()
		return len(s.Devices) == 3 && s.Devices[0].State == "removed" && s.Clients[0].Device == nil
	})
	names := []string{}
	for _, d := range h.status().Devices {
		names = append(names, d.Name+" "+d.State)
	}
	if got := strings.Join(names, ", "); got != "Big removed, Small up, Another up" {
		t.Errorf("the devices are %s", got)
	}
	if err := filled(7); err != nil {
		t.Error(err)
	}
	addVectors(t, p)
	if c := h.client(1); c.Device == nil || *c.Device != 2 {
		t.Errorf("it does not run on the faster device: %+v", c)
	}
	if err := filled(7); err != nil {
		t.Error(err)
	}
	// A program that comes sees the two, and each goes with the other's lock.
	q := h.connect()
	if len(q.devices) != 2 {
		t.Errorf("%d devices are shown", len(q.devices))
	}
	addVectors(t, q)
	// The old devices come back, in another order.
	h.kill()
	h.cfg.Devices = []settings.Device{another, big, small}
	h.start()
	h.settled(1, 2)
	addVectors(t, p)
	addVectors(t, q)
	if err := filled(7); err != nil {
		t.Error(err)
	}
}

// A device that the next daemon cannot open is lost; programs on the others go on.
func TestAdoptedWithoutADevice(t *testing.T) {
	h := newHouse(t)
	h.cfg.VGPUs = 1
	h.start()
	p, q := h.connect(), h.connect()
	addVectors(t, p)
	addVectors(t, q)
	if c := h.client(2); c.Device == nil || *c.Device != 1 {
		t.Fatalf("the second program does not run on the second device: %+v", c)
	}
	h.kill()
	h.environment = []string{"MUSTER_TEST_UNPLUGGED=Big"}
	h.start()
	h.settled(1, 2)
	if s := h.status(); s.Devices[0].State != "lost" || s.Devices[1].State != "up" {
		t.Errorf("%+v", s.Devices)
	}
	addVectors(t, q)
	p.leave()
	q.leave()
	eventually(t, "both are forgotten", func() bool { return len(h.status().Clients) == 0 })
}

// A worker that was stopped and does not come is killed after the timeout, and its
// number is nobody's meanwhile.
func TestWorkerDoesNotComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	h := newHouse(t)
	h.cfg.WorkerTimeout = settings.MinWorkerTimeout
	h.start()
	p, q := h.connect(), h.connect()
	addVectors(t, p)
	addVectors(t, q)
	worker := h.file(1).Worker
	h.kill()
	stopProcess(t, worker.Pid)
	h.start()
	eventually(t, "the other is back", func() bool { return !h.client(2).Away })
	eventually(t, "the worker was killed", func() bool { return !proc.IsRunning(worker.Pid, worker.Start) })
	eventually(t, "its client is forgotten", func() bool { return len(h.status().Clients) == 1 })
	if _, err := p.conn.Read(make([]byte, 1)); err == nil {
		t.Error("its program hears something")
	}
	addVectors(t, q)
	// One that goes on in time is as any other.
	worker = h.file(2).Worker
	h.kill()
	stopProcess(t, worker.Pid)
	h.start()
	_ = syscall.Kill(worker.Pid, syscall.SIGCONT)
	h.settled(2)
	addVectors(t, q)
}

// What a worker holds that was stopped is taken out of it, and its client goes on in
// another.
func TestStoppedOrphanIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	h := newHouse(t)
	h.cfg.WorkerTimeout, h.cfg.Recover = settings.MinWorkerTimeout, true
	h.start()
	p := h.connect()
	if err := errors.Join(<-p.alloc(64<<20, 4096), p.do(&wire.CopyIn{Dst: p.attached.ArenaBase + 64<<20}, bytes.Repeat([]byte{7}, 4096), false)); err != nil {
		t.Fatal(err)
	}
	addVectors(t, p)
	worker := h.file(1).Worker
	h.kill()
	stopProcess(t, worker.Pid)
	h.start()
	eventually(t, "the worker was killed", func() bool { return !proc.IsRunning(worker.Pid, worker.Start) })
	addVectors(t, p)
	got, err := p.fetch(&wire.CopyOut{Src: p.attached.ArenaBase + 64<<20}, 4096)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{7}, 4096)) {
		t.Errorf("its memory is not what it was: %v", err)
	}
	if c := h.client(1); c.Rebuilds != 1 {
		t.Errorf("%+v", c)
	}
	eventually(t, "the new worker is written down", func() bool { f := h.file(1); return f.Worker.Pid != worker.Pid && f.Rebuilds == 1 })
	h.restart() // and is adopted as any other
	h.settled(1)
	addVectors(t, p)
	if c := h.client(1); c.Rebuilds != 1 {
		t.Errorf("%+v", c)
	}
	p.leave()
	eventually(t, "it is forgotten", func() bool { return len(h.status().Clients) == 0 })
}

// A worker that has come back dies before it could say where its client stands: another
// one goes on.
func TestWorkerDiesBeforeItStands(t *testing.T) {
	h := newHouse(t)
	h.cfg.Recover = true
	h.start()
	p := h.connect()
	const spin = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry spin() {\nagain: bra again;\n}\n"
	if err := errors.Join(p.load([]byte(spin), "spin"), p.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start(wire.Header{Op: wire.OpReset}, (&wire.Reset{}).Append(nil)); err != nil { // which waits for the kernel
		t.Fatal(err)
	}
	eventually(t, "the kernel runs, and the worker waits for it", func() bool { return h.client(1).BusyTime > 0 })
	worker := h.file(1).Worker
	writesTo := func() string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", worker.Pid))
		return name
	}
	before := writesTo()
	h.restart()
	eventually(t, "the worker is back", func() bool { return writesTo() != before })
	if !h.client(1).Away {
		t.Error("the worker has said where its client stands while a kernel runs that it waits for")
	}
	if err := syscall.Kill(worker.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another serves the client", func() bool {
		return h.client(1).Rebuilds == 1 && h.file(1).Worker.Pid != worker.Pid && !h.client(1).Away
	})
	p.leave()
	eventually(t, "it is forgotten", func() bool { return len(h.status().Clients) == 0 })
}

// Daemons are killed again and again, also before workers have come to them.
func TestDaemonsInARow(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	addVectors(t, p)
	for range 3 {
		h.restart()
	}
	waits := p.alloc(64<<20, 64<<20)
	h.restart()
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	h.settled(1)
	addVectors(t, p)
	eventually(t, "all kernels are counted, once", func() bool { return h.client(1).Kernels == 2 })
}

// Clients that wait for a device wait with the next daemon, for those that have it.
func TestWaitingClientIsAdopted(t *testing.T) {
	h := newHouse(t)
	h.cfg.Devices, h.cfg.VGPUs, h.cfg.MaxIdle = h.cfg.Devices[:1], 1, 0
	h.start()
	p, q := h.connect(), h.connect()
	addVectors(t, p)
	done := make(chan error, 1)
	go func() { done <- q.add(vecadd(t)) }()
	eventually(t, "it waits", func() bool { return h.client(2).State == "ready" })
	eventually(t, "that was written", func() bool { return !h.file(2).WantedAt.IsZero() })
	h.restart()
	h.settled(1, 2)
	eventually(t, "it waits again", func() bool { return h.client(2).State == "ready" })
	p.leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The recording of a daemon that adopts clients begins with them, and can be played.
func TestAdoptionIsRecorded(t *testing.T) {
	h := newHouse(t)
	h.cfg.Record = settings.Record{File: filepath.Join(t.TempDir(), "decisions.jsonl"), Limit: 1 << 20}
	h.start()
	p := h.connect()
	addVectors(t, p)
	h.restart()
	h.settled(1)
	addVectors(t, p)
	p.leave()
	_ = h.daemon.Process.Signal(syscall.SIGTERM)
	_ = h.daemon.Wait()
	text, err := os.ReadFile(h.cfg.Record.File)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(text), "\n", 3)
	if len(lines) < 3 || !strings.Contains(lines[1], `"event":{"kind":"adopt","client":1,"user":"root"`) || !strings.Contains(lines[1], `"held":true`) {
		t.Errorf("it begins with %q", lines[:2])
	}
	played, err := vgpu.Replay(bytes.NewReader(text))
	if err != nil || played.Difference != nil || played.End != recording.NodeEnded {
		t.Errorf("%+v, %v", played, err)
	}
}

// BenchmarkSave is what it costs to write a client down, as before each grant.
func BenchmarkSave(b *testing.B) {
	cfg := testConfig()
	cfg.OrphanGrace, cfg.State = time.Minute, filepath.Join(b.TempDir(), "state")
	f := runWith(b, cfg, testOptions())
	p, err := connect(f.socket, hello(), 0)
	must(b, err)
	defer p.leave()
	folder := &statefolder.Folder{Dir: cfg.State}
	standing, err := folder.Slots("standing-1")
	must(b, err)
	defer standing.Close()
	var state survival.ClientState
	must(b, standing.Read(&state))
	for b.Loop() {
		must(b, standing.Write(&state))
	}
}

// isProcess says whether a process with a number runs.
func isProcess(pid int) bool {
	_, ok := proc.Start(pid)
	return ok
}
