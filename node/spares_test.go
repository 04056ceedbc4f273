package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node/ask"
	"muster/node/held"
	"muster/node/loop"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/spares"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/node/worker"
	"muster/node/worker/turnlock"
	"muster/wire"
	"muster/wire/control"
)

// costly is a software GPU whose contexts take memory, and can be made in advance, as a real one's.
// What it did is appended to the file that the environment names, a line each.
type costly struct{ device.Device }

const costOfContext = 16 << 20

func (d costly) Info() device.Info {
	info := d.Device.Info()
	info.ContextCost = costOfContext
	return info
}

func (d costly) Can() *device.DeviceCan {
	can := *d.Device.Can()
	can.Prepare, can.Discard = d.prepare, d.discard
	return &can
}

func (d costly) prepare(host []byte) error {
	note("prepared")
	return nil
}

func (d costly) discard() error {
	if path := os.Getenv("MUSTER_TEST_DISCARD"); path != "" { // it takes until there is something to read
		note("discarding")
		f, err := os.Open(path)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
		if err != nil {
			return err
		}
	}
	note("discarded")
	return nil
}

func (d costly) Open(c device.Config) (device.Context, error) {
	note("opened")
	return d.Device.Open(c)
}

func note(what string) {
	if path := os.Getenv("MUSTER_TEST_NOTES"); path != "" {
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666); err == nil {
			fmt.Fprintln(f, what, os.Getpid())
			f.Close()
		}
	}
}

func openCostly(c control.DeviceConfig) (device.Device, error) {
	d, err := openSoft(c)
	return costly{d}, err
}

// costlyWorker is the real worker on such devices.
func costlyWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		turn, err := turnlock.New(lock)
		if err != nil {
			return nil, err
		}
		d, err := soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Workers: c.Workers}, soft.Options{Turns: turn})
		return costly{d}, err
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// spareNode is a node with one device, and a spare there.
func spareNode(t *testing.T, change func(*settings.Config)) (f *fixture, notes string) {
	t.Helper()
	notes = t.TempDir() + "/notes"
	cfg := testConfig()
	cfg.Devices, cfg.Spare, cfg.Warm = cfg.Devices[:1], 1, 1
	if change != nil {
		change(&cfg)
	}
	opts := testOptions()
	opts.Open = openCostly
	opts.WorkerCommand = slices.Insert(workerCommand("costly worker"), 1, "MUSTER_TEST_NOTES="+notes)
	return runWith(t, cfg, opts), notes
}

func awaitSpare(t *testing.T, f *fixture) {
	t.Helper()
	eventually(t, "a worker waits with a context", func() bool { return statusOf(t, f).Devices[0].Spares == 1 })
}

// noted lists what workers did, with their numbers.
func noted(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// A program gets the worker that waits, whose context it uses; another then waits. The context's
// memory counts on the device, once, whoever has it.
func TestASpareServesTheNextProgram(t *testing.T) {
	f, notes := spareNode(t, nil)
	awaitSpare(t, f)
	if s := statusOf(t, f).Devices[0]; s.Free != s.Memory-costOfContext {
		t.Errorf("%d of %d bytes are free beside a spare", s.Free, s.Memory)
	}
	waiting := strings.Fields(noted(t, notes)[0])[1]
	p := mustConnect(t, f)
	addVectors(t, p)
	s := statusOf(t, f)
	if len(s.Clients) != 1 || fmt.Sprint(s.Clients[0].Worker) != waiting {
		t.Errorf("worker %s waited, and serves %+v", waiting, s.Clients)
	}
	all := noted(t, notes)
	if !slices.Contains(all, "opened "+waiting) || slices.Contains(all, "discarded "+waiting) {
		t.Errorf("workers did %q", all)
	}
	awaitSpare(t, f)
	if again := noted(t, notes); again[len(again)-1] == "prepared "+waiting {
		t.Errorf("workers did %q", again)
	}
}

// spareDaemon is such a node without a socket, whose loop the test can ask. Contexts that were
// prepared are closed when the function that it returns is called.
func spareDaemon(t *testing.T, change func(*settings.Config)) (d *daemon, notes string, letDiscard func()) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(device.MPSVariable, dir) // no service is there, whatever the machine runs
	notes, gate := filepath.Join(dir, "notes"), filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open.Close() })
	cfg := testConfig()
	cfg.Devices, cfg.Spare, cfg.Warm = cfg.Devices[:1], 1, 0
	if change != nil {
		change(&cfg)
	}
	opts := testOptions()
	opts.Open = openCostly
	opts.WorkerCommand = slices.Insert(workerCommand("costly worker"), 1, "MUSTER_TEST_NOTES="+notes, "MUSTER_TEST_DISCARD="+gate)
	letDiscard = func() {
		if _, err := open.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	return begun(t, cfg, opts), notes, letDiscard
}

