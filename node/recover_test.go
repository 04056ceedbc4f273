package node

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"muster/wire"
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
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
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
		if err := syscall.Kill(theWorker(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
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
	cfg.Recover, cfg.WorkerTimeout = true, MinWorkerTimeout
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
