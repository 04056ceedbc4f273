package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Relocation is a place in a variable's initial bytes that holds an address,
// known only when the module is loaded. The place is zero until then.
type Relocation struct {
	Offset  int // in the variable
	Size    int // bytes
	Symbol  Symbol
	Addend  int64
	Generic bool   // the generic address, not the one within the symbol's state space
	Mask    uint64 // 0, or: take (address & Mask) >> Shift
	Shift   int
}

// maxData bounds the initial data of a variable: a few bytes of text can declare a huge one.
const maxData = 1 << 30

// Data returns the initial bytes of a variable, little-endian and as long as
// its Size, and the addresses to fill in. Without an initialiser all is zero.
func (v *Variable) Data() ([]byte, []Relocation, error) {
	size := v.Size()
	if size > maxData {
		return nil, nil, fmt.Errorf("%s has %d bytes; the limit for initial data is %d", v.Name, size, maxData)
	}
	w := &dataWriter{variable: v, bytes: make([]byte, size), element: v.Type.Size()}
	if v.Init != nil {
		dims := v.Dims
		if v.Vector != 0 {
			dims = append(dims[:len(dims):len(dims)], uint64(v.Vector))
		}
		if err := w.value(v.Init, 0, dims); err != nil {
			return nil, nil, err
		}
	}
	return w.bytes, w.relocations, nil
}

type dataWriter struct {
	variable    *Variable
	element     int
	bytes       []byte
	relocations []Relocation
}

func (w *dataWriter) errorf(v *Value, format string, args ...any) error {
	return fmt.Errorf("line %d: initial value of %s: %s", v.Line, w.variable.Name, fmt.Sprintf(format, args...))
}

// value writes one value at byte offset at; dims are the dimensions that remain at this depth of
// braces.
func (w *dataWriter) value(v *Value, at int, dims []uint64) error {
	switch v.Kind {
	case ListValue:
		return w.list(v, at, dims)
	case FieldValue:
		return w.errorf(v, "the field %s is no data", v.Name)
	}
	if at+w.element > len(w.bytes) {
		return w.errorf(v, "more values than the %d bytes declared", len(w.bytes))
	}
	if v.Kind == SymbolValue {
		r := Relocation{Offset: at, Size: w.element, Symbol: v.Symbol, Addend: v.Offset, Generic: v.Generic, Mask: v.Mask}
		if v.Mask != 0 {
			r.Shift = bits.TrailingZeros64(v.Mask)
		}
		w.relocations = append(w.relocations, r)
		return nil
	}
	raw, err := v.Literal.Encode(w.variable.Type)
	if err != nil {
		return w.errorf(v, "%v", err)
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], raw)
	copy(w.bytes[at:at+w.element], word[:])
	return nil
}

func (w *dataWriter) list(v *Value, at int, dims []uint64) error {
	if len(dims) == 0 {
		if len(v.Elements) != 1 || v.Elements[0].Kind == ListValue {
			return w.errorf(v, "more braces than dimensions")
		}
		return w.value(&v.Elements[0], at, nil)
	}
	step, end := w.element, w.element
	for i, d := range dims {
		end *= int(d)
		if i > 0 {
			step *= int(d)
		}
	}
	end += at
	for i := range v.Elements {
		e := &v.Elements[i]
		if at >= end {
			return w.errorf(e, "more values than the dimension holds")
		}
		if err := w.value(e, at, dims[1:]); err != nil {
			return err
		}
		// A nested list takes a whole row; a plain value takes one element.
		if at += w.element; e.Kind == ListValue {
			at += step - w.element
		}
	}
	return nil
}

// Encode returns the bits of the constant as a value of a type: floats
// are rounded to the type's width, integers truncated to it.
func (l Literal) Encode(t Type) (uint64, error) {
	isFloat := l.Kind >= FloatLiteral
	switch {
	case t.Bits() > 64:
		return 0, fmt.Errorf("a constant cannot have the type .%s", t)
	case isFloat && l.Kind == FloatLiteral && t.Bits() == 32, isFloat && l.Kind == DoubleLiteral && t.Bits() == 64:
		return l.Bits, nil
	case t == F32:
		return uint64(math.Float32bits(float32(l.Float64()))), nil
	case t == F64:
		return math.Float64bits(l.Float64()), nil
	case isFloat:
		return 0, fmt.Errorf("the floating-point constant %s cannot have the type .%s", l, t)
	case t.Bits() == 64:
		return l.Bits, nil
	}
	return l.Bits & (1<<t.Bits() - 1), nil
}
