package simt_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/native"
	"muster/ptx/simt/native/asm"
	"muster/ptx/simt/shape"
)

// launchRandom runs a random program and returns the execution, which has ended.
func launchRandom(t *testing.T, seed uint64, launch simt.Launch) *simt.Execution {
	t.Helper()
	p := randomProgram(seed)
	p.in = randomWords()
	module, err := ptx.Parse(p.Name, p.Source)
	if err != nil {
		t.Fatal(err)
	}
	c := instructionCase{in: p.in, outSize: p.Size, memory: &testMemory{}}
	program, err := simt.Load(p.Name, module, c.memory.place)
	if err != nil {
		t.Fatal(err)
	}
	c.kernel = program.Kernel("run")
	c.fill(t, program)
	launch.Grid, launch.Block = shape.Dim{X: p.Grid[0], Y: p.Grid[1], Z: p.Grid[2]}, shape.Dim{X: p.Block[0], Y: p.Block[1], Z: p.Block[2]}
	launch.Params, launch.Memory = c.parameters(), c.memory
	x, err := c.kernel.Start(launch)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.RunFor(1 << 24); err != nil {
		t.Fatal(err)
	}
	return x
}

// Every lane operation is counted for a line, and on both engines for the same one.
func TestProfileCountsLines(t *testing.T) {
	for seed := range uint64(10) {
		counted := map[simt.Engine]string{}
		for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
			profile := &simt.Profile{}
			x := launchRandom(t, seed, simt.Launch{Engine: engine, Profile: profile})
			var sum simt.Stats
			var lines []string
			for _, l := range profile.Lines() {
				sum.Instructions += l.Instructions
				sum.LaneOps += l.LaneOps
				lines = append(lines, fmt.Sprintf("%d %s: %d", l.Pos.Line, l.Text, l.LaneOps))
			}
			if sum != x.Stats() {
				t.Errorf("seed %d, %v: the lines have %+v, the execution %+v", seed, engine, sum, x.Stats())
			}
			counted[engine] = strings.Join(lines, "\n")
		}
		if counted[simt.Interpret] != counted[simt.Compile] {
			t.Errorf("seed %d: interpreted\n%s\ncompiled\n%s", seed, counted[simt.Interpret], counted[simt.Compile])
		}
	}
}

// A sample finds the line at which a kernel is, on both engines.
func TestProfileSamples(t *testing.T) {
	const endless = `.version 7.0
.target sm_70
.address_size 64
.visible .entry k() {
	.reg .u32 %r<4>;
	mov.u32 %r0, %tid.x;
again:
	mad.lo.u32 %r1, %r0, %r0, %r1;
	mad.lo.u32 %r2, %r1, %r0, %r2;
	bra again;
}
`
	module, err := ptx.Parse("k.ptx", endless)
	if err != nil {
		t.Fatal(err)
	}
	program, err := simt.Load("k.ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []simt.Engine{simt.Interpret, simt.Compile} {
		profile := &simt.Profile{}
		x, err := program.Kernel("k").Start(simt.Launch{
			Grid: shape.Dim{X: 1, Y: 1, Z: 1}, Block: shape.Dim{X: 64, Y: 1, Z: 1}, Memory: &benchMemory{make([]byte, 16)}, Engine: engine, Profile: profile,
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- x.Run() }()
		busy := 0
		for busy < 10 {
			busy += profile.Sample()
			runtime.Gosched()
		}
		x.Stop()
		if err := <-done; err != simt.ErrStopped {
			t.Fatalf("%v: %v", engine, err)
		}
		if n := profile.Sample(); n != 0 {
			t.Errorf("%v: %d workers run, though the kernel is stopped", engine, n)
		}
		samples, compiled := 0.0, 0.0
		for _, l := range profile.Lines() {
			samples, compiled = samples+l.Samples, compiled+l.Compiled
		}
		if math.Abs(samples-float64(busy)) > 1e-6 {
			t.Errorf("%v: the lines have %v samples of %d", engine, samples, busy)
		}
		if engine == simt.Interpret && compiled > 0 {
			t.Errorf("%v of the samples are in compiled code, and there is none", compiled)
		}
	}
}

// What is listed as machine code is what a disassembler reads in the bytes. It is also
// the test of the names.
func TestListing(t *testing.T) {
	if !native.Supported() {
		need.Missing(t, need.CPU, "this machine compiles nothing")
	}
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		need.Missing(t, need.CPU, err)
	}
	read := regexp.MustCompile(`(?m)^\s*([0-9a-f]+):\t[0-9a-f ]+\t(\S+)`)
	compares := regexp.MustCompile(`^(vp?cmp)(eq|lt|le|unord|neq|nlt|nle|ord|nge|ngt|ge|gt|true|false|_oq|_os|_uq|_us|eq_uq|eq_us)*(_\w\w)?(u?[bwdq]|ps|pd)$`)
	lines := 0
	for seed := range uint64(3) {
		for _, l := range launchRandom(t, seed, simt.Launch{Engine: simt.Compile, List: true}).Listings() {
			if l.Compiled == 0 || l.Compiled > l.Instructions {
				t.Errorf("seed %d: %d of %d instructions are compiled", seed, l.Compiled, l.Instructions)
			}
			var code []byte
			for _, x := range l.Lines {
				if x.Offset != len(code) {
					t.Fatalf("seed %d: %q lies at %#x, and not at %#x", seed, x.Text, x.Offset, len(code))
				}
				code = append(code, x.Bytes...)
			}
			file := filepath.Join(t.TempDir(), "code")
			if err := os.WriteFile(file, code, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", file).Output()
			if err != nil {
				need.Missing(t, need.CPU, err)
			}
			theirs := map[int]string{}
			for _, m := range read.FindAllStringSubmatch(string(out), -1) {
				at, _ := strconv.ParseInt(m[1], 16, 64)
				theirs[int(at)] = m[2]
			}
			for _, x := range l.Lines {
				if strings.HasSuffix(x.Text, asm.ByAVX2) {
					continue
				}
				ours, _, _ := strings.Cut(x.Text, " ")
				want := theirs[x.Offset]
				if m := compares.FindStringSubmatch(want); m != nil {
					want = m[1] + m[4]
				}
				if want == "movabs" {
					want = "mov"
				}
				if ours != want {
					t.Fatalf("seed %d: %x is listed as %q, and is %q", seed, x.Bytes, x.Text, theirs[x.Offset])
				}
				lines++
			}
		}
	}
	if lines < 500 {
		t.Errorf("only %d instructions were listed", lines)
	}
}
