package ptx

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

const header = ".version 7.0\n.target sm_70\n.address_size 64\n"

// inBody wraps statements into a kernel with some registers; the statements begin at line 7.
func inBody(statements string) string {
	return header + ".global .u32 g[4];\n.func callee() { ret; }\n.entry k(.param .u64 a) { .reg .b32 %r<10>; .reg .b64 %rd<5>; .reg .f32 %f<5>; .reg .pred %p<3>;\n" +
		statements + "\n}\n"
}

func parse(t *testing.T, src string) *Module {
	t.Helper()
	m, err := Parse("t.ptx", src)
	if err != nil {
		t.Fatal(err)
	}
	if err := roundTrip(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestInstructions(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"ret;", "ret"},
		{"add.s32 %r1,%r2,-5;", "add.s32 %r1, %r2, -5"},
		{"add .s32 %r1, %r2, /* five */ 5;", "add.s32 %r1, %r2, 5"},
		{"mov.u32 %r1, 0x1F;", "mov.u32 %r1, 31"},
		{"mov.u32 %r1, 017;", "mov.u32 %r1, 15"},
		{"mov.u32 %r1, 0b101U;", "mov.u32 %r1, 5U"},
		{"mov.u32 %r1, 0;", "mov.u32 %r1, 0"},
		{"mov.u64 %rd1, 0xFFFFFFFFFFFFFFFF;", "mov.u64 %rd1, 18446744073709551615U"},
		{"mov.s64 %rd1, -9223372036854775808;", "mov.s64 %rd1, -9223372036854775808"},
		{"mov.f32 %f1, 0f3f800000;", "mov.f32 %f1, 0f3F800000"},
		{"mov.f32 %f1, -0f3F800000;", "mov.f32 %f1, 0fBF800000"},
		{"mov.f64 %rd1, 1.5;", "mov.f64 %rd1, 0d3FF8000000000000"},
		{"mov.f64 %rd1, 15e-1;", "mov.f64 %rd1, 0d3FF8000000000000"},
		{"mov.u32 %r1, (1+2)*3 == 9 && !0;", "mov.u32 %r1, 1"},
		{"mov.u32 %r1, 7-2-1;", "mov.u32 %r1, 4"},
		{"mov.u32 %r1, 1<<4|~0>>63^-1&3;", "mov.u32 %r1, -4"},
		{"mov.u32 %r1, (-1 < 1) + (-1 < 1U) * 2 + (2 <= 2) * 4 + (3 > 4) * 8 + (3 >= 4) * 16;", "mov.u32 %r1, 5"},
		{"mov.u32 %r1, (1 != 2) + (0 || 2) * 2 + (1 && 0) * 4 + !5 * 8;", "mov.u32 %r1, 3"},
		{"mov.s32 %r1, -7/2*10 + -7 % 2;", "mov.s32 %r1, -31"},
		{"mov.u32 %r1, 7U/2 + 7U % 4 + (1<<70) + (16U>>2) + (-1>>70);", "mov.u32 %r1, 9U"},
		{"mov.u32 %r1, 1 ? 7 : 9;", "mov.u32 %r1, 7"},
		{"mov.u32 %r1, 2>3?7:9;", "mov.u32 %r1, 9"},
		{"mov.u32 %r1, 0 ? 1 : 1 ? 2 : 3;", "mov.u32 %r1, 2"},
		{"mov.u32 %r1, 1 ? 0 ? 1 : 2 : 3;", "mov.u32 %r1, 2"},
		{"mov.u32 %r1, 0 || 1 ? 2 : 3 + 4;", "mov.u32 %r1, 2"},
		{"mov.u32 %r1, (0 ? 1 : 2) + 4;", "mov.u32 %r1, 6"},
		{"mov.u32 %r1, 1 ? 2 : 3U;", "mov.u32 %r1, 2U"},
		{"mov.f64 %rd1, 0 ? 1.0 : 1.5;", "mov.f64 %rd1, 0d3FF8000000000000"},
		{"mov.u32 %r1, !0 ? 3 : 4;", "mov.u32 %r1, 3"},
		{"mov.u32 %r1, !0 + 1;", "mov.u32 %r1, 2"},
		{"mov.u32 %r1, !(1 > 2) ? 3 : 4;", "mov.u32 %r1, 3"},
		{"ld.u32 %r1, [%rd1+(1 ? 8 : 4)];", "ld.u32 %r1, [%rd1+8]"},
		{"mov.u64 %rd1, (.u64)-1;", "mov.u64 %rd1, 18446744073709551615U"},
		{"mov.s64 %rd1, (.s64)0xFFFFFFFFFFFFFFFF;", "mov.s64 %rd1, -1"},
		{"mov.u32 %r1, (.s64)1U - 2 < 0;", "mov.u32 %r1, 1"},
		{"mov.u32 %r1, -(.u64)1 > 0;", "mov.u32 %r1, 1"},
		{"mov.f64 %rd1, -1.5;", "mov.f64 %rd1, 0dBFF8000000000000"},
		{"mov.u32 %r1, WARP_SZ-1;", "mov.u32 %r1, 31"},
		{"mov.u32 %r1, %tid.x;", "mov.u32 %r1, %tid.x"},
		{"mov.u32 %r1, %lanemask_lt;", "mov.u32 %r1, %lanemask_lt"},
		{"mov.u64 %rd1, g+-8;", "mov.u64 %rd1, g+-8"},
		{"@%p1 bra L; L:", "@%p1 bra L"},
		{"@!%p1 bra.uni L; L:", "@!%p1 bra.uni L"},
		{"setp.ne.s32 %p1|%p2, %r1, %r2;", "setp.ne.s32 %p1|%p2, %r1, %r2"},
		{"selp.b32 %r1, %r2, %r3, !%p1;", "selp.b32 %r1, %r2, %r3, !%p1"},
		{"ld.global.v2.b32 {%r1,_}, [%rd1];", "ld.global.v2.b32 {%r1, _}, [%rd1]"},
		{"ld.param.u64 %rd1, [a];", "ld.param.u64 %rd1, [a]"},
		{"ld.u32 %r1, [%rd1+0x10];", "ld.u32 %r1, [%rd1+16]"},
		{"ld.u32 %r1, [%rd1-4];", "ld.u32 %r1, [%rd1+-4]"},
		{"ld.shared::cluster.u32 %r1, [64];", "ld.shared::cluster.u32 %r1, [64]"},
		{"tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1}];", "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}]"},
		{"call.uni (%r1), callee, (%r2, 5);", "call.uni (%r1), callee, (%r2, 5)"},
		{"call callee;", "call callee"},
		{"ld.global.L2::128B.u32 %r1, [g];", "ld.global.L2::128B.u32 %r1, [g]"},
	} {
		f := parse(t, inBody(c.src)).Function("k")
		if got := f.Code[0].String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.src, got, c.want)
		}
	}
}

