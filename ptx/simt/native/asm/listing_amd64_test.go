//go:build linux && amd64

package asm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A listing shows constants as the processor uses them. One byte behind an add or a comparison is
// extended with its sign; one behind a shift is a count. An operand in memory says how long it is if
// no register does.
func TestListedConstants(t *testing.T) {
	const add, and, cmp, shl, rax, r15 = 0, 4, 7, 4, 0, 15
	a := &Assembler{}
	a.Wanted = true
	for _, wide := range []bool{false, true} {
		for _, v := range []int32{-1, -128, 127, 128, 255, -129, -65536} {
			a.Immediate(wide, cmp, At(r15, 0), v)
		}
		a.Immediate(wide, add, InReg(rax), -8)
		a.Immediate(wide, and, InReg(rax), -16)
		a.Shift(wide, shl, rax, 31)
	}
	a.Shift(true, shl, rax, 63)
	var got []string
	for _, l := range a.Listing(a.Code, len(a.Code)) {
		got = append(got, fmt.Sprintf("%x %s", l.Bytes, l.Text))
	}
	want := []string{
		"41833fff cmp dword ptr [r15], -1",
		"41833f80 cmp dword ptr [r15], -128",
		"41833f7f cmp dword ptr [r15], 127",
		"41813f80000000 cmp dword ptr [r15], 128",
		"41813fff000000 cmp dword ptr [r15], 255",
		"41813f7fffffff cmp dword ptr [r15], -129",
		"41813f0000ffff cmp dword ptr [r15], -65536",
		"83c0f8 add eax, -8",
		"83e0f0 and eax, -16",
		"c1e01f shl eax, 31",
		"49833fff cmp qword ptr [r15], -1",
		"49833f80 cmp qword ptr [r15], -128",
		"49833f7f cmp qword ptr [r15], 127",
		"49813f80000000 cmp qword ptr [r15], 128",
		"49813fff000000 cmp qword ptr [r15], 255",
		"49813f7fffffff cmp qword ptr [r15], -129",
		"49813f0000ffff cmp qword ptr [r15], -65536",
		"4883c0f8 add rax, -8",
		"4883e0f0 and rax, -16",
		"48c1e01f shl rax, 31",
		"48c1e03f shl rax, 63",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
