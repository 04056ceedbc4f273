package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/internal/await"
	"muster/internal/confine"
	"muster/node/ask"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// The tests' worker is this very binary.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MUSTER_TEST_PROCESS"); mode != "" {
		if err := testProcess(mode); err != nil {
			fmt.Fprintln(os.Stderr, mode+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func testProcess(mode string) error {
	switch mode {
	case "worker":
		return testWorker()
	case "costly worker":
		return costlyWorker()
	case "real worker":
		return realWorker()
	case "mixed worker":
		return mixedWorker()
	case "fatal worker":
		return fatalWorker()
	case "late worker":
		return lateWorker()
	case "lossy worker":
		return lossyWorker()
	case "lying worker":
		return lyingWorker()
	case "fated worker":
		return fatedWorker()
	case "dying worker":
		return dyingWorker()
	case "prying worker":
		return pryingWorker()
	case "daemon":
		return testDaemon()
	case "client":
		return testClient()
	case "adder":
		return adder()
	case "signal":
		return signalProcess()
	case "asker":
		return asker()
	}
	return fmt.Errorf("no such process")
}

// testWorker answers the protocol without a device: a launch is a want, a
// synchronise is answered when there is a grant.
func testWorker() error {
	conn, err := control.OpenWorkerEnd(os.NewFile(3, "control"))
	if err != nil {
		return err
	}
	first, files, err := conn.Receive()
	if err != nil {
		return nil
	}
	shared, err := wire.Map(files[0], files[1])
	if err != nil {
		return err
	}
	granted := make(chan control.ToWorker, 16)
	var stops atomic.Bool
	var lease atomic.Uint64
	release := func() { _ = conn.Send(control.Released{Lease: lease.Load()}) }
	committed := make(chan bool, 16)
	go func() {
		for {
			said, more, err := conn.Receive()
			if err != nil {
				os.Exit(0)
			}
			switch m := said.(type) {
			case control.Hold:
				tellAttached(m, more[0], files)
			case control.Grant:
				lease.Store(m.Lease)
				granted <- m
			case control.Deny:
				granted <- m
			case control.Revoke:
				if stops.Load() {
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				}
				release()
			case control.RevokeFurther:
				_ = conn.Send(control.ReleasedFurther{Device: m.Device, Loan: m.Loan})
			case control.Watch:
				if stops.Load() {
					_ = conn.Send(control.Idle{For: time.Hour})
				}
			case control.Committed:
				committed <- m.Granted
			case control.Ping:
				_ = conn.Send(control.Pong{Number: m.Number})
			}
		}
	}()
	consumer := wire.NewConsumer(shared)
	allocated := uint64(0)
	for {
		h, body, err := consumer.Next(time.Hour)
		if err != nil {
			shared.Close(err.Error())
			return err
		}
		switch h.Op {
		case wire.OpMemAlloc:
			var m wire.MemAlloc
			if err := m.Decode(body); err != nil {
				return err
			}
			_ = conn.Send(control.Commit{Bytes: allocated + m.Size})
			if !<-committed {
				shared.Reply(h.Slot, refusal.OutOfMemory, nil)
				continue
			}
			allocated += m.Size
			_ = conn.Send(control.Report{Stats: control.Stats{Allocated: allocated}})
			shared.Reply(h.Slot, 0, nil)
		case wire.OpSynchronise:
			_ = conn.Send(control.Want{Memory: allocated, Pinned: -1})
			if _, denied := (<-granted).(control.Deny); denied {
				shared.Reply(h.Slot, 1, nil)
				continue
			}
			_ = conn.Send(control.Ran{Kernels: 3, Busy: 5 * time.Millisecond})
			_ = conn.Send(control.Report{Stats: control.Stats{Allocated: allocated, Resident: allocated, Swaps: first.(control.Serve).Client}})
			shared.Reply(h.Slot, 0, nil)
		case wire.OpSyncPoint:
			release()
		case wire.OpCopyInline: // says to the daemon what the program says
			var m wire.CopyInline
			if err := m.Decode(body); err != nil {
				return err
			}
			if err := syscall.Sendmsg(3, m.Data, nil, nil, 0); err != nil {
				return err
			}
		case wire.OpHostStop: // dies
			os.Exit(3)
		case wire.OpHostDone: // is idle from now on, and stops itself when it is told to leave
			stops.Store(true)
		case wire.OpStreamQuery: // tells its number
			shared.Reply(h.Slot, int32(os.Getpid()), nil)
		case wire.OpStreamDestroy: // writes a lot, and panics
			for i := range 10_000 {
				fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("x", 100))
			}
			panic("the worker's last words")
		}
	}
}

// tellAttached does what a worker owes its program when it is given its connection.
func tellAttached(m control.Hold, connection *os.File, shared []*os.File) {
	if conn, err := net.FileConn(connection); err == nil {
		_ = wire.SendFiles(conn.(*net.UnixConn), m.Attached, shared[0], shared[1])
	}
}

// fixture is a daemon in this process.
type fixture struct {
	socket string
	stop   context.CancelFunc
	kill   chan struct{}
	done   chan error
}

var sockets atomic.Int64

func freshSocket() string {
	return fmt.Sprintf("@muster-test-%d-%d", os.Getpid(), sockets.Add(1))
}

func testConfig() settings.Config {
	cfg := settings.Default()
	cfg.Name = "test"
	cfg.Socket.Address = freshSocket()
	cfg.Swap.Size = 1 << 30
	cfg.Grace = 5 * time.Second
	cfg.OrphanGrace, cfg.Recover = 0, false // whoever wants clients to live on says so
	cfg.Devices = []settings.Device{
		{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "Big", Memory: 256 << 20, Speed: 1, Workers: 1}},
		{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "Small", Memory: 128 << 20, Speed: 0.5, Workers: 1, Index: 1}},
	}
	return cfg
}