func TestInstructionProperties(t *testing.T) {
	f := parse(t, inBody("cvt.rn.f32.s32 %f1, %r1;\nst.shared.v2.f32 [%r3], {%f1, %f2};\nld.b32 %r1, [%rd1];")).Function("k")
	cvt, st, ld := f.Code[0], f.Code[1], f.Code[2]
	if cvt.Type(0) != F32 || cvt.Type(1) != S32 || cvt.Type(2) != NoType || !cvt.Has("rn") || cvt.Has("rz") || cvt.Name() != "cvt.rn.f32.s32" {
		t.Errorf("cvt: %+v", cvt)
	}
	if st.Space() != SharedSpace || st.Vector() != 2 || ld.Space() != NoSpace || ld.Vector() != 1 {
		t.Errorf("st %v %d, ld %v %d", st.Space(), st.Vector(), ld.Space(), ld.Vector())
	}
	if st.Pos != (Pos{8, 1}) || st.Operands[1].Pos != (Pos{8, 25}) {
		t.Errorf("positions: %v, %v", st.Pos, st.Operands[1].Pos)
	}
}

func TestRegistersAreInternedByScope(t *testing.T) {
	f := parse(t, inBody("mov.b32 %r7, %r7; { .reg .b32 %r7; .reg .f64 x; mov.b32 %r7, 1; } add.s32 %r7, %r1, %r7;")).Function("k")
	outer, inner := f.Code[0].Operands[0].Register, f.Code[1].Operands[0].Register
	if outer == inner || f.Code[2].Operands[0].Register != outer || f.Code[0].Operands[1].Register != outer {
		t.Error("scopes are mixed up")
	}
	if len(f.Registers) != 3 { // %r7, the inner %r7 and %r1; the others are never used
		t.Errorf("%d registers", len(f.Registers))
	}
	for i, r := range f.Registers {
		if r.Index != i {
			t.Errorf("%s has index %d at %d", r.Name, r.Index, i)
		}
	}
}

