package ptx

import "strings"

// Type is a fundamental PTX type, as an instruction's suffix or a declaration names it.
type Type uint8

// The types. This package does not know which of them an instruction accepts.
const (
	NoType Type = iota
	B1
	B8
	B16
	B32
	B64
	B128
	U4
	U8
	U16
	U32
	U64
	S4
	S8
	S16
	S32
	S64
	F16
	F16X2
	BF16
	BF16X2
	TF32
	F32
	F32X2
	F64
	U16X2
	S16X2
	U8X4
	S8X4
	E4M3
	E5M2
	E4M3X2
	E5M2X2
	E2M1
	E2M3
	E3M2
	UE8M0
	E2M1X2
	E2M3X2
	E3M2X2
	UE8M0X2
	Pred
	TexRef
	SamplerRef
	SurfRef
)

type typeClass uint8

const (
	classNone typeClass = iota
	classBits
	classUnsigned
	classSigned
	classFloat
	classOpaque
)

var typeTable = [...]struct {
	name  string
	bits  int
	class typeClass
}{
	NoType: {"", 0, classNone},
	B1:     {"b1", 1, classBits}, B8: {"b8", 8, classBits}, B16: {"b16", 16, classBits},
	B32: {"b32", 32, classBits}, B64: {"b64", 64, classBits}, B128: {"b128", 128, classBits},
	U4: {"u4", 4, classUnsigned}, U8: {"u8", 8, classUnsigned}, U16: {"u16", 16, classUnsigned},
	U32: {"u32", 32, classUnsigned}, U64: {"u64", 64, classUnsigned},
	S4: {"s4", 4, classSigned}, S8: {"s8", 8, classSigned}, S16: {"s16", 16, classSigned},
	S32: {"s32", 32, classSigned}, S64: {"s64", 64, classSigned},
	F16: {"f16", 16, classFloat}, F16X2: {"f16x2", 32, classFloat},
	BF16: {"bf16", 16, classFloat}, BF16X2: {"bf16x2", 32, classFloat}, TF32: {"tf32", 32, classFloat},
	F32: {"f32", 32, classFloat}, F32X2: {"f32x2", 64, classFloat}, F64: {"f64", 64, classFloat},
	U16X2: {"u16x2", 32, classUnsigned}, S16X2: {"s16x2", 32, classSigned},
	U8X4: {"u8x4", 32, classUnsigned}, S8X4: {"s8x4", 32, classSigned},
	E4M3: {"e4m3", 8, classFloat}, E5M2: {"e5m2", 8, classFloat},
	E4M3X2: {"e4m3x2", 16, classFloat}, E5M2X2: {"e5m2x2", 16, classFloat},
	E2M1: {"e2m1", 4, classFloat}, E2M3: {"e2m3", 6, classFloat}, E3M2: {"e3m2", 6, classFloat}, UE8M0: {"ue8m0", 8, classFloat},
	E2M1X2: {"e2m1x2", 8, classFloat}, E2M3X2: {"e2m3x2", 16, classFloat}, E3M2X2: {"e3m2x2", 16, classFloat}, UE8M0X2: {"ue8m0x2", 16, classFloat},
	Pred:   {"pred", 1, classNone},
	TexRef: {"texref", 64, classOpaque}, SamplerRef: {"samplerref", 64, classOpaque}, SurfRef: {"surfref", 64, classOpaque},
}

var typeByName = func() map[string]Type {
	m := make(map[string]Type, len(typeTable))
	for t := B1; int(t) < len(typeTable); t++ {
		m[typeTable[t].name] = t
	}
	return m
}()

// TypeOf returns the type with a name such as "u32", or NoType.
func TypeOf(name string) Type { return typeByName[name] }

// String returns the name without its dot: "u32".
func (t Type) String() string { return typeTable[t].name }

// Bits returns the width; a predicate has one bit.
func (t Type) Bits() int { return typeTable[t].bits }

// Size returns the bytes that a value takes in memory; a predicate counts as one.
func (t Type) Size() int { return (typeTable[t].bits + 7) / 8 }

// Float says whether the type is a floating-point one, packed or not.
func (t Type) Float() bool { return typeTable[t].class == classFloat }

// Signed says whether the type is a signed integer.
func (t Type) Signed() bool { return typeTable[t].class == classSigned }

// Unsigned says whether the type is an unsigned integer.
func (t Type) Unsigned() bool { return typeTable[t].class == classUnsigned }

// Untyped says whether the type is a bare width, .b8 to .b128.
func (t Type) Untyped() bool { return typeTable[t].class == classBits }

// Space is a state space.
type Space uint8

// The state spaces. NoSpace on a load or store means generic addressing.
const (
	NoSpace Space = iota
	RegSpace
	ConstSpace
	GlobalSpace
	LocalSpace
	ParamSpace
	SharedSpace
	TexSpace
)

var spaceNames = [...]string{"", "reg", "const", "global", "local", "param", "shared", "tex"}

// String returns the name without its dot: "global".
func (s Space) String() string { return spaceNames[s] }

// SpaceOf returns the state space with a name such as "global" or
// "shared::cta", or NoSpace.
func SpaceOf(name string) Space {
	name, _, _ = strings.Cut(name, "::")
	for s := RegSpace; int(s) < len(spaceNames); s++ {
		if spaceNames[s] == name {
			return s
		}
	}
	return NoSpace
}

// Linkage says which other modules may see a symbol.
type Linkage uint8

// The linkages; Internal is the one without a directive.
const (
	Internal Linkage = iota
	Visible
	Extern
	Weak
	Common
)

var linkageNames = [...]string{"", "visible", "extern", "weak", "common"}

// String returns the name without its dot: "visible".
func (l Linkage) String() string { return linkageNames[l] }

func linkageOf(name string) (Linkage, bool) {
	for l := Visible; int(l) < len(linkageNames); l++ {
		if linkageNames[l] == name {
			return l, true
		}
	}
	return Internal, false
}
