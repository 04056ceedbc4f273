//go:build linux && amd64

#include "textflag.h"
#include "go_asm.h"

// func enter(f *Frame)
//
// The machine code gets the frame in BX and returns with RET. It pushes
// nothing, so the few bytes of this function's own frame suffice and the
// goroutine's stack need not be left; it keeps BP, so that stacks can be
// walked. The wrapper around this function restores what Go keeps in R14 and
// X15.
TEXT ·enter(SB), NOSPLIT, $8-8
	MOVQ f+0(FP), BX
	MOVQ Frame_pc(BX), AX
	CALL AX
	VZEROUPPER
	RET

// func cpuid(leaf, sub uint32) (a, b, c, d uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, a+8(FP)
	MOVL BX, b+12(FP)
	MOVL CX, c+16(FP)
	MOVL DX, d+20(FP)
	RET

// func xgetbv() (low, high uint32)
TEXT ·xgetbv(SB), NOSPLIT, $0-8
	XORL CX, CX
	XGETBV
	MOVL AX, low+0(FP)
	MOVL DX, high+4(FP)
	RET