func TestLabelsResolveInnermostAndForward(t *testing.T) {
	f := parse(t, inBody("L: bra L; { bra L; add.s32 %r1, %r1, 1; L: ret; } bra E; E:")).Function("k")
	var targets []int
	for _, i := range f.Code {
		if i.Opcode == "bra" {
			targets = append(targets, i.Operands[0].Symbol.(*Label).Target)
		}
	}
	if fmt.Sprint(targets) != "[0 3 5]" || len(f.Code) != 5 {
		t.Errorf("targets %v in %d instructions", targets, len(f.Code))
	}
}

func TestCallAndTargets(t *testing.T) {
	src := header + `
.func (.param .b32 r) f(.param .b32 a);
.entry k() {
	.reg .b32 %r<3>; .reg .b64 %rd<2>;
	.param .b32 x; .param .b32 y;
	P: .callprototype (.param .b32 _) _ (.param .b32 _);
	T: .branchtargets A, B;
	call (y), f, (x);
	call (y), %rd1, (x), P;
	brx.idx %r1, T;
A:	ret;
B:	trap;
}
.func (.param .b32 r) f(.param .b32 a) { ret; }
`
	m := parse(t, src)
	code := m.Function("k").Code
	direct, _ := code[0].Call()
	if direct.Callee.Symbol != Symbol(m.Functions[2]) || !m.Functions[2].Defined || direct.Targets != nil {
		t.Error("a direct call goes to the definition")
	}
	indirect, ok := code[1].Call()
	proto, isProto := indirect.Targets.(*Prototype)
	if !ok || !isProto || len(proto.Params) != 1 || indirect.Callee.Register == nil || indirect.Args[0].Name != "x" || indirect.Returns[0].Name != "y" {
		t.Errorf("indirect call: %+v", indirect)
	}
	list := code[2].Operands[1].Symbol.(*TargetList)
	if list.Targets[1].Symbol.(*Label).Target != 4 {
		t.Error("second branch target")
	}
	if _, ok := code[2].Call(); ok {
		t.Error("brx is no call")
	}
}

func TestParameterLayout(t *testing.T) {
	m := parse(t, header+".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .f32 d)\n.maxntid 32, 2\n.noreturn { ret; }")
	f := m.Function("k")
	var offsets []int
	for _, p := range f.Params {
		offsets = append(offsets, p.Offset)
	}
	if fmt.Sprint(offsets, f.ParamSize) != "[0 8 16 36] 40" {
		t.Errorf("offsets %v, size %d", offsets, f.ParamSize)
	}
	if v, ok := f.Directive("maxntid"); !ok || fmt.Sprint(v) != "[32 2]" || !f.NoReturn {
		t.Errorf("directives: %v", f.Directives)
	}
	if _, ok := f.Directive("maxnreg"); ok {
		t.Error("a directive that is not there")
	}
}

// Hidden parameters, which newer compilers append to a kernel's, come after the others.
func TestHiddenParameter(t *testing.T) {
	m := parse(t, ".version 9.1\n.target sm_120a\n.address_size 64\n.entry k(.param .u64 .ptr .global .align 1 a, .hidden .param .align 64 .b8 b[128]) { ret; }")
	p := m.Function("k").Params
	if p[0].Hidden || !p[1].Hidden || p[1].Offset != 64 || m.Function("k").ParamSize != 192 {
		t.Errorf("%+v, %+v, %d bytes", p[0], p[1], m.Function("k").ParamSize)
	}
}