// onlySpare waits until a worker waits with a context, and keeps the node from starting others.
func onlySpare(t *testing.T, d *daemon) (s *spares.Spare) {
	t.Helper()
	d.loop.Do(func() {}) // the loop looks for what is missing after an event
	eventually(t, "a worker waits with a context", func() bool {
		d.loop.Ask(func() {
			for only := range d.spares.All() {
				if only.Worker != nil {
					s = only
					d.spares.Rest(0, d.loop.Now()+time.Hour)
				}
			}
		})
		return s != nil
	})
	return s
}

// joins connects a program to a daemon without a socket.
func joins(t *testing.T, d *daemon) *program {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
	}
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		defer ends[0].Close()
		d.entrance.handle(ends[0], false)
	}()
	p := &program{conn: ends[1]}
	t.Cleanup(func() { p.leave(); <-handled })
	if err := p.setUp(hello(), 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// freeOn is what the dispatcher may give of the device.
func freeOn(d *daemon) (free uint64) {
	d.loop.Ask(func() {
		v, _ := d.dispatcher.Device(0)
		free = v.Free
	})
	return free
}

// admitted is a client that has no worker yet, and ends with the test.
func admitted(t *testing.T, d *daemon) *client {
	t.Helper()
	c := &client{peer: socket.Peer{User: d.rights.Own}, allowance: allowance{weight: 1}, arena: shown.ArenaOf(0, 0), holding: nowhere(vgpu.AnyDevice), gone: make(chan struct{})}
	if err := d.admit(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.entrance.detach(c); <-c.gone })
	return c
}

// takeAlmostAll uses all memory of the device, beside one context.
func takeAlmostAll(p *program, image []byte) error {
	size := uint64(256<<20 - costOfContext)
	launch := &wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: make([]byte, 28)}
	return errors.Join(
		p.do(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: size}, nil, true),
		p.do(&wire.Fill{Dst: p.attached.ArenaBase, Width: 1, Count: size, Height: 1}, nil, false),
		p.load(image, "vecadd"), p.do(launch, nil, false), p.do(&wire.Synchronise{}, nil, true),
	)
}

// A client that wants a device while its worker gives the context back, or because it is not granted
// the spare's, does not make that memory free: it is when the context is closed.
func TestAContextCountsUntilItIsClosed(t *testing.T) {
	image := vecadd(t)
	for name, revoked := range map[string]bool{"it has to wait": false, "others need the memory": true} {
		t.Run(name, func(t *testing.T) {
			d, notes, letDiscard := spareDaemon(t, func(c *settings.Config) { c.VGPUs, c.MaxIdle, c.Quantum = 1, 0, 0 })
			s := onlySpare(t, d)
			first, second := joins(t, d), joins(t, d)
			var c *client
			w := s.Worker
			d.loop.Ask(func() { c = d.clients[vgpu.ClientID(first.attached.Client)] })
			if c == nil || c.spare != s {
				t.Fatalf("the spare has %+v", c)
			}
			addVectors(t, second) // it has the only slot now
			free := freeOn(d)
			var closed atomic.Bool
			grows := make(chan error, 1)
			grow := func() {
				err := takeAlmostAll(second, image)
				if err == nil && !closed.Load() {
					err = errors.New("it was granted memory that a context takes")
				}
				grows <- err
			}
			waits := make(chan error, 1)
			if revoked {
				go grow()
			} else {
				go func() { waits <- first.add(image) }()
			}
			eventually(t, "the context is being closed", func() bool { return slices.Contains(noted(t, notes), fmt.Sprint("discarding ", w.PID())) })
			if revoked { // what the client wants has crossed the order to its worker
				d.loop.Ask(func() { d.message(c, control.Want{Pinned: -1}) })
				close(waits)
			} else {
				if now := freeOn(d); now != free {
					t.Errorf("%d bytes are free, and %d were before the client wanted a device", now, free)
				}
				go grow()
			}
			eventually(t, "the other waits for the memory", func() (is bool) {
				d.loop.Ask(func() {
					v, _ := d.dispatcher.Client(vgpu.ClientID(second.attached.Client))
					is = v.Growing
				})
				return is || len(grows) > 0
			})
			closed.Store(true)
			letDiscard()
			if err := <-grows; err != nil {
				t.Error(err)
			}
			second.leave()
			if err := <-waits; err != nil {
				t.Error(err)
			}
		})
	}
}