func openSoft(c control.DeviceConfig) (device.Device, error) {
	return soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers}, soft.Options{})
}

// workerCommand is this binary as a worker, which does not sleep before it
// exits as the race detector would have it.
func workerCommand(mode string) []string {
	return []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", "MUSTER_TEST_PROCESS=" + mode, os.Args[0]}
}

func testOptions() Options {
	level := slog.LevelError + 1
	if os.Getenv("MUSTER_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return Options{
		Open: openSoft, Now: time.Now,
		// Stand-ins for workers leave notes for their tests.
		Needs:         func(control.DeviceConfig) confine.Rules { return confine.Rules{Write: []string{os.TempDir()}} },
		WorkerCommand: workerCommand("worker"),
		Log:           slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
}

// run starts a daemon and ends it with the test.
func run(t *testing.T, cfg settings.Config) *fixture { return runWith(t, cfg, testOptions()) }

func runWith(t testing.TB, cfg settings.Config, opts Options) *fixture {
	t.Helper()
	ready := make(chan struct{})
	f := &fixture{socket: cfg.Socket.Address, kill: make(chan struct{}), done: make(chan error, 1)}
	opts.Ready, opts.Kill = func() { close(ready) }, f.kill
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() { f.done <- Run(ctx, cfg, opts) }()
	select {
	case <-ready:
	case err := <-f.done:
		t.Fatal("the daemon did not start:", err)
	}
	t.Cleanup(func() {
		select {
		case <-f.kill:
		default:
			close(f.kill)
		}
		stop()
		if err := <-f.done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// program is a client as the library in C is one.
type program struct {
	conn     *net.UnixConn
	welcome  wire.Welcome
	devices  []wire.Device
	attached wire.Attached
	shared   *wire.Shared
	ring     uint64 // the number of the ring's file
	*wire.Producer
}

func hello() *wire.Hello {
	return &wire.Hello{Magic: wire.Magic, Version: wire.Version, Schema: wire.Schema, Program: "test program"}
}

// connect greets the daemon and attaches to a device.
func connect(socket string, h *wire.Hello, ordinal uint32) (*program, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	p := &program{conn: conn}
	if err := p.setUp(h, ordinal); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

func (p *program) setUp(h *wire.Hello, ordinal uint32) error {
	if err := wire.WriteRecord(p.conn, h); err != nil {
		return err
	}
	if err := wire.ReadAs(p.conn, &p.welcome); err != nil {
		return err
	}
	p.devices = make([]wire.Device, p.welcome.Devices)
	for i := range p.devices {
		if err := wire.ReadAs(p.conn, &p.devices[i]); err != nil {
			return err
		}
	}
	if err := wire.WriteRecord(p.conn, &wire.Attach{Device: ordinal, Place: ordinal}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, files, err := wire.ReceiveFiles(p.conn, b)
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err := wire.ReadAs(strings.NewReader(string(b[:n])), &p.attached); err != nil {
		return err
	}
	if len(files) != 2 {
		return fmt.Errorf("%d descriptors came", len(files))
	}
	if p.shared, err = wire.Map(files[0], files[1]); err != nil {
		return err
	}
	info, err := files[0].Stat()
	if err != nil {
		return err
	}
	p.ring = info.Sys().(*syscall.Stat_t).Ino
	p.Producer = wire.NewProducer(p.shared)
	return nil
}

// leave goes without a word, as a program does that is killed.
func (p *program) leave() { p.conn.Close() }

func mustConnect(t *testing.T, f *fixture) *program {
	t.Helper()
	p, err := connect(f.socket, hello(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.leave)
	return p
}

// synchronise has the test worker want a device.
func (p *program) synchronise(t *testing.T) {
	t.Helper()
	if result, err := p.Call(&wire.Synchronise{}, nil); err != nil || result != 0 {
		t.Fatal("synchronise:", result, err)
	}
}

// statusOf asks a daemon as the commands do.
func statusOf(t testing.TB, f *fixture) status.Node {
	t.Helper()
	s, err := ask.Status(f.socket)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

var eventually = await.Until

// testDaemon is a daemon in a process of its own, to be killed.
func testDaemon() error {
	cfg := testConfig()
	if text := os.Getenv("MUSTER_TEST_CONFIG"); text != "" {
		if err := json.Unmarshal([]byte(text), &cfg); err != nil {
			return err
		}
	}
	cfg.Socket.Address = os.Getenv("MUSTER_TEST_SOCKET")
	opts := testOptions()
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		if c.Name == os.Getenv("MUSTER_TEST_UNPLUGGED") {
			return nil, errors.New("it is not plugged in")
		}
		return openSoft(c)
	}
	opts.WorkerCommand = workerCommand(os.Getenv("MUSTER_TEST_WORKER"))
	opts.Ready = func() { fmt.Println("ready") }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handover, leave := make(chan struct{}), make(chan os.Signal, 1)
	opts.Handover = handover
	signal.Notify(leave, syscall.SIGUSR2)
	go func() {
		<-leave
		close(handover)
	}()
	return Run(ctx, cfg, opts)
}

// testClient is a program in a process of its own, to be killed.
func testClient() error {
	p, err := connect(os.Getenv("MUSTER_TEST_SOCKET"), hello(), 0)
	if err != nil {
		return err
	}
	if result, err := p.Call(&wire.Synchronise{}, nil); err != nil || result != 0 {
		return fmt.Errorf("synchronise: %d, %v", result, err)
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process starts this binary in a mode and waits until it is ready.
func process(t *testing.T, mode, socket string, environment ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "MUSTER_TEST_PROCESS="+mode, "MUSTER_TEST_SOCKET="+socket), environment...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, 6)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("%s: %q, %v", mode, line, err)
	}
	return cmd
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
