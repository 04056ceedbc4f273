// Package asm encodes instructions of amd64 processors with AVX-512, and does each of
// these by several others for processors that have AVX2 alone.
//
// It knows how instructions are encoded and what they do, not what they are used for: no
// kernel, no lane and no gang. It can write down what it has encoded.
package asm

import "unsafe"

// Line is an instruction of the machine code, for people.
type Line struct {
	Offset int
	Bytes  []byte
	Text   string // as an assembler would write it, more or less
	Op     int32  // the instruction of the kernel that it is for; -1 if it is for none
	Role   string // what it does beside computing the result of Op
}

// ByAVX2 ends the Text of an instruction that the processor has not: Bytes are those of
// AVX2 that do it.
const ByAVX2 = "  (by AVX2)"

// Room is what code for AVX2 needs in memory: vectors and masks that are not in registers,
// and registers that are saved within one instruction.
type Room struct {
	virtual [34][64]byte
	masks   [8]uint64
	saved   [2]uint64
}

const (
	offVirtual = int(unsafe.Offsetof(Room{}.virtual))
	offMasks   = int(unsafe.Offsetof(Room{}.masks))
	offSaved   = int(unsafe.Offsetof(Room{}.saved))
)