// A spare that dies just before a client is given it has its files still: the client gets them, and
// another worker.
func TestASpareDiesWhileItIsTaken(t *testing.T) {
	d, _, _ := spareDaemon(t, nil)
	s := onlySpare(t, d)
	c := admitted(t, d)
	dead := s.Worker
	release, blocked := make(chan struct{}), make(chan struct{})
	d.loop.Do(func() { close(blocked); <-release })
	<-blocked
	found := make(chan *spares.Spare, 1)
	go func() { found <- d.staff.takeSpare(c) }()
	eventually(t, "a client asks", func() bool { return d.loop.Waiting() == 1 })
	dead.Kill()
	<-dead.Exited
	eventually(t, "the end is to be told", func() bool { return d.loop.Waiting() == 2 })
	close(release)
	if got := <-found; got != s {
		t.Fatalf("it was given %+v", got)
	}
	defer held.Close(s.Files)
	for _, f := range s.Files {
		if _, err := f.File.Stat(); err != nil {
			t.Error(err)
		}
	}
	w, _, err := d.staff.employWith(c, d.staff.serveOf(c), s.Files, nil, s)
	if err != nil {
		t.Fatal(err)
	}
	d.staff.pool.Dismiss(w)
	if now := freeOn(d); now != 256<<20 {
		t.Errorf("%d bytes are free", now)
	}
}

// A spare whose terms are no longer those of its client is gone, and its memory free.
func TestASpareThatIsTurnedDown(t *testing.T) {
	d, _, _ := spareDaemon(t, nil)
	s := onlySpare(t, d)
	c := admitted(t, d)
	if got := d.staff.takeSpare(c); got != s {
		t.Fatalf("it was given %+v", got)
	}
	defer held.Close(s.Files)
	s.Terms.Restarts++
	w, _, err := d.staff.employWith(c, d.staff.serveOf(c), s.Files, nil, s)
	if err != nil {
		t.Fatal(err)
	}
	defer d.staff.pool.Dismiss(w)
	if w == s.Worker {
		t.Error("the spare serves the client")
	}
	if now := freeOn(d); now != 256<<20 {
		t.Errorf("%d bytes are free", now)
	}
}

// If a client cannot be set up, the process of its spare is gone before the memory is free.
func TestASpareOfARefusedClient(t *testing.T) {
	d, _, _ := spareDaemon(t, nil)
	s := onlySpare(t, d)
	w := s.Worker
	for _, f := range s.Files {
		f.File.Close() // so that they cannot be mapped
	}
	c := &client{peer: socket.Peer{User: d.rights.Own}, allowance: allowance{weight: 1}, arena: shown.ArenaOf(0, 0), holding: nowhere(vgpu.AnyDevice), gone: make(chan struct{})}
	if _, err := d.entrance.provide(c, true); err == nil {
		t.Fatal("it was set up")
	}
	select {
	case <-w.Exited:
	default:
		t.Error("the process is there still")
	}
	<-c.gone
	if now := freeOn(d); now != 256<<20 {
		t.Errorf("%d bytes are free", now)
	}
}