// The largest parameters that the PTX manual allows.
func TestLargestParameters(t *testing.T) {
	for _, c := range []struct {
		version, target string
		bytes           int
	}{{"2.3", "sm_20", 4352}, {"8.0", "sm_90", 4352}, {"8.1", "sm_70", 32764}, {"9.1", "sm_120a, debug", 32764}, {"8.1", "sm_61", 4352}} {
		parse(t, fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n.entry k(.param .b8 a[%d]) { ret; }", c.version, c.target, c.bytes))
	}
}

func TestData(t *testing.T) {
	for _, c := range []struct{ decl, want string }{
		{".global .u32 v;", "[0 0 0 0]"},
		{".global .u32 v = 258;", "[2 1 0 0]"},
		{".global .s16 v = -2;", "[254 255]"},
		{".global .f32 v = 0f3F800000;", "[0 0 128 63]"},
		{".global .f32 v = 1.0;", "[0 0 128 63]"},
		{".global .u32 v = 0f3F800000;", "[0 0 128 63]"},
		{".global .f64 v = 1;", "[0 0 0 0 0 0 240 63]"},
		{".global .b8 v[4] = {1, 2};", "[1 2 0 0]"},
		{".global .b8 v[] = {1, 2, 3};", "[1 2 3]"},
		{".global .b8 v[2][3] = {{1}, {2, 3}};", "[1 0 0 2 3 0]"},
		{".global .b8 v[2][3] = {1, 2, 3, 4};", "[1 2 3 4 0 0]"},
		{".global .v2 .u8 v[2] = {{1, 2}, {3, 4}};", "[1 2 3 4]"},
		{".global .u8 v[2] = {1, 2, 3};", "line 4: initial value of v: more values than the dimension holds"},
		{".global .u8 v[2] = {{{1}}};", "line 4: initial value of v: more braces than dimensions"},
		{".global .u8 v = 1.5;", "line 4: initial value of v: the floating-point constant 0d3FF8000000000000 cannot have the type .u8"},
		{".global .u8 v[2000000000];", "v has 2000000000 bytes; the limit for initial data is 1073741824"},
	} {
		data, relocations, err := parse(t, header+c.decl).Variables[0].Data()
		got := fmt.Sprint(data)
		if err != nil {
			got = err.Error()
		}
		if got != c.want || len(relocations) != 0 {
			t.Errorf("%s: got %s, want %s", c.decl, got, c.want)
		}
	}
}

func TestDataRelocations(t *testing.T) {
	m := parse(t, header+".func f();\n.global .u64 v[3] = {f, generic(w)+4, 0xff00(w)};\n.global .u32 w;")
	_, got, err := m.Variables[0].Data()
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	w := m.Lookup("w")
	want := []Relocation{{0, 8, m.Lookup("f"), 0, false, 0, 0}, {8, 8, w, 4, true, 0, 0}, {16, 8, w, 0, false, 0xff00, 8}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("relocation %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestTypesAndSpaces(t *testing.T) {
	for typ := B1; int(typ) < len(typeTable); typ++ {
		if typ.String() == "" || TypeOf(typ.String()) != typ || typ.Bits() == 0 {
			t.Errorf("type %d: %q, %d bits", typ, typ, typ.Bits())
		}
	}
	if !F16X2.Float() || !S64.Signed() || !U8.Unsigned() || !B32.Untyped() || F64.Size() != 8 || Pred.Size() != 1 || TypeOf("u33") != NoType {
		t.Error("type properties")
	}
	if SpaceOf("shared::cta") != SharedSpace || SpaceOf("sharedcta") != NoSpace || ParamSpace.String() != "param" {
		t.Error("spaces")
	}
}

func TestGoldenPrint(t *testing.T) {
	src, err := os.ReadFile("testdata/parse/constructs.ptx")
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, string(src)).String()
	const golden = "testdata/parse/constructs.golden"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestErrors(t *testing.T) {
	deep := strings.Repeat("{", 70)
	for _, c := range []struct{ name, src, want string }{
		{"empty", "", `1:1: expected .version as the first directive, found the end of the file`},
		{"version", ".version eight", `1:10: expected a version such as 8.5, found "eight"`},
		{"zeros", "\x00\x00\x00", `1:1: this is no PTX text: it is 3 NUL bytes and nothing else`},
		{"future", ".version 10.0", `1:10: this is PTX 10.0, and PTX 2.3 to 9.x can be read: compile the source with an older nvcc or clang`},
		{"old", ".version 1.4\n.target sm_10, map_f64_to_f32\n.entry k { .param .u32 p; exit; }\n", `1:10: this is PTX 1.4, and PTX 2.3 to 9.x can be read: compile the source with nvcc 4.0 or later, or with clang`},
		{"old too", "// comment\n.version 2.2\n.target sm_20\n.entry k(.param .u64 p) { exit; }\n", `2:10: this is PTX 2.2, and PTX 2.3 to 9.x can be read: compile the source with nvcc 4.0 or later, or with clang`},
		{"target", ".version 8.0\n.entry", `2:1: expected .target after .version, found ".entry"`},
		{"address size", ".version 8.0\n.target sm_70\n.address_size 16", `3:1: expected .address_size 32 or 64, found 16`},
		{"directive", header + "add", `4:1: expected a directive such as .visible, .entry or .global, found "add"`},
		{"unknown directive", header + ".visible .foo", `4:10: expected a directive such as .entry, .func or .global, found ".foo"`},
		{"type", header + ".global x;", `4:9: expected a type such as .u32, found "x"`},
		{"align", header + ".global .align 3 .u32 x;", `4:16: expected a power of two as alignment, found 3`},
		{"too large", header + ".global .u32 x[1000000][1000000];", `4:14: "x" is larger than 1099511627776 bytes`},
		{"open inner", header + ".global .u32 x[2][];", `4:14: only the first dimension of "x" can be left open`},
		{"duplicate variable", header + ".global .u32 x;\n.global .u32 x;", `5:14: "x" is already declared at line 4`},
		{"duplicate function", header + ".func f() {}\n.func f() {}", `5:7: "f" is already declared at line 4`},
		{"duplicate parameter", header + ".func f(.param .u32 a, .param .u32 a) {}", `4:36: "a" is already declared at line 4`},
		{"hidden parameter", header + ".func f(.hidden .param .u32 a) {}", `4:9: expected .param, found ".hidden"`},
		{"hidden of a prototype", inBody("P: .callprototype _ (.hidden .param .u32 a);"), `7:22: expected .param, found ".hidden"`},
		{"visible parameter", header + ".entry k(.visible .param .u32 a) {}", `4:10: expected .param, found ".visible"`},
		{"empty parameter", header + ".entry k(.param .u64 a, .param .b8 b[0]) {}", `4:36: parameter "b" of kernel "k" has no bytes: say how long the array is`},
		{"open parameter", header + ".entry k(.param .b8 b[]) {}", `4:21: parameter "b" of kernel "k" has no bytes: say how long the array is`},
		{"empty inner", header + ".entry k(.param .b8 b[4][0]) {}", `4:21: parameter "b" of kernel "k" has no bytes: say how long the array is`},
		{"large parameter", header + ".entry k(.param .u64 a, .param .b8 b[2147483648]) {}",
			`4:36: the parameters of kernel "k" take 2147483656 bytes up to "b"; in PTX 7.0 for sm_70 they may take 4352`},
		{"large parameters", header + ".entry k(.param .b8 a[4345], .param .b8 b[8], .param .u64 c) {}",
			`4:41: the parameters of kernel "k" take 4353 bytes up to "b"; in PTX 7.0 for sm_70 they may take 4352`},
		{"large new parameter", ".version 8.1\n.target sm_90a\n.address_size 64\n.entry k(.param .b8 a[32765]) {}",
			`4:21: the parameters of kernel "k" take 32765 bytes up to "a"; in PTX 8.1 for sm_90a they may take 32764`},
		{"large parameter of an old GPU", ".version 9.0\n.target sm_61\n.address_size 64\n.entry k(.param .b8 a[4353]) {}",
			`4:21: the parameters of kernel "k" take 4353 bytes up to "a"; in PTX 9.0 for sm_61 they may take 4352`},
		{"initialiser", header + ".global .u64 x = y;", `4:18: "y" is not declared`},
		{"alias", header + ".alias a, b;", `4:11: "b" is not declared`},
		{"head", header + ".func f() .maxfoo 3 {}", `4:11: expected a directive such as .maxntid, or the body, found ".maxfoo"`},
		{"no body", header + ".func f() 3", `4:11: expected "{" or ";" after the head of the function, found "3"`},
		{"unclosed", header + ".func f() { ret;", `4:17: expected "}", found the end of the file`},
		{"section", header + ".section .debug { .b8 1", `4:24: expected "}" at the end of the section, found the end of the file`},
		{"comment", header + "/* no end", `4:1: comment without its end: expected */`},
		{"string", header + ".file 1 \"x\n", `4:9: string without its end: expected " before the end of the line`},
		{"character", inBody("add.s32 %r1, #5;"), `7:14: unexpected character "#"`},
		{"number", inBody("mov.u32 %r1, 0xZZ;"), `7:14: malformed number "0xZZ"`},
		{"octal", inBody("mov.u32 %r1, 089;"), `7:14: malformed number "089"`},
		{"short float", inBody("mov.f32 %f1, 0f3F80;"), `7:14: malformed number "0f3F80"`},
		{"division", inBody("mov.u32 %r1, 1/0;"), `7:15: division by zero in a constant`},
		{"float condition", inBody("mov.u32 %r1, 1.0 ? 2 : 3;"), `7:18: expected an integer before ?, found 0d3FF0000000000000`},
		{"choice of kinds", inBody("mov.u32 %r1, 1 ? 2 : 1.0;"), `7:16: expected two integers or two floating-point numbers after ?, found 2 and 0d3FF0000000000000`},
		{"half a choice", inBody("mov.u32 %r1, 1 ? 2;"), `7:19: expected ":", found ";"`},
		{"choice as offset", inBody("ld.u32 %r1, [%rd1+1?2:3];"), `7:20: expected "]", found "?"`},
		{"deep choice", inBody("mov.u32 %r1, " + strings.Repeat("1?", 70)), `7:144: nested more than 64 deep`},
		{"float cast", inBody("mov.u32 %r1, (.s64)1.0;"), `7:14: expected an integer after (.s64), found 0d3FF0000000000000`},
		{"float arithmetic", inBody("mov.f32 %f1, 1.0+2;"), `7:17: expected integers on both sides of +, found 0d3FF0000000000000 and 2`},
		{"register", inBody("add.s32 %r1, %r2, %r10;"), `7:19: "%r10" is not declared`},
		{"leading zero", inBody("mov.u32 %r1, %r01;"), `7:14: "%r01" is not declared`},
		{"label", inBody("bra nowhere;"), `7:5: "nowhere" is not declared`},
		{"label out of scope", inBody("{ L: ret; } bra L;"), `7:17: "L" is not declared`},
		{"register out of scope", inBody("{ .reg .b32 x; } mov.b32 x, 1;"), `7:26: "x" is not declared`},
		{"late register", inBody("mov.b32 x, 1; .reg .b32 x;"), `7:9: "x" is used before its declaration at line 7`},
		{"duplicate label", inBody("L: ret;\nL: ret;"), `8:1: "L" is already declared at line 7`},
		{"duplicate family", inBody(".reg .b32 %r<3>;"), `7:11: "%r<>" is already declared at line 6`},
		{"single in family", inBody(".reg .b32 %r3;"), `7:11: "%r3" is already declared at line 6`},
		{"family over single", inBody(".reg .b32 x3;\n.reg .b32 x<4>;"), `8:11: "x3" is already declared at line 7`},
		{"count", inBody(".reg .b32 %x<9999999999>;"), `7:14: expected a number of registers below 2147483648, found "9999999999"`},
		{"guard type", inBody("@%r1 ret;"), `7:2: expected a .pred register as guard, found "%r1" of type .b32`},
		{"guard name", inBody("@%q ret;"), `7:2: the guard "%q" is not declared as a .pred register`},
		{"separator", inBody("add.s32 %r1 %r2;"), `7:13: expected "," or ";", found "%r2"`},
		{"no semicolon", inBody("ret"), `8:1: expected an operand, found "}"`},
		{"missing operand", inBody("add.s32 %r1, ;"), `7:14: expected an operand, found ";"`},
		{"bracket", inBody("ld.u32 %r1, [%rd1;"), `7:18: expected "]", found ";"`},
		{"component", inBody("mov.u64 %rd1, g.x;"), `7:15: expected a register, found "g"`},
		{"register offset", inBody("mov.u64 %rd1, %rd2+4;"), `7:15: expected a variable before the offset, found register "%rd2"`},
		{"opcode", inBody("%r1 = 5;"), `7:1: expected an instruction, a directive or a label with its colon, found "%r1"`},
		{"call", inBody("call (%r1);"), `7:1: expected call (results), function, (arguments); found no function`},
		{"call tail", inBody("call callee, (%r1), 5;"), `7:21: expected a prototype or a list of targets after the arguments of the call`},
		{"body directive", inBody(".maxntid 3;"), `7:1: expected a directive such as .reg, .local or .loc, found ".maxntid"`},
		{"long name", inBody("bra " + strings.Repeat("x", 100) + ";"), `7:5: "` + strings.Repeat("x", 60) + `..." is not declared`},
		{"string at the end", header + `.file 1 "x\`, `4:9: string without its end: expected " before the end of the file`},
		{"mask", header + ".global .u8 x = 0(x);", `4:17: expected a mask such as 0xff before the parenthesis, found 0`},
		{"float address", inBody("ld.u32 %r1, [1.5];"), `7:14: expected an integer address, found 0d3FF8000000000000`},
		{"float offset", inBody("ld.u32 %r1, [g+1.5];"), `7:15: expected an integer offset, found 0d3FF8000000000000`},
		{"not of a float", inBody("mov.f32 %f1, ~1.5;"), `7:14: expected an integer after ~, found 0d3FF8000000000000`},
		{"negative dimension", header + ".global .u8 x[-1];", `4:15: expected a dimension, found "-"`},
		{"guard is a variable", inBody("@g ret;"), `7:2: the guard "g" is not declared as a .pred register`},
		{"guard is a parameter", inBody("@a ret;"), `7:2: expected a .pred register as guard, found "a"`},
		{"nesting", inBody(deep), `7:65: nested more than 64 deep`},
		{"list nesting", header + ".global .u8 x = " + deep, `4:82: nested more than 64 deep`},
		{"parentheses", inBody("mov.u32 %r1, " + strings.Repeat("(", 100000)), `7:79: nested more than 64 deep`},
		{"minus signs", inBody("mov.u32 %r1, " + strings.Repeat("-", 100000)), `7:79: nested more than 64 deep`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse("t.ptx", c.src)
			var all Errors
			if !errors.As(err, &all) || m != nil {
				t.Fatalf("got module %v, error %v", m, err)
			}
			if got := all[0].Error(); got != "t.ptx:"+c.want {
				t.Errorf("got  %s\nwant t.ptx:%s", got, c.want)
			}
		})
	}
}

func TestManyErrorsInOrder(t *testing.T) {
	src := inBody("add.s32 %r1 %r2;\nmov.u32 %r1, %x;\nld.v2.u32 {%r1,, %r2}, [g];\nbra L;\n{ mov.u32 %r1, #; }\nret;") +
		".entry broken(\n.visible .func good() { mov.u32 y, 1; }\n"
	_, err := Parse("t.ptx", src)
	want := `t.ptx:7:13: expected "," or ";", found "%r2"
t.ptx:8:14: "%x" is not declared
t.ptx:9:16: expected an operand, found ","
t.ptx:10:5: "L" is not declared
t.ptx:11:16: unexpected character "#"
t.ptx:15:1: expected .param, found ".visible"
t.ptx:15:33: "y" is not declared`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var one *Error
	if !errors.As(err, &one) || one.Line != 7 || one.Column != 13 || one.File != "t.ptx" {
		t.Errorf("the first error: %+v", one)
	}
}

func TestErrorsAreLimited(t *testing.T) {
	_, err := Parse("t.ptx", inBody(strings.Repeat("add add;;\n", 1000)))
	var all Errors
	if !errors.As(err, &all) || len(all) != maxErrors {
		t.Errorf("%d errors", len(all))
	}
}

// TestHostileInputIsLinear parses texts that would take minutes if any part were quadratic.
func TestHostileInputIsLinear(t *testing.T) {
	const n = 100_000
	var labels, families strings.Builder
	for i := range n {
		fmt.Fprintf(&labels, "bra L%d;\n", n-1-i)
		fmt.Fprintf(&families, ".reg .b32 x%da<2000000000>, y%d;\n", i, i)
	}
	for i := range n {
		fmt.Fprintf(&labels, "L%d:\n", i)
	}
	for name, src := range map[string]string{
		"labels":   inBody(strings.Repeat("{", 60) + labels.String() + strings.Repeat("}", 60)),
		"families": inBody(families.String()),
		"vector":   inBody("mov.b32 {" + strings.Repeat("_,", n) + "_}, 1;"),
		"sum":      inBody("mov.b32 %r1, " + strings.Repeat("1+", n) + "1;"),
		"values":   header + ".global .b8 x[] = {" + strings.Repeat("1,", n) + "1};",
		"targets":  ".version 7.0\n.target a" + strings.Repeat(",b", n),
		"blocks":   inBody(strings.Repeat("{}", n)),
		"comments": header + strings.Repeat("/*\n*/", n),
	} {
		if _, err := Parse(name, src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMutatedTokens changes well-formed text a few tokens at a time, which
// reaches deeper than changing bytes: whatever is accepted must round trip.
func TestMutatedTokens(t *testing.T) {
	src := corpus(t)["parse/constructs.ptx"]
	var tokens []string
	for s := newScanner(src); ; {
		tok := s.next()
		if tok.kind == tokEnd {
			break
		}
		tokens = append(tokens, src[tok.from:tok.through])
	}
	dice := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 3000 {
		changed := slices.Clone(tokens)
		for range 1 + dice.IntN(2) {
			at := dice.IntN(len(changed))
			switch dice.IntN(4) {
			case 0:
				changed = slices.Delete(changed, at, at+1)
			case 1:
				changed = slices.Insert(changed, at, tokens[dice.IntN(len(tokens))])
			case 2:
				changed[at] = tokens[dice.IntN(len(tokens))]
			case 3:
				from := dice.IntN(at + 1)
				changed = slices.Insert(changed, at, slices.Clone(changed[from:min(at, from+20)])...)
			}
		}
		m, err := Parse("mutated.ptx", strings.Join(changed, "\n"))
		if err != nil {
			continue
		}
		accepted++
		if err := roundTrip(m); err != nil {
			t.Fatal(err)
		}
	}
	if accepted < 100 {
		t.Errorf("only %d of the mutations were accepted, which tests little", accepted)
	}
}

func TestLiteralValues(t *testing.T) {
	for _, c := range []struct {
		literal Literal
		integer bool
		value   float64
	}{
		{Literal{IntLiteral, ^uint64(0)}, true, -1},
		{Literal{UintLiteral, 1 << 63}, true, 1 << 63},
		{Literal{FloatLiteral, 0x3FC00000}, false, 1.5},
		{Literal{DoubleLiteral, 0x3FF8000000000000}, false, 1.5},
	} {
		if v, ok := c.literal.Int(); ok != c.integer || uint64(v) != c.literal.Bits {
			t.Errorf("%s as integer: %d, %v", c.literal, v, ok)
		}
		if v := c.literal.Float64(); v != c.value {
			t.Errorf("%s as double: %g, want %g", c.literal, v, c.value)
		}
	}
}

func TestAliasesAndFormat(t *testing.T) {
	m := parse(t, header+".func a();\n.alias a, f;\n.func f() { ret; }\n.func g() { call a; }")
	if m.Function("a") != m.Function("f") || m.Function("f") == nil || m.Function("none") != nil {
		t.Error("an alias stands for its function")
	}
	var out strings.Builder
	if err := m.Format(&out); err != nil || out.String() != m.String() {
		t.Errorf("%v: %s", err, out.String())
	}
	call, _ := m.Function("g").Code[0].Call()
	if call.Callee.String() != "a" {
		t.Errorf("callee %s", &call.Callee)
	}
}

func TestTrailingZeroBytes(t *testing.T) {
	parse(t, header+".func f();\n\x00\x00")
}

func FuzzParse(f *testing.F) {
	for _, text := range corpus(f) {
		if len(text) < 4_000 { // larger ones only slow the fuzzer down
			f.Add(text)
		}
	}
	f.Add(inBody("@!%p1 call.uni (%r1), callee, (%r2, 5); { .reg .b32 x; L: bra L; }"))
	f.Add(header + ".global .b8 x[2][3] = {{1}, {0xff(x), generic(x)+4}};")
	f.Fuzz(func(t *testing.T, src string) {
		m, err := Parse("fuzz.ptx", src)
		if err != nil {
			return
		}
		if err := roundTrip(m); err != nil {
			t.Fatal(err)
		}
		for _, v := range m.Variables {
			if v.Size() < 1<<20 {
				_, _, _ = v.Data() // must not panic; it may refuse
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := corpus(b)["parse/language-clang19-O2.ptx"]
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("b.ptx", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	m, err := Parse("b.ptx", corpus(b)["parse/language-clang19-O2.ptx"])
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = m.String()
	}
}
