package simt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
)

// Load takes time in proportion to the code: with the square of it, these
// would take minutes.
func TestLoadLargeKernels(t *testing.T) {
	n := 20000
	if testing.Short() {
		n = 4000
	}
	lines := func(line func(i int) string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "\t.reg .b32 %%z<%d>;\n", n+1)
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	unused := lines(func(i int) string { return fmt.Sprintf("\tadd.u32 %%z%d, %%z%d, 1;\n", i+1, i) })
	copies := lines(func(i int) string { return fmt.Sprintf("\tmov.u32 %%z%d, %%z%d;\n", i+1, i/2) })
	branches := lines(func(i int) string {
		return fmt.Sprintf("\tsetp.eq.u32 %%p1, %%t, %d;\n\t@%%p1 bra L%d;\n\tadd.u32 %%t, %%t, 1;\nL%d:\n", i, i, i)
	})
	first := lines(func(i int) string { return fmt.Sprintf("\tadd.u32 %%z%d, %%t, %d;\n", i, i) })
	second := lines(func(i int) string { return fmt.Sprintf("\tadd.u32 %%t, %%t, %%z%d;\n", i) })
	_, second, _ = strings.Cut(second, "\n") // the registers are declared already
	saved := ".func f()\n{\n\t.reg .b32 %t;\n\tmov.u32 %t, %tid.x;\n" + first + "\tcall f, ();\n" + second + "\tst.global.u32 [0], %t;\n\tret;\n}\n"
	for _, c := range []struct{ name, outside, body string }{
		{"unused", "", unused}, {"copies", "", copies}, {"branches", "", branches}, {"saved", saved, "\tcall f, ();"},
	} {
		t.Run(c.name, func(t *testing.T) { loadHostile(t, hostile(c.outside, c.body)) })
	}
}

func loadHostile(t *testing.T, source string) {
	t.Helper()
	module, err := ptx.Parse("hostile.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := simt.Load("hostile.ptx", module, (&testMemory{}).place); err != nil {
		t.Fatal(err)
	}
}

// A launch is not asked for parameters that are hidden, but may give them.
func TestHiddenParameterIsNoArgument(t *testing.T) {
	source := ".version 9.0\n.target sm_90\n.address_size 64\n" +
		".entry k(.param .u64 a, .hidden .param .u32 b, .param .u32 c, .hidden .param .align 64 .b8 d[128]) { ret; }"
	module, err := ptx.Parse("hidden.ptx", source)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := simt.Load("hidden.ptx", module, (&testMemory{}).place)
	if err != nil {
		t.Fatal(err)
	}
	k := loaded.Kernel("k")
	if want := []program.Param{{Offset: 0, Size: 8}, {Offset: 12, Size: 4}}; !slices.Equal(k.Params, want) || k.ParamSize != 192 {
		t.Errorf("got %v in %d bytes, want %v in 192", k.Params, k.ParamSize, want)
	}
}

// The product of three sides may be more than 64 bits hold.
func TestLargestBlock(t *testing.T) {
	for directive, want := range map[string]int{
		"": 1024, ".maxntid 96, 2": 192, ".maxntid 2147483648, 2147483648, 4": 1024, ".reqntid 4, 5, 6": 120,
	} {
		module, err := ptx.Parse("k.ptx", ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() "+directive+" { ret; }")
		if err != nil {
			t.Fatal(err)
		}
		program, err := simt.Load("k.ptx", module, (&testMemory{}).place)
		if err != nil {
			t.Fatal(err)
		}
		if got := program.Kernel("k").MaxBlock; got != want {
			t.Errorf("%q: got %d, want %d", directive, got, want)
		}
	}
}
