package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const linkHead = ".version 7.0\n.target sm_70\n.address_size 64\n"

func linkAll(stubs bool, texts ...string) (*Module, error) {
	var inputs []Input
	for i, text := range texts {
		inputs = append(inputs, Input{Name: fmt.Sprintf("input %d", i), Text: linkHead + text})
	}
	return Link(inputs, stubs)
}

func TestLink(t *testing.T) {
	m, err := linkAll(false,
		".extern .func (.param .b32 r) twice(.param .b32 x);\n.extern .global .u32 factor;\n.func helper() { ret; }\n.shared .u32 scratch;\n"+
			".visible .entry k(.param .u64 p) { .reg .b32 %r<2>; call.uni helper, (); ld.global.u32 %r0, [factor]; st.shared.u32 [scratch], %r0; ret; }\n",
		".visible .global .u32 factor = 2;\n.global .u64 where = generic(factor);\n.func helper() { trap; }\n.shared .u32 scratch;\n"+
			".visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<2>; call.uni helper, (); st.shared.u32 [scratch], %r0; ret; }\n")
	if err != nil {
		t.Fatal(err)
	}
	if f := m.Function("twice"); f == nil || !f.Defined {
		t.Error("twice is not defined")
	}
	if v, _ := m.Lookup("factor").(*Variable); v == nil || v.Linkage != Visible || v.Init == nil {
		t.Errorf("factor is %+v", v)
	}
	for _, name := range []string{"helper$0", "helper$1", "scratch$0", "scratch$1", "where"} {
		if m.Lookup(name) == nil {
			t.Errorf("there is no %s in\n%s", name, m)
		}
	}
	for name, callee := range map[string]string{"k": "helper$0", "twice": "helper$1"} {
		for _, in := range m.Function(name).Code {
			if c, ok := in.Call(); ok && c.Callee.Name != callee {
				t.Errorf("%s calls %s", name, c.Callee.Name)
			}
		}
	}
}

// Linking is deterministic: the same inputs always give the same text.
func TestLinkIsDeterministic(t *testing.T) {
	var texts []string
	for i := range 20 {
		texts = append(texts, fmt.Sprintf(".func a() { ret; }\n.func b() { ret; }\n.global .u32 c = %d;\n.extern .func e%d();\n.visible .entry k%d() { call.uni a, (); ret; }\n", i, i, i))
	}
	first, err := linkAll(true, texts...)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := linkAll(true, texts...)
		if err != nil || again.String() != first.String() {
			t.Fatalf("%v, or another text", err)
		}
	}
}

func TestLinkWeak(t *testing.T) {
	weak := func(op string) string {
		return ".weak .func f() { " + op + "; ret; }\n.weak .global .u32 v = " + fmt.Sprint(len(op)) + ";\n"
	}
	for _, c := range []struct {
		texts []string
		want  string // the first instruction of f
	}{
		{[]string{weak("exit"), weak("trap")}, "exit"},
		{[]string{weak("exit"), ".visible .func f() { trap; ret; }\n"}, "trap"},
		{[]string{".extern .func f();\n", weak("exit"), ".visible .func f() { trap; ret; }\n", weak("exit")}, "trap"},
	} {
		m, err := linkAll(false, c.texts...)
		if err != nil {
			t.Error(err)
			continue
		}
		if f := m.Function("f"); !f.Defined || f.Code[0].Opcode != c.want {
			t.Errorf("%q: f is %+v", c.texts, f)
		}
	}
	m, err := linkAll(false, ".common .global .b8 room[4];\n", ".common .global .b8 room[16];\n", ".common .global .b8 room[8];\n")
	if err != nil || m.Lookup("room").(*Variable).Size() != 16 {
		t.Errorf("%v: %+v", err, m)
	}
}

func TestLinkRefuses(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{".visible .func f() { ret; }\n", ".visible .func f() { ret; }\n"}, "multiple definition of 'f' in 'input 1', first defined in 'input 0'"},
		{[]string{".visible .global .u32 v;\n", ".visible .global .u32 v = 3;\n"}, "multiple definition of 'v' in 'input 1', first defined in 'input 0'"},
		{[]string{".visible .entry k() { ret; }\n", ".visible .entry k() { ret; }\n"}, "multiple definition of 'k' in 'input 1', first defined in 'input 0'"},
		{[]string{".extern .func f();\n", ".visible .global .u32 f;\n"}, "'f' in 'input 1' is of another kind than in 'input 0'"},
		{[]string{".extern .func f(.param .b64 x);\n", ".visible .func f(.param .b32 x) { ret; }\n"}, "'f' in 'input 1' does not match 'input 0'"},
		{[]string{".extern .global .u64 v;\n", ".visible .global .u32 v;\n"}, "'v' in 'input 1' does not match 'input 0'"},
	} {
		_, err := linkAll(false, c.texts...)
		var wrong *LinkError
		if !errors.As(err, &wrong) || wrong.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.texts, err, c.want)
		}
	}
	if _, err := linkAll(false, ".visible .entry k() { ret; }\n", "nonsense"); err == nil || !strings.HasPrefix(err.Error(), "input 1:4:1: ") {
		t.Errorf("an input that is wrong by itself: %v", err)
	}
}

// A function that no input defines gets a stub, for checks.
func TestLinkStubs(t *testing.T) {
	text := ".extern .func (.param .b32 r) later(.param .b32 x);\n.visible .entry k() { .param .b32 x; .param .b32 r; call.uni (r), later, (x); ret; }\n"
	if m, err := linkAll(true, text); err != nil || !m.Function("later").Defined {
		t.Errorf("%v: %v", err, m)
	}
	if m, err := linkAll(false, text); err != nil || m.Function("later").Defined {
		t.Errorf("%v: %v", err, m)
	}
}

func FuzzLink(f *testing.F) {
	f.Add(".visible .func f() { ret; }\n", ".extern .func f();\n.visible .entry k() { call.uni f, (); ret; }\n")
	f.Add(".weak .global .u32 v = 1;\n", ".weak .global .u32 v = 2;\n.alias a, f;\n.func f() { ret; }\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		m, err := linkAll(true, a, b)
		if err != nil {
			return
		}
		if _, err := Parse("again", m.String()); err != nil {
			t.Errorf("its own text is wrong: %v\n%s", err, m)
		}
	})
}

func BenchmarkLink(b *testing.B) {
	for _, n := range []int{100, 400} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var inputs []Input
			for i := range n {
				inputs = append(inputs, Input{fmt.Sprint(i), fmt.Sprintf("%s.func help() { ret; }\n.visible .func f%d() { call.uni help, (); ret; }\n.extern .func f%d();\n.visible .entry k%d() { call.uni f%d, (); ret; }\n", linkHead, i, (i+1)%n, i, (i+1)%n)})
			}
			for b.Loop() {
				if _, err := Link(inputs, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
