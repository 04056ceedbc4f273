package reach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/ptx"
)

// kernelText wraps a body into a kernel with two pointers and a number.
func kernelText(body string) string {
	return `
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u64 variable;
.func helper() { ret; }
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .u64 size)
{
	.reg .b32 %r<10>;
	.reg .b64 %d<10>;
	.shared .align 8 .b8 tile[64];
	ld.param.u64 %d1, [a];
	ld.param.u64 %d2, [b];
	ld.param.u32 %r1, [n];
	ld.param.u64 %d3, [size];
` + body + `
	ret;
}
`
}

func TestOf(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"read and write", "ld.global.u32 %r2, [%d1]; st.global.u32 [%d2], %r2;", "[0] [1]w"},
		{"read and written in one place", "ld.global.u32 %r2, [%d1]; st.global.u32 [%d1+4], %r2;", "[0]w"},
		{"an index from memory", "ld.global.u32 %r2, [%d1]; mul.wide.u32 %d4, %r2, 4; add.s64 %d5, %d2, %d4; st.global.u32 [%d5], %r1;", "[0] [1]w"},
		{"a pointer and a length", "add.s64 %d4, %d1, %d3; red.global.add.u32 [%d4], %r1;", "[0 3]w"},
		{"one of two pointers", "mov.u64 %d4, %d1; mov.u64 %d4, %d2; st.u32 [%d4], %r1;", "[0 1]w"},
		{"shared memory", "mov.u64 %d4, tile; st.shared.u64 [%d4], %d1; ld.global.u32 %r2, [%d1];", "[0]"},
		{"shared memory by its generic address", "mov.u64 %d4, tile; cvta.shared.u64 %d5, %d4; st.u32 [%d5], %r1;", ""},
		{"an atomic", "atom.global.add.u32 %r2, [%d2], %r1;", "[1]w"},
		{"nothing", "", ""},

		{"a pointer from memory", "ld.global.u64 %d4, [%d1]; ld.global.u32 %r2, [%d4];", "any"},
		{"a pointer from shared memory", "ld.shared.u64 %d4, [tile]; st.global.u32 [%d4], %r1;", "any"},
		{"a pointer from two halves", "ld.global.u32 %r2, [%d1]; ld.global.u32 %r3, [%d1+4]; mov.b64 %d4, {%r2, %r3}; ld.global.u32 %r2, [%d4];", "any"},
		{"a pointer put together", "ld.global.u32 %r2, [%d1]; cvt.u64.u32 %d4, %r2; shl.b64 %d5, %d4, 32; ld.global.u32 %r2, [%d5];", "any"},
		{"an exchanged pointer", "atom.global.exch.b64 %d4, [%d1], %d2; ld.global.u32 %r2, [%d4];", "any"},
		{"a literal address", "mov.u64 %d4, 0x480000000000; st.global.u32 [%d4], %r1;", "any"},
		{"an index added to a literal address", "mul.wide.u32 %d4, %r1, 4; add.s64 %d5, %d4, 0x480000000000; st.global.u32 [%d5], %r1;", "any"},
		{"a large offset", "mul.wide.u32 %d4, %r1, 4; st.global.u32 [%d4+0x480000000000], %r1;", "any"},
		{"a variable", "ld.global.u64 %d4, [variable];", "any"},
		{"a variable by its address", "mov.u64 %d4, variable; st.global.u32 [%d4], %r1;", "any"},
		{"a call", "call helper;", "any"},
	} {
		m, err := ptx.Parse("k.ptx", kernelText(c.body))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := text(Of(m.Function("k"))); got != c.want {
			t.Errorf("%s: %q, should be %q", c.name, got, c.want)
		}
	}
}

func text(t Memory) string {
	if !t.Known {
		return "any"
	}
	var all []string
	for _, a := range t.Accesses {
		text := fmt.Sprint(a.Words)
		if a.Writes {
			text += "w"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// What compilers make of the corpus: most kernels use what their parameters point to, and those
// that do not are the ones that follow pointers, use variables or call functions.
func TestOfCorpus(t *testing.T) {
	files, err := filepath.Glob("../testdata/kernels/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("no kernels", err)
	}
	known, all := 0, 0
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ptx.Parse(file, string(code))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Functions {
			if !f.Entry || !f.Defined || strings.Contains(file, "O0") {
				continue
			}
			all++
			if got := Of(f); got.Known {
				known++
			} else if testing.Verbose() {
				t.Log(filepath.Base(file), f.Name)
			}
		}
	}
	t.Logf("%d of %d kernels", known, all)
	if known < all/2 {
		t.Errorf("of %d kernels only %d are known", all, known)
	}
}

// Code that takes a pass for each of its instructions is given up, and not followed for hours.
func TestEndlessChain(t *testing.T) {
	var body strings.Builder
	const links = 20_000
	fmt.Fprintf(&body, ".reg .b64 %%c<%d>;\n", links+1)
	for i := range links {
		fmt.Fprintf(&body, "mov.u64 %%c%d, %%c%d;\n", i, i+1)
	}
	fmt.Fprintf(&body, "mov.u64 %%c%d, %%d1; st.global.u32 [%%c0], %%r1;", links)
	m, err := ptx.Parse("k.ptx", kernelText(body.String()))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(Of(m.Function("k"))); got != "any" {
		t.Errorf("it uses %q", got)
	}
}
