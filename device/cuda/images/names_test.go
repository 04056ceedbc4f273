package images

import (
	"errors"
	"os"
	"slices"
	"testing"

	"muster/device"
	"muster/ptx/fatbin"
)

var basicFatbin, cubinFatbin = testImage("basic.fatbin"), testImage("cubin.fatbin")

func testImage(name string) []byte {
	image, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		panic(err)
	}
	return image
}

func TestNamesOfPTX(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"none", ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }", nil},
		{"plain", ".visible .global .align 4 .u32 table[4] = {10, 20, 30, 40};\n.const .f32 c = 0f3F800000;", []string{"table", "c"}},
		{"names in values", ".global .u64 p = generic(other);\n.global .u64 q[2] = {other, another};", []string{"p", "q"}},
		{"several at once", ".global .u32 a, b[2] = {1, 2}, c;", []string{"a", "b", "c"}},
		{"attributes", ".visible .global .attribute(.managed) .align 8 .v4 .f32 v;", []string{"v"}},
		{"in the state space of a parameter", ".visible .entry k(.param .u64 .ptr .global .align 8 p) { ld.global.u32 %r1, [%rd1]; ret; }", nil},
		{"declared in a function", ".func f() { .global .u32 inner; ret; }\n.global .u32 outer;", []string{"outer"}},
		{"comments and strings", "// .global .u32 a;\n/* .global .u32 b; */ .file 1 \".global .u32 c;\"\n.global .u32 d;", []string{"d"}},
		{"strange names", ".global .b8 $str[4];\n.global .b8 _ZL1x;\n.global .b8 %x;", []string{"$str", "_ZL1x", "%x"}},
		{"two dimensions", ".const .u32 m[N][4];", []string{"m"}},
		{"cut short", ".global .u32 ", nil},
		{"cut in a comment", ".global .u32 a; /* and", []string{"a"}},
		{"not PTX", ")))}}} .global;;; \x00\xff{", nil},
	} {
		if got := namesOfPTX(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The variables of one program, from its machine code.
func TestNamesOfMachineCode(t *testing.T) {
	want := []string{"factor", "pointer", "table", "total"}
	hopper := device.Compute{Major: 9}
	if got := VariableNames(CodeOf(cubinFatbin, hopper)); !slices.Equal(got, want) {
		t.Errorf("fat binary: %q, want %q", got, want)
	}
	if got := VariableNames(CodeOf(cubinFatbin, device.Compute{Major: 8, Minor: 6})); got != nil {
		t.Errorf("for another architecture: %q", got)
	}
	entries, err := fatbin.Open(cubinFatbin)
	if err != nil {
		t.Fatal(err)
	}
	cubin := entries[0].Data
	if got := VariableNames(CodeOf(cubin, hopper)); !slices.Equal(got, want) {
		t.Errorf("cubin: %q, want %q", got, want)
	}
	for n := 4; n < len(cubin); n += 101 {
		if err := Check(cubin[:n]); !errors.Is(err, device.ErrInvalidImage) {
			t.Errorf("the first %d of %d bytes were found good: %v", n, len(cubin), err)
		}
	}
	if err := Check(cubin); err != nil {
		t.Error(err)
	}
}

// Compilers since CUDA 13 write another number where ELF has its version.
func TestVersionOfMachineCode(t *testing.T) {
	all, err := os.ReadFile("../testdata/cubin.fatbin")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fatbin.List(all)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e fatbin.Entry) bool { return e.Kind == fatbin.ELF && e.Load() == nil })
	if i < 0 {
		t.Fatal("there is no machine code in it")
	}
	e := entries[i]
	if err := e.Load(); err != nil {
		t.Fatal(err)
	}
	image := slices.Clone(e.Data)
	want := namesOfELF(image)
	image[20] = 123
	if got := namesOfELF(image); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := Check(image); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for what, image := range map[string]string{
		"nothing":               "",
		"zeros":                 "\x00\x00\x00",
		"half a fat binary":     string(basicFatbin[:len(basicFatbin)/2]),
		"a wrapper of pointers": "\xb1\x43\x62\x46\x01\x00\x00\x00\x10\x20\x30\x40\x50\x60\x00\x00",
		"an ELF header alone":   "\x7fELF\x02\x01\x01",
	} {
		if err := Check([]byte(image)); !errors.Is(err, device.ErrInvalidImage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, image := range map[string]string{
		"text":          ".version 6.4",
		"text with NUL": ".version 6.4\x00",
		"fat binary":    string(basicFatbin),
	} {
		if err := Check([]byte(image)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add([]byte(".version 6.4\n.target sm_70\n.visible .global .u32 g;\n.visible .entry k() { ret; }"))
	f.Add([]byte(".global .u32 a, b[2] = {1, 2}; // x"))
	f.Add(basicFatbin)
	f.Add(cubinFatbin)
	f.Add(cubinFatbin[16+64:])
	f.Fuzz(func(t *testing.T, image []byte) {
		if Check(image) == nil {
			VariableNames(CodeOf(image, device.Compute{Major: 9}))
		}
	})
}
