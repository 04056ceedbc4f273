//go:build linux && cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/device"
	"muster/internal/need"
	"muster/internal/seeds"
)

const standinVariable = "MUSTER_TEST_CUDA_STANDIN"

const standinPTX = `
.version 6.4
.target sm_70
.address_size 64
.visible .entry append(.param .u64 at, .param .u32 value) { ret; }
.visible .entry nothing() { ret; }
.visible .entry refused() { ret; }
.visible .entry fault() { ret; }
`

// withStandin runs a test with a context of the stand-in.
func withStandin(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	besideStandin(t, func(path string) {
		all, err := Devices(Options{Library: path})
		if err != nil {
			t.Fatal(err)
		}
		test(t, openOn(t, all[0], 64<<20))
	})
}

// besideStandin runs a test in another process, whose driver is to be the stand-in: a process cannot
// change its driver.
func besideStandin(t *testing.T, test func(library string)) {
	t.Helper()
	if path := os.Getenv(standinVariable); path != "" {
		fewCores = 0
		test(path)
		return
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Missing(t, need.Compiler, "this needs a compiler of C:", err)
	}
	if _, err := os.Stat("testdata/standin.c"); err != nil {
		need.Missing(t, need.System, "this needs the sources:", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "standin.so")
	if said, err := exec.Command(gcc, "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-o", path, "testdata/standin.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	c := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	c.Env = append(os.Environ(), standinVariable+"="+path)
	if said, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// kernel returns a kernel of the stand-in.
func (b *bench) kernel(name string) device.Function {
	b.Helper()
	m, err := b.Load([]byte(standinPTX))
	b.ok(err)
	f, err := m.Function(name)
	b.ok(err)
	return f
}

// more says whether a test that wants a number of repetitions should go on: on a busy machine it stops
// with fewer.
func more(began time.Time, have, want uint64) bool {
	if have == 0 {
		return time.Since(began) < 4*time.Minute
	}
	return have < want && time.Since(began) < 2*time.Second
}

func alone(params []byte) device.Launch {
	one := device.Dim{X: 1, Y: 1, Z: 1}
	return device.Launch{Grid: one, Block: one, Params: params}
}

// Launches that are left to the thread reach the driver in the order of submission, together with all
// other work of their stream.
func TestLaterLaunchesAreInOrder(t *testing.T) {
	withStandin(t, func(t *testing.T, b *bench) {
		const enough = 3000
		seed, _ := seeds.First(t)
		random := rand.New(rand.NewPCG(seed, 1))
		b.ok(b.Map(testBase, b.g))
		b.ok(b.stream.Fill(testBase, 0, 4, 1))
		other, err := b.NewStream()
		b.ok(err)
		e, err := b.NewEvent()
		b.ok(err)
		f := b.kernel("append")
		var want []uint32
		later := uint64(0)
		for began := time.Now(); more(began, later, enough); {
			on := []device.Stream{b.stream, other}[random.IntN(2)]
			value := uint32(len(want) + 1)
			launch := alone(binary.LittleEndian.AppendUint32(address(testBase), value))
			switch random.IntN(200) {
			case 0: // work that is not left to the thread must come after launches that are
				b.ok(on.Launch(f, launch))
			case 1:
				b.ok(on.Record(e))
				fallthrough
			default:
				number, late, err := on.Can().LaunchLater(f, launch, random.IntN(50) > 0)
				b.ok(err)
				if late && number != later {
					t.Fatalf("launch %d has number %d", later, number)
				}
				if late {
					later++
				}
			}
			if want = append(want, value); len(want) == 100_000 { // they begin anew
				b.ok(b.stream.Fill(testBase, 0, 4, 1))
				want = nil
			}
		}
		if later == 0 {
			t.Error("nothing was left to the other thread")
		}
		if refused := b.stream.Can().Refused(); len(refused) > 0 {
			t.Errorf("refused: %v", refused)
		}
		got := make([]byte, 4+4*len(want))
		b.ok(b.stream.CopyOut(got, testBase))
		b.ok(b.Synchronise(b.ctx))
		if count := binary.LittleEndian.Uint32(got); count != uint32(len(want)) {
			t.Fatalf("%d kernels ran of %d", count, len(want))
		}
		for i, value := range want {
			if ran := binary.LittleEndian.Uint32(got[4+4*i:]); ran != value {
				t.Fatalf("kernel %d was %d, want %d", i, ran, value)
			}
		}
		b.ok(b.Close())
	})
}

// Each launch that the driver refuses is reported once, however many there are.
func TestLaterLaunchesAreRefused(t *testing.T) {
	withStandin(t, func(t *testing.T, b *bench) {
		seed, _ := seeds.First(t)
		random := rand.New(rand.NewPCG(seed, 1))
		good, bad := b.kernel("nothing"), b.kernel("refused")
		on := b.stream.Can()
		var want, got []uint64
		hear := func() {
			for _, r := range on.Refused() {
				if r.Err == nil || b.Err() != nil {
					t.Fatalf("launch %d: %v; the context: %v", r.Number, r.Err, b.Err())
				}
				got = append(got, r.Number)
			}
		}
		for began := time.Now(); more(began, uint64(len(want)), 300); {
			f := good
			if random.IntN(8) == 0 {
				f = bad
			}
			number, late, err := on.LaunchLater(f, alone(nil), true)
			switch {
			case late && f == bad:
				want = append(want, number)
			case !late && (err != nil) != (f == bad):
				t.Fatalf("launch: %v", err)
			}
			if random.IntN(300) == 0 {
				hear()
			}
		}
		hear()
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("refused: %v, want %v", got, want)
		}
		b.ok(b.Close())
	})
}

// A fault that the thread gets as an answer ends the context.
func TestFaultOfLaterLaunch(t *testing.T) {
	withStandin(t, func(t *testing.T, b *bench) {
		good, fault := b.kernel("nothing"), b.kernel("fault")
		on := b.stream.Can()
		late := false
		for began := time.Now(); !late && time.Since(began) < 4*time.Minute; {
			var err error
			_, late, err = on.LaunchLater(good, alone(nil), true)
			b.ok(err)
		}
		b.ok(b.stream.Launch(fault, alone(nil)))
		_, _, _ = on.LaunchLater(good, alone(nil), true)
		var found *device.Fault
		if err := b.stream.Synchronise(b.ctx); !errors.As(err, &found) {
			t.Errorf("answered %v, want a fault", err)
		}
		if _, _, err := on.LaunchLater(good, alone(nil), true); !errors.As(err, &found) {
			t.Errorf("a launch answered %v, want a fault", err)
		}
		b.stream.Can().Refused()
		b.ok(b.Close())
		b.stream.Can().Refused()
	})
}

// A graph that differs from the one before it in some parameters is made by changing the driver's
// instance; one that differs in more gets a new instance. Each launch does what its graph said when it
// was made.
func TestChangedGraphs(t *testing.T) {
	withStandin(t, func(t *testing.T, b *bench) {
		b.ok(b.Map(testBase, b.g))
		b.ok(b.stream.Fill(testBase, 0, 4, 1))
		f, nothing := b.kernel("append"), b.kernel("nothing")
		appends := func(value uint32, after ...int) device.GraphNode {
			return device.GraphNode{Function: f, After: after, How: alone(binary.LittleEndian.AppendUint32(address(testBase), value))}
		}
		quiet := device.GraphNode{Function: nothing, How: alone(nil)}
		var before *graph
		var want []uint32
		for i, one := range []struct {
			nodes   []device.GraphNode
			values  []uint32
			keeps   bool // the driver's instance stays the same
			changes bool // single nodes of the instance can be changed afterwards
		}{
			{[]device.GraphNode{appends(1), appends(2, 0), quiet}, []uint32{1, 2}, false, true},
			{[]device.GraphNode{appends(1), appends(3, 0), quiet}, []uint32{1, 3}, true, true},
			{[]device.GraphNode{appends(4), appends(5, 0), quiet}, []uint32{4, 5}, true, true}, // many changes: the whole is updated
			{[]device.GraphNode{quiet, appends(6, 0), appends(7)}, []uint32{6, 7}, true, true}, // so it is if functions differ
			{[]device.GraphNode{quiet, appends(6, 0), appends(8)}, []uint32{6, 8}, true, true},
			{[]device.GraphNode{quiet, appends(6), appends(9, 0, 1)}, []uint32{6, 9}, true, false}, // another shape, which the driver accepts
			{[]device.GraphNode{quiet, appends(6), appends(10, 0, 1)}, []uint32{6, 10}, true, false},
			{[]device.GraphNode{appends(11)}, []uint32{11}, false, true},
			{[]device.GraphNode{appends(12)}, []uint32{12}, true, true},
		} {
			var last device.Graph
			if before != nil {
				last = before
			}
			had := (&graph{}).instance
			if before != nil {
				had = before.instance
			}
			made, err := b.Context.(*gpuContext).dev.newGraph(b.Context, one.nodes, last)
			b.ok(err)
			g := made.(*graph)
			if kept := had == g.instance; kept != one.keeps || (g.made != nil) != one.changes {
				t.Errorf("graph %d: the instance is kept: %v, its nodes are known: %v", i, kept, g.made != nil)
			}
			if before != nil {
				b.ok(before.Close())
			}
			b.ok(g.Launch(b.stream))
			want = append(want, one.values...)
			before = g
		}
		b.ok(before.Close())
		b.ok(b.stream.Synchronise(t.Context()))
		raw := b.get(testBase, uint64(4+4*len(want)))
		var got []uint32
		for ; len(raw) > 0; raw = raw[4:] {
			got = append(got, binary.LittleEndian.Uint32(raw))
		}
		if want := append([]uint32{uint32(len(want))}, want...); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A context that was prepared is the next Open's, with the memory that was pinned there; one that is
// discarded leaves the next Open as it would be.
func TestPreparedContexts(t *testing.T) {
	withStandin(t, func(t *testing.T, b *bench) {
		d := b.Context.(*gpuContext).dev
		host := make([]byte, 1<<20)
		config := device.Config{Arena: device.Arena{Base: testBase + 1<<40, Size: 64 << 20}}
		for _, discards := range []bool{false, true, false} {
			b.ok(d.prepare(host))
			made := d.prepared
			if discards {
				b.ok(d.discard())
			}
			opened, err := d.Open(config)
			b.ok(err)
			c := opened.(*gpuContext)
			if same := c == made; same == discards || d.prepared != nil {
				t.Errorf("discarded %v: the context is the prepared one: %v", discards, same)
			}
			if pinned := c.pinnedParts(host) != nil; pinned == discards {
				t.Errorf("discarded %v: the memory is pinned: %v", discards, pinned)
			}
			b.ok(c.Map(config.Arena.Base, b.g))
			s, err := c.NewStream()
			b.ok(err)
			b.ok(s.Fill(config.Arena.Base, 7, 4, 1))
			b.ok(s.Synchronise(b.ctx))
			b.ok(c.Close())
		}
		b.ok(d.prepare(nil))
		b.ok(d.prepare(nil)) // replaces the first
		b.ok(d.discard())
		b.ok(d.discard())
	})
}
