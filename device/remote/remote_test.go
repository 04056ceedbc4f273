package remote

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"muster/device"
	"muster/device/devicetest"
	"muster/device/soft"
	"muster/node"
	"muster/node/gateway"
	"muster/node/settings"
	"muster/node/worker"
	"muster/node/worker/turnlock"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/control"
)

const processVariable = "MUSTER_REMOTE_TEST_PROCESS"

// Workers of the lender are this very binary.
func TestMain(m *testing.M) {
	if os.Getenv(processVariable) == "" {
		os.Exit(m.Run())
	}
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		turn, err := turnlock.New(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(profile(c), soft.Options{Turns: turn, UUID: [16]byte{1}})
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := worker.Main(os.NewFile(3, "control"), open, log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func profile(c control.DeviceConfig) soft.Profile {
	return soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Workers: c.Workers}
}

const token = "a token of the tests"

var (
	sockets atomic.Int64
	quiet   = slog.New(slog.DiscardHandler)
)

// lender is a real node with its gateway.
type lender struct {
	address string
	socket  string
	stop    func() // closes all connections
}

// newLender starts a real daemon with two software GPUs, and a gateway.
func newLender(t testing.TB, change func(*settings.Config)) *lender {
	t.Helper()
	return lenderBehind(t, change, gateway.Config{Token: token, Plain: true})
}

// lenderBehind starts a real daemon with two software GPUs, and a gateway that lets guests in as it
// is configured.
func lenderBehind(t testing.TB, change func(*settings.Config), door gateway.Config) *lender {
	t.Helper()
	cfg := settings.Default()
	cfg.Name, cfg.Socket.Address = "lender", fmt.Sprintf("@muster-remote-test-%d-%d", time.Now().UnixNano(), sockets.Add(1))
	cfg.Swap.Size, cfg.Grace = 1<<36, time.Second
	for i := range 2 {
		cfg.Devices = append(cfg.Devices, settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: fmt.Sprint("GPU ", i), Memory: 256 << 20, Speed: 1, Workers: 2, Index: i}})
	}
	if change != nil {
		change(&cfg)
	}
	ready := make(chan struct{})
	opts := node.Options{
		Open: func(c control.DeviceConfig) (device.Device, error) {
			return soft.New(profile(c), soft.Options{UUID: [16]byte{1}})
		},
		WorkerCommand: []string{"/usr/bin/env", processVariable + "=worker", os.Args[0]},
		Log:           quiet, Now: time.Now, Ready: func() { close(ready) },
	}
	ended := make(chan struct{})
	background(t, func(ctx context.Context) error {
		defer close(ended)
		return node.Run(ctx, cfg, opts)
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the lender did not come up")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	door.Socket, door.Log = cfg.Socket.Address, quiet
	g, err := gateway.New(listener.(*net.TCPListener), door)
	if err != nil {
		t.Fatal(err)
	}
	l := &lender{address: listener.Addr().String(), socket: cfg.Socket.Address}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	background(t, func(all context.Context) error {
		defer context.AfterFunc(all, stop)()
		g.Serve(ctx)
		return nil
	})
	return l
}

func background(t testing.TB, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// plain is how a lender is reached without TLS.
func plain(address string) client.Remote {
	return client.Remote{Dial: client.PlainDialler(address, wire.PlainStream, token), Lane: client.PlainDialler(address, wire.PlainLane, token)}
}

func (l *lender) open(t testing.TB, number int) *Device {
	t.Helper()
	d, err := Open(t.Context(), Options{Lender: plain(l.address), Device: number})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	l := newLender(t, nil)
	opened := 0
	open := func(t *testing.T) device.Device {
		opened++
		return l.open(t, opened%2)
	}
	devicetest.Run(t, open, devicetest.Options{
		Isolated:       true,
		Stoppable:      true,
		FixedVariables: true,
		ExactMemory:    true,
		Prints:         true,
		Cubin:          readFile(t, "../soft/testdata/cubin.fatbin"),
		Fatbin:         readFile(t, "../soft/testdata/basic.fatbin"),
	})
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
