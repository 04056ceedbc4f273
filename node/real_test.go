package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/node/worker"
	"muster/node/worker/turnlock"
	"muster/wire"
	"muster/wire/control"
)

// realWorker is the worker that muster worker is.
func realWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		if os.Getenv("MUSTER_TEST_BROKEN") != "" {
			return nil, errors.New("it is on fire")
		}
		turn, err := turnlock.New(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, Workers: c.Workers, OwnProcess: c.OwnProcess}, soft.Options{Turns: turn})
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
	if err := p.add(vecadd(t)); err != nil {
		t.Fatal(err)
	}
}

// vecadd is a module with a kernel that adds vectors.
func vecadd(t *testing.T) []byte {
	t.Helper()
	image, err := os.ReadFile("../ptx/testdata/kernels/vecadd.nvcc90.ptx")
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// do sends a message, with data if there are any, or calls.
func (p *program) do(m wire.Message, data []byte, call bool) error {
	if !call && data == nil {
		return p.Post(m)
	}
	if !call {
		return p.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data)
	}
	result, err := p.Call(m, nil)
	if err == nil && result != 0 {
		err = fmt.Errorf("%v: result %d", m.Op(), result)
	}
	return err
}

// fetch returns the bytes that a message gives.
func (p *program) fetch(m wire.Message, size uint64) ([]byte, error) {
	at := p.shared.Geometry().Staging // the first bounce buffer
	pending, err := p.Start(wire.Header{Op: m.Op(), Data: at, Length: size}, m.Append(nil))
	if err != nil {
		return nil, err
	}
	result, _, err := pending.Wait()
	if err == nil && result != 0 {
		err = fmt.Errorf("%v: result %d", m.Op(), result)
	}
	if err != nil {
		return nil, err
	}
	return p.shared.Data(at, size)
}

// load loads a module and finds a kernel in it, as function 1.
func (p *program) load(image []byte, kernel string) error {
	if err := errors.Join(p.do(&wire.ModuleData{Module: 1}, image, false), p.do(&wire.ModuleLoad{Module: 1}, nil, true)); err != nil {
		return err
	}
	_, err := p.fetch(&wire.ModuleFunction{Module: 1, Function: 1, Name: kernel}, 1024)
	return err
}

// add adds vectors on the device, and looks at the sums.
func (p *program) add(image []byte) error {
	const n = 1000
	base := p.attached.ArenaBase
	a, b, c := base, base+8192, base+2*8192
	var ones, counts []byte
	for i := range n {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
		counts = binary.LittleEndian.AppendUint32(counts, math.Float32bits(float32(i)))
	}
	params := binary.LittleEndian.AppendUint64(nil, a)
	params = binary.LittleEndian.AppendUint64(params, b)
	params = binary.LittleEndian.AppendUint64(params, c)
	params = binary.LittleEndian.AppendUint32(params, n)
	launch := &wire.Launch{Function: 1, GridX: 4, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params}
	if err := errors.Join(
		p.do(&wire.MemAlloc{Addr: a, Size: 3 * 8192}, nil, true),
		p.do(&wire.CopyIn{Dst: a}, ones, false), p.do(&wire.CopyIn{Dst: b}, counts, false),
		p.load(image, "vecadd"), p.do(launch, nil, false),
	); err != nil {
		return err
	}
	got, err := p.fetch(&wire.CopyOut{Src: c}, 4*n)
	if err != nil {
		return err
	}
	for i := range n {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != float32(i+1) {
			return fmt.Errorf("element %d is %v", i, v)
		}
	}
	return errors.Join(p.do(&wire.ModuleUnload{Module: 1}, nil, false), p.do(&wire.MemFree{Addr: a}, nil, false))
}
