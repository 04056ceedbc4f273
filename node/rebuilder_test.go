package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/device"
	"muster/internal/seeds"
	"muster/node/inventory"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/stock"
	"muster/node/worker"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
)

// accumulator is a program that adds a vector to another again and again, on the
// device, and knows what the sum must be.
type accumulator struct {
	*program
	sum, step, scratch uint64
	n                  int
	rounds             int
}

func newAccumulator(t *testing.T, p *program, n int) *accumulator {
	t.Helper()
	a := &accumulator{program: p, n: n}
	if err := p.load(vecadd(t), "vecadd"); err != nil {
		t.Fatal(err)
	}
	size := uint64(4 * n)
	base := p.attached.ArenaBase
	a.sum, a.step, a.scratch = base, base+size, base+2*size
	ones := make([]byte, size)
	for i := range n {
		binary.LittleEndian.PutUint32(ones[4*i:], math.Float32bits(1))
	}
	for _, at := range []uint64{a.sum, a.step, a.scratch} {
		if err := p.do(&wire.MemAlloc{Addr: at, Size: size}, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.send(&wire.CopyIn{Dst: a.step}, ones); err != nil {
		t.Fatal(err)
	}
	if err := p.do(&wire.Fill{Dst: a.sum, Pitch: size, Width: 4, Count: uint64(n), Height: 1}, nil, false); err != nil {
		t.Fatal(err)
	}
	return a
}

// send sends data in pieces.
func (a *accumulator) send(m *wire.CopyIn, data []byte) error {
	for at := 0; at < len(data); at += 1 << 20 {
		piece := data[at:min(at+1<<20, len(data))]
		if err := a.do(&wire.CopyIn{Dst: m.Dst + uint64(at)}, piece, false); err != nil {
			return err
		}
	}
	return nil
}

// round adds once.
func (a *accumulator) round() error {
	params := binary.LittleEndian.AppendUint64(nil, a.sum)
	params = binary.LittleEndian.AppendUint64(params, a.step)
	params = binary.LittleEndian.AppendUint64(params, a.scratch)
	params = binary.LittleEndian.AppendUint32(params, uint32(a.n))
	a.rounds++
	if err := a.Post(&wire.Launch{Function: 1, GridX: uint32(a.n+255) / 256, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params}); err != nil {
		return err
	}
	return a.Post(&wire.CopyWithin{Dst: a.sum, Src: a.scratch, Size: uint64(4 * a.n)})
}

// check compares the sum with what it must be.
func (a *accumulator) check() error {
	for at := 0; at < a.n; at += 1 << 18 {
		n := min(1<<18, a.n-at)
		got, err := a.fetch(&wire.CopyOut{Src: a.sum + uint64(4*at)}, uint64(4*n))
		if err != nil {
			return err
		}
		for i := range n {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(a.rounds) {
				return fmt.Errorf("after %d rounds element %d is %v", a.rounds, at+i, v)
			}
		}
	}
	return nil
}

// theWorker is the process that serves the one client of this process's node.
func theWorker(t *testing.T) int {
	t.Helper()
	pid := 0
	eventually(t, "the client has a worker", func() bool {
		for _, child := range childrenOf(os.Getpid()) {
			if isWorker(child) && len(sharedMemory(child)) == 2 {
				pid, _ = strconv.Atoi(child)
			}
		}
		return pid != 0
	})
	return pid
}

// A program whose worker is killed, again and again and at any moment, is not told and
// comes to the right result.
func TestProgramsOutliveTheirWorkers(t *testing.T) {
	seed, _ := seeds.First(t)
	chance := rand.New(rand.NewPCG(seed, 0))
	cfg, opts := testConfig(), testOptions()
	cfg.Recover = true
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(t, cfg, opts)
	p := mustConnect(t, f)
	defer p.leave()
	a := newAccumulator(t, p, 50_000)
	kills := 6
	for range kills {
		for range chance.IntN(20) {
			if err := a.round(); err != nil {
				t.Fatal(err)
			}
		}
		if chance.IntN(2) == 0 {
			if err := a.check(); err != nil {
				t.Fatal(err)
			}
		}
		for { // what was seen may be the last one, which ends just now
			err := syscall.Kill(theWorker(t), syscall.SIGKILL)
			if err == nil {
				break
			}
			if err != syscall.ESRCH {
				t.Fatal(err)
			}
		}
		if chance.IntN(2) == 0 {
			if err := a.check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	s := statusOf(t, f)
	if len(s.Clients) != 1 || s.Clients[0].Rebuilds == 0 {
		t.Errorf("%+v", s.Clients)
	}
}

// A worker that is stopped is killed after a time, and its client goes on in another.
func TestStoppedWorkerIsReplaced(t *testing.T) {
	cfg, opts := testConfig(), testOptions()
	cfg.Recover, cfg.WorkerTimeout = true, settings.MinWorkerTimeout
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(t, cfg, opts)
	p := mustConnect(t, f)
	defer p.leave()
	a := newAccumulator(t, p, 1000)
	for range 3 {
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(theWorker(t), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := a.round(); err != nil {
		t.Fatal(err)
	}
	if err := a.check(); err != nil {
		t.Error(err)
	}
}

// fatalWorker is a worker that its client's kernels end: each runs to its end first, so
// that whoever rebuilds the client has long said so.
func fatalWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		d, err := openSoft(c)
		return fatalDevice{d}, err
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

type fatalDevice struct{ device.Device }

// Can hides what takes the context that is wrapped.
func (fatalDevice) Can() *device.DeviceCan { return &device.DeviceCan{} }

func (d fatalDevice) Open(c device.Config) (device.Context, error) {
	opened, err := d.Device.Open(c)
	return fatalContext{opened}, err
}

type fatalContext struct{ device.Context }

func (c fatalContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return fatalStream{s}, err
}

type fatalStream struct{ device.Stream }

func (s fatalStream) Launch(f device.Function, l device.Launch) error {
	if err := s.Stream.Launch(f, l); err != nil {
		return err
	}
	return s.Stream.Call(func() {
		time.Sleep(20 * time.Millisecond) // as something that takes more and more memory
		os.Exit(3)
	})
}

// A program whose kernels end its workers is rebuilt some times, and then told.
func TestKernelsThatEndTheirWorkers(t *testing.T) {
	cfg, opts := testConfig(), testOptions()
	cfg.Recover = true
	opts.WorkerCommand = workerCommand("fatal worker")
	f := runWith(t, cfg, opts)
	p := mustConnect(t, f)
	defer p.leave()
	a := newAccumulator(t, p, 1000)
	if err := a.round(); err != nil {
		t.Fatal(err)
	}
	within(t, "the program is told", func() error {
		if err := a.check(); err == nil || !strings.Contains(err.Error(), "its worker has ended") {
			return fmt.Errorf("told %v", err)
		}
		return nil
	})
}

// A client that is between two workers when its daemon hands over is the next daemon's.
func TestHandoverBetweenWorkers(t *testing.T) {
	h := newHouse(t)
	h.cfg.Recover, h.cfg.Warm = true, 0
	h.start()
	p := h.connect()
	a := newAccumulator(t, p, 1000)
	for range 3 {
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		before := h.client(1).Rebuilds
		if err := syscall.Kill(h.file(1).Worker.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon knows", func() bool { return h.client(1).Rebuilds > before })
		if err := h.daemon.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		if err := h.daemon.Wait(); err != nil {
			t.Fatal(err)
		}
		h.start()
		h.settled(1)
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// A client whose worker the daemon has just killed is between two workers, though that
// one has not ended yet: a daemon that hands over waits for the next.
func TestBetweenWorkers(t *testing.T) {
	start, ok := proc.Start(os.Getpid())
	if !ok {
		t.Fatal("this process is not there")
	}
	running := workers.Fake(os.Getpid(), start)
	for name, c := range map[string]struct {
		client
		want bool
	}{
		"served":           {client{worker: running}, false},
		"killed":           {client{worker: running, recovery: recovery{why: "it has not answered"}}, true},
		"ended":            {client{worker: workers.Fake(os.Getpid(), start+1)}, true},
		"without a worker": {client{recovery: recovery{between: true}}, true},
		"about to end":     {client{ending: true, recovery: recovery{between: true}}, false},
	} {
		c.kept = []control.Held{}
		if got := c.isBetween(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// lateWorker is a worker that takes its time while there is a file: it has been given its
// client, and is not ready. It says so with another file, by the name that the first says:
// it may come too late to be meant.
func lateWorker() error {
	gate := os.Getenv("MUSTER_TEST_GATE")
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		for name, err := os.ReadFile(gate); err == nil; name, err = os.ReadFile(gate) {
			if err := os.WriteFile(gate+".reached"+string(name), nil, 0o600); err != nil {
				return nil, err
			}
			time.Sleep(time.Millisecond)
		}
		return openSoft(c)
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// A worker that was given a client to rebuild outlives the daemon from then on, though it
// is not ready, and the daemon has not heard of it.
func TestDaemonIsKilledWhileAClientIsRebuilt(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	h := newHouse(t)
	h.cfg.Recover, h.worker, h.environment = true, "late worker", []string{"MUSTER_TEST_GATE=" + gate}
	h.start()
	p := h.connect()
	a := newAccumulator(t, p, 1000)
	for round := range 3 {
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(round)
		if err := os.WriteFile(gate+".new", []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(gate+".new", gate); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(h.file(1).Worker.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another worker has the client", func() bool { return os.Remove(gate+".reached"+name) == nil })
		h.kill()
		if err := os.Remove(gate); err != nil {
			t.Fatal(err)
		}
		h.start()
		h.settled(1)
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// lossyWorker is a worker that loses its device with the launch that takes a file away,
// and cannot open it while there is another one.
func lossyWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		d, err := openSoft(c)
		return lossyDevice{d}, err
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

type lossyDevice struct{ device.Device }

func (lossyDevice) Can() *device.DeviceCan { return &device.DeviceCan{} }

func (d lossyDevice) Open(c device.Config) (device.Context, error) {
	if _, err := os.Stat(os.Getenv("MUSTER_TEST_GATE") + ".gone"); err == nil {
		return nil, &device.Fault{Kind: device.DeviceLost}
	}
	opened, err := d.Device.Open(c)
	return lossyContext{opened}, err
}

type lossyContext struct{ device.Context }

func (c lossyContext) NewStream() (device.Stream, error) {
	s, err := c.Context.NewStream()
	return lossyStream{s}, err
}

type lossyStream struct{ device.Stream }

func (s lossyStream) Launch(f device.Function, l device.Launch) error {
	if os.Remove(os.Getenv("MUSTER_TEST_GATE")) == nil {
		return &device.Fault{Kind: device.DeviceLost}
	}
	return s.Stream.Launch(f, l)
}

// A worker that loses its device while there is no daemon, or one that does not hear, waits
// for the next: nobody else has what its client is made of.
func TestDeviceIsLostWithoutDaemon(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	h := newHouse(t)
	h.cfg.Recover, h.worker, h.environment = true, "lossy worker", []string{"MUSTER_TEST_GATE=" + gate}
	h.start()
	p := h.connect()
	a := newAccumulator(t, p, 1000)
	for rebuilds := range uint64(4) {
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		if stops := rebuilds%2 == 0; stops { // what it is told is not heard
			stopProcess(t, h.daemon.Process.Pid)
		} else {
			h.kill()
		}
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.round(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the device is lost", func() bool { _, err := os.Stat(gate); return err != nil })
		if rebuilds%2 == 0 {
			h.kill()
		}
		h.start()
		eventually(t, "the client is rebuilt", func() bool { return h.client(1).Rebuilds == rebuilds+1 })
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// A device is lost for a client whose worker is stopped, and the daemon is replaced before
// the worker hears of it. It comes to the next daemon with a lease that the client does
// not have any more, and the client is rebuilt.
func TestDeviceIsLostForAStoppedWorker(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	h := newHouse(t)
	h.cfg.Recover, h.worker, h.environment = true, "lossy worker", []string{"MUSTER_TEST_GATE=" + gate}
	h.cfg.Devices = h.cfg.Devices[:1]
	h.start()
	p, q := h.connect(), h.connect()
	a, b := newAccumulator(t, p, 1000), newAccumulator(t, q, 1000)
	for _, each := range []*accumulator{a, b} {
		if err := errors.Join(each.round(), each.check()); err != nil {
			t.Fatal(err)
		}
	}
	stopped := h.file(1).Worker.Pid
	stopProcess(t, stopped)
	if err := errors.Join(os.WriteFile(gate+".gone", nil, 0o600), os.WriteFile(gate, nil, 0o600), b.round()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is lost", func() bool { return h.status().Devices[0].Lost })
	h.kill()
	if err := os.Remove(gate + ".gone"); err != nil {
		t.Fatal(err)
	}
	h.start()
	_ = syscall.Kill(stopped, syscall.SIGCONT)
	if err := errors.Join(a.round(), a.check()); err != nil {
		t.Error(err)
	}
}

// A program is served whose worker is killed when it has been told of its memory and
// has not used it, and before.
func TestWorkersAreKilledEarly(t *testing.T) {
	h := newHouse(t)
	h.cfg.Recover = true
	h.start()
	for range 5 {
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for kills := 0; kills < 2; { // three that never are ready are enough to refuse the program
				select {
				case <-stop:
					return
				default:
				}
				for _, pid := range childrenOf(h.daemon.Process.Pid) {
					if n, _ := strconv.Atoi(pid); kills < 2 && isWorker(pid) && len(sharedMemory(pid)) > 0 && syscall.Kill(n, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		}()
		p := h.connect()
		addVectors(t, p)
		close(stop)
		<-done
		p.leave()
		eventually(t, "it is forgotten", func() bool { return len(h.status().Clients) == 0 })
	}
}

// Rebuilds of a client that comes farther each time are put off when they are many.
func TestPace(t *testing.T) {
	var p pace
	now := time.Duration(0)
	for i := range restless {
		if rest := p.rest(now); rest != 0 {
			t.Fatalf("rebuild %d is put off by %v", i, rest)
		}
	}
	for i := range 1000 {
		rest := p.rest(now)
		if rest <= 0 || rest > restTime {
			t.Fatalf("rebuild %d is put off by %v", i, rest)
		}
		now += rest
	}
	if now < 999*restTime {
		t.Errorf("1000 rebuilds in %v", now)
	}
	if rest := p.rest(now + time.Hour); rest != 0 {
		t.Errorf("after an hour one is put off by %v", rest)
	}
}

// A client is rebuilt though the machine has nothing to start a worker with at first.
func TestRebuildsWaitForDescriptors(t *testing.T) {
	var log logbook
	cfg, opts := testConfig(), testOptions()
	cfg.Recover, cfg.Warm = true, 0
	opts.WorkerCommand, opts.Log = workerCommand("real worker"), log.logger()
	f := runWith(t, cfg, opts)
	p := mustConnect(t, f)
	defer p.leave()
	a := newAccumulator(t, p, 1000)
	if err := a.round(); err != nil {
		t.Fatal(err)
	}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	pid := theWorker(t)
	none := syscall.Rlimit{Cur: 3, Max: limit.Max} // which are taken
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restore := sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon knows what is lacking", func() bool {
		return slices.ContainsFunc(log.entries(t), func(e entry) bool {
			return strings.Contains(e.Msg, "waits for another worker") || strings.Contains(e.Msg, "is ended")
		})
	})
	restore()
	if err := a.check(); err != nil {
		t.Error(err)
	}
}

// A client is rebuilt that had room in the swap area meanwhile which another has now.
func TestRebuiltThoughOthersHaveItsRoom(t *testing.T) {
	cfg, opts := testConfig(), testOptions()
	cfg.Recover, cfg.Swap.Size = true, 200<<20
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(t, cfg, opts)
	p, other := mustConnect(t, f), mustConnect(t, f)
	a := newAccumulator(t, p, 1000)
	if err := a.round(); err != nil {
		t.Fatal(err)
	}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	const size = 150 << 20
	at := p.attached.ArenaBase + 16<<20
	if err := p.do(&wire.MemAlloc{Addr: at, Size: size}, nil, true); err != nil {
		t.Fatal(err)
	}
	if err := p.do(&wire.MemFree{Addr: at}, nil, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other has the room", func() bool {
		return other.do(&wire.MemAlloc{Addr: other.attached.ArenaBase, Size: size}, nil, true) == nil
	})
	if err := syscall.Kill(workerOf(t, os.Getpid(), p), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := a.check(); err != nil {
		t.Error(err)
	}
	if err := a.round(); err != nil {
		t.Fatal(err)
	}
	if err := a.check(); err != nil {
		t.Error(err)
	}
}

// A client is not given up because devices are lost under it: only what may be its own
// doing counts.
func TestLostDevicesDoNotCount(t *testing.T) {
	r := &rebuilder{}
	r.stock = stock.New(&inventory.Inventory{Entries: []inventory.Device{{Here: true}, {Here: false}}}, nil, nil, nil, stock.Options{})
	for _, c := range []struct{ blamed, want int }{
		{0, 3}, // it blames nobody
		{1, 3}, // the device is there for others
		{2, 2}, // it is lost
		{3, 3}, // there is no such device
	} {
		it := &client{recovery: recovery{tries: 3}}
		r.excuse(it, c.blamed)
		if it.tries != c.want {
			t.Errorf("blaming %d: %d tries, want %d", c.blamed, it.tries, c.want)
		}
	}
	fresh := &client{}
	r.excuse(fresh, 2)
	if fresh.tries != 0 {
		t.Errorf("%d tries", fresh.tries)
	}
}
