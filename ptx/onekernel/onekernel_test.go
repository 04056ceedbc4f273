package onekernel

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/misuse"
	"muster/internal/need"
	"muster/ptx"
	"muster/ptx/number"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

func TestPlainName(t *testing.T) {
	for name, want := range map[string]string{
		"vecadd": "vecadd", "_Z6vecaddPKfS0_Pfi": "vecadd", "_Z3addIfEvPT_": "add", "_ZN2ns5inner6kernelEPf": "kernel",
		"_ZN12_GLOBAL__N_16kernelEv": "kernel", "_Z": "_Z", "_Z9short": "_Z9short", "_Zx": "_Zx", "_Z99999999999999999999x": "_Z99999999999999999999x",
	} {
		if got := plainName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestBadArguments(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "neither a number such as u32:7 nor a buffer",
		"7":                      "as in s32:7 or f32:7",
		"u32:":                   `"" is no u32`,
		"u8:300":                 "a whole number from 0 to 255",
		"int:3":                  "write s32",
		"f33:3":                  "did you mean f32?",
		"out:f32":                "as in out:f32[16]",
		"ot:f32[4]":              "a buffer is in, out or inout",
		"f32[4]":                 "write f32[4]=0, or out:f32[4]",
		"inout:f32[4]":           "write inout:f32[4]=0",
		"out:f32[]":              "say how many elements",
		"out:f32[4]=1":           "make it inout",
		"f32[]=iota":             "say how many elements",
		"f32[0]=1":               `"0" is no number of elements`,
		"f32[-4]=1":              `"-4" is no number of elements`,
		"f32[4]=1,2":             "2 numbers are given for 4 elements",
		"f32[4]=one":             `"one" is no f32`,
		"f32[4]=":                `"" is no f32`,
		"in=@x:f32[4]=0":         "make it out or inout",
		"u32[4]=random:sed=1":    `no setting "sed"`,
		"u32[4]=random:seed=x":   `"x" is no whole number`,
		"u8[4]=random:below=257": "more than u8 holds",
		"s8[4]=random:below=129": "more than s8 holds",
		"u8[4]=random:below=0":   "nothing is below 0",
		"bytes:abc":              "pairs of hexadecimal digits",
		"bytes:":                 "pairs of hexadecimal digits",
	} {
		_, err := ParseArguments([]string{text})
		if !misuse.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestContents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a:b.bin") // colons do not end names
	if err := os.WriteFile(file, []byte{1, 2, 3, 4, 5, 6}, 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]byte{
		"u8[4]=7":                 {7, 7, 7, 7},
		"u16[]=1,0x203":           {1, 0, 3, 2},
		"in:u8[300]=iota":         append(bytesUpTo(256), bytesUpTo(44)...),
		"f16[3]=iota":             {0, 0, 0, 0x3c, 0, 0x40},
		"u16[]=@" + file:          {1, 2, 3, 4, 5, 6},
		"inout:u16[3]=@" + file:   {1, 2, 3, 4, 5, 6},
		"inout=@o:u8[2]:x=1":      nil,
		"inout=@o[1]:u8[2]=1":     {1, 1},
		"u8[4]=random:below=1":    {0, 0, 0, 0},
		"s8:-1":                   {0xff},
		"f32:1,2":                 {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40},
		"bytes:0a0B":              {10, 11},
		"out=@" + file + ":u8[2]": {0, 0},
	} {
		args, err := ParseArguments([]string{text})
		if want == nil {
			if err == nil {
				t.Errorf("%q was accepted", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := content(args[0]); !bytes.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func bytesUpTo(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// content is what a kernel finds in an argument.
func content(a *Argument) []byte {
	if !a.isBuffer() {
		return a.value
	}
	b := make([]byte, a.size())
	if a.fill != nil {
		a.fill(b)
	}
	return b
}

// What is drawn stays within its bounds, and the place of a buffer counts.
func TestRandomContents(t *testing.T) {
	for _, text := range []string{"f16[1000]=random:below=3", "bf16[1000]=random:below=3", "f32[1000]=random:below=3", "u8[1000]=random:below=3"} {
		args, err := ParseArguments([]string{text, text})
		if err != nil {
			t.Fatal(err)
		}
		first, second := content(args[0]), content(args[1])
		if bytes.Equal(first, second) {
			t.Errorf("%s: two buffers are alike", text)
		}
		for i := range 1000 {
			f := float64(number.Get(args[0].typ, first, i))
			if args[0].typ.Float() {
				f = number.Float(args[0].typ, uint64(f))
			}
			if f < 0 || f >= 3 {
				t.Errorf("%s: element %d is %v", text, i, f)
			}
		}
	}
}

func FuzzKernelArgument(f *testing.F) {
	for _, text := range []string{"u32:7", "f32[4]=1,2,3,4", "out=@c:f32[4]", "inout:bf16[8]=random:seed=1:below=9", "bytes:00ff", "s8[]=-1,0x7f"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "@") {
			return // files
		}
		args, err := ParseArguments([]string{text})
		if err == nil && args[0].size() < 1 {
			t.Errorf("%q has no bytes", text)
		}
		if err == nil && args[0].size() < 1<<20 {
			content(args[0])
		}
	})
}

// A kernel that never ends can be interrupted.
func TestInterrupt(t *testing.T) {
	tree, err := ptx.Parse("endless.ptx", ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry endless() {\nloop: bra loop;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	space := &memory{}
	program, err := simt.Load("endless.ptx", tree, space.place)
	if err != nil {
		t.Fatal(err)
	}
	one := shape.Dim{X: 1, Y: 1, Z: 1}
	x, err := program.Kernel("endless").Start(simt.Launch{Grid: one, Block: one, Memory: space})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = runToEnd(ctx, x, func() error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDescribeAddress(t *testing.T) {
	m := &memory{}
	defer m.release()
	a, err := m.add("argument 1", 20, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.add("argument 2", 16, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if b.Base%4096 != 0 || len(a.Bytes) != 32 {
		t.Errorf("%#x is not aligned, or %d bytes are not whole pieces", b.Base, len(a.Bytes))
	}
	for addr, want := range map[uint64]string{
		a.Base + 20: "right behind the end of argument 1", a.Base + 33: "13 bytes behind the end of argument 1",
		b.Base - 1: "1 byte before argument 2", b.Base + 16 + 1<<20: "1,048,576 bytes behind the end of argument 2", 8: "near the null pointer", 1 << 40: "",
	} {
		if got := m.describe(addr); got != want {
			t.Errorf("%#x: got %q, want %q", addr, got, want)
		}
	}
	if _, ok := m.Find(a.Base + 31); !ok {
		t.Error("the end of a region is not found")
	}
	for _, addr := range []uint64{0, a.Base - 1, a.Base + 32, b.Base - 1, b.Base + 16} {
		if _, ok := m.Find(addr); ok {
			t.Errorf("%#x is mapped", addr)
		}
	}
	if _, err := m.add("too much", 1<<50, 1); err == nil {
		t.Error("a petabyte was mapped")
	}
}

// A file that says how large it is need not be read to be refused.
func TestLargeContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		need.Missing(t, need.System, err) // a file system without holes
	}
	_, err := ParseArguments([]string{"u8[]=@" + path})
	if err == nil || !strings.Contains(err.Error(), "the file has 1,099,511,627,776 bytes, at most 17,179,869,184 bytes are read") {
		t.Errorf("got %v", err)
	}
}
