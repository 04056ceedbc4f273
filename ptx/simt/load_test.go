package simt_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
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