// While a node drains it has nothing to look for.
func TestADrainingNodeRests(t *testing.T) {
	cfg, opts := testConfig(), testOptions()
	cfg.Spare = 1
	now := time.Now()
	opts.Now = func() time.Time { return now }
	d, err := newDaemon(cfg, opts)
	if err == nil {
		err = d.equip(&survival.Left{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.stock.CloseLocks()
	d.ending.drain()
	d.spares.Tend(cfg.Spare, d.loop.Draining(), d.stock.Load())
	if at, ok := loop.First(d.alarms(nil)); ok && at <= d.loop.Now() {
		t.Errorf("the loop wakes at %v, and it is %v", at, d.loop.Now())
	}
}

// A worker that was prepared has the rights, limits and environment of any other, also one that
// serves another user.
func TestAPreparedWorkerIsAsAFreshOne(t *testing.T) {
	const stranger = 12345
	users := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		users = append(users, stranger)
	}
	for _, user := range users {
		var pictures [2]map[string]string
		for i, spares := range []settings.Spares{1, settings.SparesOff} {
			f, notes := spareNode(t, func(c *settings.Config) { c.Spare, c.Warm = spares, 0 })
			if spares > 0 {
				awaitSpare(t, f)
			}
			var p *program
			var err error
			enter := func() { p, err = connect(f.socket, hello(), 0) }
			if user == os.Geteuid() {
				enter()
			} else {
				asUser(t, user, enter)
			}
			if err != nil {
				t.Fatal(err)
			}
			addVectors(t, p)
			s := statusOf(t, f)
			pictures[i] = rightsOf(t, s.Clients[0].Worker, stranger)
			if prepared := strings.HasPrefix(noted(t, notes)[0], fmt.Sprint("prepared ", s.Clients[0].Worker)); prepared != (spares > 0) {
				t.Errorf("with %v spares the worker was prepared: %v", spares, prepared)
			}
			p.leave()
		}
		for name, fresh := range pictures[1] {
			if has := pictures[0][name]; has != fresh {
				t.Errorf("user %d: %s: a fresh worker has %q, one that was prepared %q", user, name, fresh, has)
			}
		}
	}
}

// rightsOf is what the system says that a process may do. User numbers of workers' own, which differ,
// are told from those of root and of the given user.
func rightsOf(t *testing.T, pid, user int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"status", "limits", "cgroup", "oom_score_adj", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		if name != "status" {
			all[name] = string(text)
			continue
		}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if slices.Contains([]string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Umask", "SigIgn", "SigBlk"}, key) {
				all[key] = strings.Join(strings.Fields(value), " ")
			}
			if key == "Uid" {
				numbers := strings.Fields(value)
				for i, n := range numbers {
					if n != "0" && n != fmt.Sprint(user) && n != fmt.Sprint(os.Geteuid()) {
						numbers[i] = "its own"
					}
				}
				all[key] = strings.Join(numbers, " ")
			}
		}
	}
	all["environ"] = strings.Join(slices.DeleteFunc(strings.Split(all["environ"], "\x00"), func(s string) bool { return strings.HasPrefix(s, "MUSTER_TEST_NOTES=") }), " ")
	return all
}

// A worker that is killed while it waits is replaced, and one that a program would have got is not
// missed.
func TestAKilledSpareIsReplaced(t *testing.T) {
	f, notes := spareNode(t, nil)
	awaitSpare(t, f)
	var pid int
	if _, err := fmt.Sscanf(noted(t, notes)[0], "prepared %d", &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	addVectors(t, mustConnect(t, f))
	eventually(t, "another waits", func() bool { // perhaps since before the program's own worker opened the device
		another := func(note string) bool {
			return strings.HasPrefix(note, "prepared") && note != fmt.Sprint("prepared ", pid)
		}
		return slices.ContainsFunc(noted(t, notes), another) && statusOf(t, f).Devices[0].Spares == 1
	})
}

// The memory of a spare is a program's as soon as that needs it, and the process is gone.
func TestASpareMakesRoom(t *testing.T) {
	f, notes := spareNode(t, nil)
	awaitSpare(t, f)
	p := mustConnect(t, f) // has the first spare
	addVectors(t, p)
	awaitSpare(t, f)
	if err := takeAlmostAll(p, vecadd(t)); err != nil {
		t.Fatal(err)
	}
	s := statusOf(t, f)
	if s.Devices[0].Spares != 0 || s.Devices[0].Free != 0 || len(s.Clients) != 1 || s.Clients[0].State != "assigned" {
		t.Errorf("%+v, %+v", s.Devices[0], s.Clients)
	}
	all := noted(t, notes)
	var pid int
	if _, err := fmt.Sscanf(all[len(all)-1], "prepared %d", &pid); err != nil {
		t.Fatal(err, all)
	}
	eventually(t, "the process of the spare is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// A device that is drained, and a node that ends, have no spares left.
func TestNoSpareIsLeft(t *testing.T) {
	f, notes := spareNode(t, nil)
	awaitSpare(t, f)
	var pid int
	if _, err := fmt.Sscanf(noted(t, notes)[0], "prepared %d", &pid); err != nil {
		t.Fatal(err)
	}
	if _, err := ask.DrainDevice(f.socket, "#0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is drained", func() bool { return statusOf(t, f).Devices[0].State == "drained" })
	if syscall.Kill(pid, 0) != syscall.ESRCH {
		t.Error("its spare still runs")
	}
	g, notes := spareNode(t, nil)
	awaitSpare(t, g)
	if _, err := fmt.Sscanf(noted(t, notes)[0], "prepared %d", &pid); err != nil {
		t.Fatal(err)
	}
	g.stop()
	if err := <-g.done; err != nil {
		t.Error(err)
	}
	g.done <- nil // for the fixture
	if syscall.Kill(pid, 0) != syscall.ESRCH {
		t.Error("the spare outlives its node")
	}
}
