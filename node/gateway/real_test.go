package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node"
	"muster/node/ask"
	"muster/node/settings"
	"muster/node/worker"
	"muster/node/worker/turnlock"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/control"
)

const processVariable = "MUSTER_GATEWAY_TEST_PROCESS"

// Workers and other processes of these tests are this very binary.
func TestMain(m *testing.M) {
	words := strings.Fields(os.Getenv(processVariable))
	if len(words) == 0 {
		os.Exit(m.Run())
	}
	if err := processes[words[0]](words[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var processes = map[string]func(args []string) error{"worker": runWorker, "daemon": runDaemon, "gateway": runGateway, "relay": runRelay, "tls": runTLS}

func runWorker([]string) error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		turn, err := turnlock.New(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(profile(c), soft.Options{Turns: turn})
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return worker.Main(os.NewFile(3, "control"), open, log)
}

func profile(c control.DeviceConfig) soft.Profile {
	return soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Workers: c.Workers}
}

// startNode starts a real daemon with a software GPU.
func startNode(t *testing.T, limits settings.Limits) (socket string) {
	t.Helper()
	cfg := settings.Default()
	cfg.Limits = limits
	cfg.Name, cfg.Socket.Address, cfg.Swap.Size, cfg.Grace = "test", newSocket(), 1<<36, time.Second
	cfg.Devices = []settings.Device{{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "GPU", Memory: 64 << 20, Speed: 1, Workers: 1}}}
	ready := make(chan struct{})
	opts := node.Options{
		Open:          func(c control.DeviceConfig) (device.Device, error) { return soft.New(profile(c), soft.Options{}) },
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
		t.Fatal("the node did not come up")
	}
	return cfg.Socket.Address
}

// The daemon knows users by the names in their certificates.
func TestUsersHaveNames(t *testing.T) {
	limits := settings.Default().Limits
	limits.Users = map[string]settings.UserLimits{"ada": {Clients: 1}}
	socket := startNode(t, limits)
	w := &world{dir: certificates(t), socket: newSocket()}
	w.connect(t, socket, nil)
	s, err := client.Attach(w.socket, client.Hello("test", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	status, err := ask.Status(socket)
	if err != nil || len(status.Clients) != 1 || status.Clients[0].User != "ada" || !strings.HasPrefix(status.Clients[0].Address, "127.0.0.1:") {
		t.Errorf("%+v, %v", status, err)
	}
	_, err = client.Attach(w.socket, client.Hello("test", 0), 0)
	if want := "1 program of user ada uses this node already, as many as limits.clients allows: wait for one to end, or ask the administrator to raise it"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	// Programs of this machine are someone else.
	local, err := client.Attach(socket, client.Hello("test", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	if status, err = ask.Status(socket); err != nil || len(status.Clients) != 2 || status.Clients[1].Address != "" {
		t.Errorf("%+v, %v", status, err)
	}
}

// The same as with the test's worker, with the real one.
func TestRemoteIsLikeTheRingOfARealNode(t *testing.T) {
	socket := startNode(t, settings.Default().Limits)
	w := &world{dir: certificates(t), socket: newSocket()}
	w.connect(t, socket, nil)
	sameResults(t, socket, w.socket, 3)
}

// A kernel's way from a program here to a device there, and its results back.
func TestKernelRunsElsewhere(t *testing.T) {
	w := &world{dir: certificates(t), socket: newSocket()}
	w.connect(t, startNode(t, settings.Default().Limits), nil)
	s, err := client.Attach(w.socket, client.Hello("test", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	image, err := os.ReadFile("../../ptx/testdata/kernels/vecadd.nvcc90.ptx")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	base, p := s.Attached.ArenaBase, s.Producer
	call := func(m wire.Message, reply interface{ Decode([]byte) error }) {
		t.Helper()
		if result, err := p.Call(m, reply); err != nil || result != 0 {
			t.Fatalf("%v: %d, %v", m.Op(), result, err)
		}
	}
	send := func(m wire.Message, data []byte) {
		t.Helper()
		if err := p.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data); err != nil {
			t.Fatal(err)
		}
	}
	var ones, counts []byte
	for i := range n {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
		counts = binary.LittleEndian.AppendUint32(counts, math.Float32bits(float32(i)))
	}
	call(&wire.MemAlloc{Addr: base, Size: 3 * 8192}, nil)
	send(&wire.CopyIn{Dst: base}, ones)
	send(&wire.CopyIn{Dst: base + 8192}, counts)
	send(&wire.ModuleData{Module: 1}, image)
	call(&wire.ModuleLoad{Module: 1}, &wire.ModuleLoadReply{})
	bounce := s.Shared.Geometry().Staging
	give := func(m wire.Message, length uint64) []byte {
		t.Helper()
		pending, err := p.Start(wire.Header{Op: m.Op(), Data: bounce, Length: length}, m.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if result, _, err := pending.Wait(); err != nil || result != 0 {
			t.Fatalf("%v: %d, %v", m.Op(), result, err)
		}
		data, err := s.Shared.Data(bounce, length)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const name = "vecadd"
	give(&wire.ModuleFunction{Module: 1, Function: 7, Name: name}, wire.BounceBuffer)
	params := binary.LittleEndian.AppendUint64(nil, base)
	params = binary.LittleEndian.AppendUint64(params, base+8192)
	params = binary.LittleEndian.AppendUint64(params, base+2*8192)
	params = binary.LittleEndian.AppendUint32(params, n)
	if err := p.Post(&wire.Launch{Function: 7, GridX: 8, GridY: 1, GridZ: 1, BlockX: 128, BlockY: 1, BlockZ: 1, Params: params}); err != nil {
		t.Fatal(err)
	}
	got := give(&wire.CopyOut{Src: base + 2*8192}, 4*n)
	for i := range n {
		if sum := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); sum != float32(i)+1 {
			t.Fatalf("element %d is %v", i, sum)
		}
	}
}
