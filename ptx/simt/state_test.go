package simt_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
)

// wildStates are kernels whose states have a bit of everything.
var wildStates = []struct{ outside, body string }{
	{mixFunction + "\n.shared .align 8 .b8 cells[512];", `
	{ .param .b32 a; .param .b64 b; .param .b64 back;
	and.b32 %r1, %t, 3;
	st.param.b32 [a], %r1;
	st.param.b64 [b], %mine;
	call (back), mix, (a, b);
	ld.param.b64 %rd1, [back]; }
	cvt.u32.u64 %r2, %rd1;
	st.shared.u32 [cells], %r2;
	setp.gt.u32 %p1, %t, 20;
	@%p1 bra FAR;
	bar.warp.sync 0x1fffff;
	shfl.sync.bfly.b32 %r2, %r2, 1, 31, 0x1fffff;
FAR:
	bar.red.popc.u32 %r3, 0, %p1;
	bar.sync 1;
	vote.sync.ballot.b32 %r4, %p1, -1;
	add.u32 %r2, %r2, %r3;
	xor.b32 %r2, %r2, %r4;
	st.global.u32 [%mine], %r2;`},
	{".func f0()\n{\n\tret;\n}\n.func f1()\n{\n\tcall f0, ();\n\tret;\n}\n", `
	.local .b8 own[32];
	mov.u64 %rd1, f0;
	mov.u64 %rd2, f1;
	and.b32 %r1, %t, 1;
	setp.eq.u32 %p1, %r1, 0;
	selp.u64 %rd1, %rd1, %rd2, %p1;
	P: .callprototype _ ();
	call %rd1, (), P;
	and.b32 %r2, %t, 3;
	T: .branchtargets A, B, C, D;
	brx.idx %r2, T;
A:	atom.global.add.u32 %r3, [%out], %t;
B:	st.local.u32 [own+4], %t;
C:	ld.global.v2.u32 {%r3, %r4}, [%out];
D:	@%p1 exit;
	bar.sync 2, 64;
	st.global.u32 [%mine], %r3;`},
}

// A state that was forged, with a checksum that is right, is refused or does no
// harm but to its own kernel's memory, whichever engine it comes from and goes on
// with: compiled code takes masks, places and registers from it.
func TestForgedStates(t *testing.T) {
	rounds := 800
	if soak {
		rounds = 4000
	}
	for at, w := range wildStates {
		rng := rand.New(rand.NewPCG(uint64(at), 12))
		x, _ := start(t, hostile(w.outside, w.body), 3, 64, simt.Launch{Stack: 512, Engine: simt.Compile})
		kernel, launch := reload(t, hostile(w.outside, w.body))
		var states [][]byte
		for {
			err := x.RunFor(uint64(1 + rng.IntN(12)))
			if !errors.Is(err, simt.ErrStopped) {
				if err != nil && at == 0 {
					t.Fatal(err)
				}
				break
			}
			state, err := x.Save()
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, state)
		}
		taken := 0
		for round := range rounds {
			launch.Engine = []simt.Engine{simt.Interpret, simt.Compile, simt.Compile}[round%3]
			state := bytes.Clone(states[rng.IntN(len(states))])
			body := state[:len(state)-sha256.Size]
			forge(rng, body)
			sum := sha256.Sum256(body)
			copy(state[len(body):], sum[:])
			x, err := kernel.Resume(launch, state)
			if err != nil {
				continue
			}
			taken++
			if err := x.RunFor(500); err != nil && !errors.Is(err, simt.ErrStopped) && !errors.As(err, new(*simt.Fault)) {
				t.Fatal(err)
			}
			if _, err := x.Save(); err != nil && !errors.As(err, new(*simt.Fault)) {
				t.Fatal(err)
			}
		}
		if taken == 0 {
			t.Error("no forged state was taken")
		}
	}
}

// forge changes some words of a state, behind what says which kernel it is of.
func forge(rng *rand.Rand, body []byte) {
	const head = len("muster.simt") + 4 + sha256.Size
	words := []uint32{0, 1, 2, 3, 4, 8, 15, 16, 31, 64, 255, 256, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 16, 1<<32 - 1}
	span := len(body) - head - 4
	if rng.IntN(2) == 0 {
		span = min(span, 1200) // where launch, groups and masks are
	}
	for range 1 + rng.IntN(3) {
		at := head + rng.IntN(span)
		if rng.IntN(4) != 0 { // numbers begin at multiples of 4 behind the head
			at = head + rng.IntN(span/4)*4
		}
		word := words[rng.IntN(len(words))]
		if rng.IntN(3) == 0 {
			word = binary.LittleEndian.Uint32(body[at:]) ^ 1<<rng.IntN(32)
		}
		binary.LittleEndian.PutUint32(body[at:], word)
	}
}

// reload loads a kernel again, with memory of its own.
func reload(t *testing.T, source string) (*simt.Kernel, simt.Launch) {
	t.Helper()
	module, err := ptx.Parse("hostile.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	memory := &testMemory{}
	program, err := simt.Load("hostile.ptx", module, memory.place)
	if err != nil {
		t.Fatal(err)
	}
	regions := fencedMemory(t)
	for i, base := range []uint64{inAddress, outAddress, globalAddress} {
		memory.regions = append(memory.regions, simt.Region{Base: base, Bytes: regions[i]})
	}
	return program.Kernel("run"), simt.Launch{Memory: memory}
}
