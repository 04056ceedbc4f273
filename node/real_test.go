package node

import (
	"encoding/binary"
	"log/slog"
	"math"
	"os"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/node/worker"
	"muster/wire"
	"muster/wire/control"
)

// realWorker is the worker that muster worker is.
func realWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		turns, err := worker.NewTurns(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Workers: c.Workers}, soft.Options{Turns: turns})
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// A kernel's way through daemon, worker and device, with a program of Go's.
func TestKernelRuns(t *testing.T) {
	cfg := testConfig()
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(t, cfg, opts)
	for range 2 { // the second on a worker that was kept warm
		p := mustConnect(t, f)
		addVectors(t, p)
		if s := statusOf(t, f); len(s.Clients) != 1 || s.Clients[0].State != "assigned" || s.Clients[0].Waits != 1 {
			t.Errorf("%+v", s.Clients)
		}
		p.leave()
		eventually(t, "the client is forgotten", func() bool { return len(statusOf(t, f).Clients) == 0 })
	}
}

func addVectors(t *testing.T, p *program) {
	t.Helper()
	image, err := os.ReadFile("../ptx/testdata/kernels/vecadd.nvcc90.ptx")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	base := p.attached.ArenaBase
	a, b, c := base, base+8192, base+2*8192
	var ones, counts []byte
	for i := range n {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
		counts = binary.LittleEndian.AppendUint32(counts, math.Float32bits(float32(i)))
	}
	call := func(m wire.Message, reply interface{ Decode([]byte) error }) {
		t.Helper()
		if result, err := p.Call(m, reply); err != nil || result != 0 {
			t.Fatalf("%v: %d, %v", m.Op(), result, err)
		}
	}
	send := func(m wire.Message, data []byte) {
		t.Helper()
		var err error
		if data == nil {
			err = p.Post(m)
		} else {
			err = p.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data)
		}
		if err != nil {
			t.Fatal(m.Op(), err)
		}
	}
	call(&wire.MemAlloc{Addr: a, Size: 3 * 8192}, nil)
	send(&wire.CopyIn{Dst: a}, ones)
	send(&wire.CopyIn{Dst: b}, counts)
	send(&wire.ModuleData{Module: 1}, image)
	call(&wire.ModuleLoad{Module: 1}, nil)
	at := p.shared.Geometry().Staging // the first bounce buffer
	fetch := func(m wire.Message, size uint64) {
		t.Helper()
		pending, err := p.Start(wire.Header{Op: m.Op(), Data: at, Length: size}, m.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if result, _, err := pending.Wait(); err != nil || result != 0 {
			t.Fatalf("%v: %d, %v", m.Op(), result, err)
		}
	}
	fetch(&wire.ModuleFunction{Module: 1, Function: 1, Name: "vecadd"}, 1024)
	var params []byte
	for _, v := range []uint64{a, b, c} {
		params = binary.LittleEndian.AppendUint64(params, v)
	}
	params = binary.LittleEndian.AppendUint32(params, n)
	send(&wire.Launch{Function: 1, GridX: 4, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params}, nil)

	fetch(&wire.CopyOut{Src: c}, 4*n)
	got, err := p.shared.Data(at, 4*n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(i+1) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}
