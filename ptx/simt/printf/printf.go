// Package printf writes what a kernel prints, as C's printf does. It knows formats and numbers, and
// no lane; arguments are read through Memory.
package printf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Memory is what arguments are read from.
type Memory interface {
	Number(addr, size uint64) uint64 // of 4 or 8 bytes
	Text(addr uint64) string         // at most maxText bytes of it
}

// Format does what C's printf does; args is the address of the arguments, each
// at a multiple of its size. It returns how many there were.
func Format(format string, args uint64, from Memory) (string, int) {
	var b strings.Builder
	n := 0
	next := func(size uint64) uint64 {
		args = (args + size - 1) &^ (size - 1)
		at := args
		args += size
		n++
		return from.Number(at, size)
	}
	// What strings have is counted as well, since a conversion may print nothing of it.
	read := 0
	for i := 0; i < len(format) && b.Len() < MaxText && read < maxRead; i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		s := parseVerb(format[i:])
		i += s.length - 1
		if s.verb == '%' {
			b.WriteByte('%')
			continue
		}
		if s.verb == 0 { // the text ends in the middle, or makes no sense
			b.WriteString(format[i-s.length+1 : i+1])
			continue
		}
		if s.starWidth {
			w := int(int32(next(4)))
			if w < 0 {
				s.flags += "-"
				w = -w
			}
			s.width = strconv.Itoa(min(w, MaxText))
		}
		if s.starPrecision {
			s.precision = ""
			if p := int(int32(next(4))); p >= 0 {
				s.precision = "." + strconv.Itoa(min(p, MaxText))
			}
		}
		size := uint64(4)
		if s.long || strings.IndexByte("fFeEgGaAsp", s.verb) >= 0 {
			size = 8
		}
		v := next(size)
		if s.verb == 's' {
			text := from.Text(v)
			read += len(text)
			b.WriteString(fmt.Sprintf("%"+s.flags+s.width+s.precision+"s", text))
			continue
		}
		b.WriteString(s.number(v))
	}
	return b.String(), n
}

// verb is one conversion of a format.
type verb struct {
	flags, width, precision  string
	starWidth, starPrecision bool
	long                     bool // 64 bits
	short                    int  // bits of hh and h
	verb                     byte
	length                   int // in the format
}

func parseVerb(s string) verb {
	v := verb{}
	i := 1
	digits := func() string {
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' && i-from < 5 {
			i++
		}
		return s[from:i]
	}
	for i < len(s) && strings.IndexByte("-+ #0", s[i]) >= 0 {
		if strings.IndexByte(v.flags, s[i]) < 0 {
			v.flags += string(s[i])
		}
		i++
	}
	if i < len(s) && s[i] == '*' {
		v.starWidth = true
		i++
	} else {
		v.width = digits()
	}
	if i < len(s) && s[i] == '.' {
		i++
		if i < len(s) && s[i] == '*' {
			v.starPrecision = true
			i++
		} else {
			v.precision = "." + digits()
		}
	}
	for i < len(s) && strings.IndexByte("hljztL", s[i]) >= 0 {
		switch s[i] {
		case 'h':
			v.short = 16
			if i > 0 && s[i-1] == 'h' {
				v.short = 8
			}
		default:
			v.long = true
		}
		i++
	}
	if i < len(s) && strings.IndexByte("diouxXcsfFeEgGaAp%", s[i]) >= 0 {
		v.verb = s[i]
		i++
	}
	v.length = i
	return v
}

// MaxText bounds strings in a kernel's memory, and what one printf writes, but
// for its last argument.
const MaxText = 64 << 10

// maxRead bounds what one printf reads of strings, whatever it writes of them.
const maxRead = 1 << 20

// number formats one that is not a string.
func (v *verb) number(bits uint64) string {
	if strings.IndexByte("uoxXcp", v.verb) >= 0 { // without a sign
		v.flags = strings.NewReplacer("+", "", " ", "").Replace(v.flags)
	}
	spec := "%" + v.flags + v.width
	switch v.verb {
	case 'd', 'i':
		n := int64(bits)
		switch {
		case v.short == 8:
			n = int64(int8(bits))
		case v.short == 16:
			n = int64(int16(bits))
		case !v.long:
			n = int64(int32(bits))
		}
		return v.integer(spec, "d", n, n == 0)
	case 'u', 'o', 'x', 'X':
		switch {
		case v.short == 8:
			bits &= 0xff
		case v.short == 16:
			bits &= 0xffff
		case !v.long:
			bits &= 0xffffffff
		}
		conversion := string(v.verb)
		if v.verb == 'u' {
			conversion = "d"
		}
		return v.integer(spec, conversion, bits, bits == 0)
	case 'c':
		return fmt.Sprintf("%"+strings.ReplaceAll(v.flags, "0", "")+v.width+"s", string([]byte{byte(bits)}))
	case 'p':
		return fmt.Sprintf("%"+strings.ReplaceAll(v.flags, "0", "")+v.width+"s", "0x"+strconv.FormatUint(bits, 16))
	}
	return v.float(math.Float64frombits(bits))
}

// integer formats an integer; with a precision, zeros do not fill the width,
// and zero with precision 0 is nothing, as in C.
func (v *verb) integer(spec, conversion string, n any, zero bool) string {
	if v.precision == "" {
		if strings.Contains(v.flags, "#") && zero {
			spec = strings.ReplaceAll(spec, "#", "")
		}
		return fmt.Sprintf(spec+conversion, n)
	}
	if zero && (v.precision == "." || v.precision == ".0") {
		return fmt.Sprintf("%"+strings.ReplaceAll(v.flags, "0", "")+v.width+"s", "")
	}
	return fmt.Sprintf("%"+strings.ReplaceAll(v.flags, "0", "")+v.width+v.precision+conversion, n)
}

// float formats a double as C does: Go's exponents and infinities differ.
func (v *verb) float(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		s := strings.ToLower(strings.TrimPrefix(fmt.Sprint(math.Abs(f)), "+"))
		if math.Signbit(f) && !math.IsNaN(f) {
			s = "-" + s
		} else if strings.Contains(v.flags, "+") {
			s = "+" + s
		}
		if v.verb < 'a' {
			s = strings.ToUpper(s)
		}
		return fmt.Sprintf("%"+strings.Trim(v.flags, "0+ #")+v.width+"s", s)
	}
	precision := v.precision
	switch {
	case precision == ".":
		precision = ".0"
	case precision == "" && v.verb != 'a' && v.verb != 'A':
		precision = ".6"
	}
	conversion := v.verb
	switch v.verb {
	case 'a':
		conversion = 'x'
	case 'A':
		conversion = 'X'
	case 'g', 'G':
		if precision == ".0" {
			precision = ".1"
		}
	}
	return fmt.Sprintf("%"+v.flags+v.width+precision+string(conversion), f)
}
