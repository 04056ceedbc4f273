// Package images reads what NVIDIA's driver does not tell of an image: whether it is whole, what of it a device
// would run, and what its variables are called.
package images

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"muster/device"
	"muster/ptx/fatbin"
)

// The driver finds a variable by its name but cannot list the variables,
// so the names come from the image. A name that the driver does not know does no harm.

// Check returns why an image must not be given to the driver, or nil. The driver is not told
// the length, and would read beyond the end of a damaged image.
func Check(image []byte) error {
	switch {
	case len(bytes.TrimRight(image, "\x00")) == 0:
		return fmt.Errorf("the image is empty: %w", device.ErrInvalidImage)
	case IsELF(image):
		if _, err := openELF(image); err != nil {
			return fmt.Errorf("%w: the image begins as a cubin does: %w", device.ErrInvalidImage, err)
		}
	case fatbin.Recognise(image):
		if _, err := fatbin.List(image); err != nil {
			return fmt.Errorf("%w: %w", device.ErrInvalidImage, err)
		}
	case bytes.IndexByte(bytes.TrimRight(image, "\x00"), 0) >= 0:
		return fmt.Errorf("the image is neither PTX text nor a cubin nor a fat binary: %w", device.ErrInvalidImage)
	}
	return nil
}

// IsELF says whether an image is a cubin.
func IsELF(image []byte) bool { return bytes.HasPrefix(image, []byte(elf.ELFMAG)) }

// openELF reads the headers of a cubin and checks that all sections and segments that
// they declare lie within the image.
func openELF(image []byte) (*elf.File, error) {
	f, err := elf.NewFile(fatbin.PlainELF(bytes.NewReader(image)))
	if err != nil {
		return nil, err
	}
	inside := func(offset, size uint64) bool {
		return offset <= uint64(len(image)) && size <= uint64(len(image))-offset
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && s.Type != elf.SHT_NULL && !inside(s.Offset, s.FileSize) {
			return nil, fmt.Errorf("section %s has %d bytes at byte %d of an image of %d: it is cut short", s.Name, s.FileSize, s.Offset, len(image))
		}
	}
	for i, p := range f.Progs {
		if !inside(p.Off, p.Filesz) {
			return nil, fmt.Errorf("segment %d has %d bytes at byte %d of an image of %d: it is cut short", i, p.Filesz, p.Off, len(image))
		}
	}
	return f, nil
}

// Code is what a device would run of an image, decompressed: cubins, or PTX.
type Code struct {
	Parts [][]byte
	Whole bool // nothing is missing because it cannot be read
}

// CodeOf returns the code of an image: of a fat binary the machine code that the device can run or, if
// there is none, the PTX that the driver would compile.
func CodeOf(image []byte, compute device.Compute) Code {
	if !fatbin.Recognise(image) {
		return Code{[][]byte{image}, true}
	}
	entries, err := fatbin.List(image)
	if err != nil {
		return Code{}
	}
	runs := func(e fatbin.Entry) bool {
		return e.Kind == fatbin.ELF && e.Arch/10 == compute.Major && e.Arch%10 <= compute.Minor
	}
	wanted := func(e fatbin.Entry) bool { return e.Kind == fatbin.PTX }
	if slices.ContainsFunc(entries, runs) {
		wanted = runs
	}
	all := Code{Whole: slices.ContainsFunc(entries, wanted)}
	for _, e := range entries {
		switch {
		case !wanted(e):
		case e.Load() != nil:
			all.Whole = false
		default:
			all.Parts = append(all.Parts, e.Data)
		}
	}
	return all
}

// VariableNames returns the names of the variables that an image may have on a
// device, sorted. Parts that cannot be read are left out: refusing them is up to the driver.
func VariableNames(c Code) []string {
	var names []string
	for _, part := range c.Parts {
		if IsELF(part) {
			names = append(names, namesOfELF(part)...)
		} else {
			names = append(names, namesOfPTX(string(part))...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// namesOfELF returns the symbols in the sections of global variables and of the
// program's own constants (.nv.constant3).
func namesOfELF(image []byte) []string {
	f, err := openELF(image)
	if err != nil {
		return nil
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_OBJECT || int(s.Section) >= len(f.Sections) {
			continue
		}
		section := f.Sections[s.Section].Name
		if strings.HasPrefix(section, ".nv.global") || strings.HasPrefix(section, ".nv.constant3") {
			names = append(names, s.Name)
		}
	}
	return names
}

// namesOfPTX returns the names declared in the global and the constant space
// outside of functions. It understands only as much of the language as that needs, so
// it works for all versions.
func namesOfPTX(text string) []string {
	var names []string
	t := tokens{rest: text}
	depth := 0
	for tok := t.next(); tok != ""; tok = t.next() {
		switch {
		case strings.Contains(openers, tok):
			depth++
		case strings.Contains(closers, tok):
			depth--
		case depth == 0 && (tok == ".global" || tok == ".const"):
			names = append(names, t.declared()...)
		}
	}
	return names
}

const openers, closers = "({[", ")}]"

// tokens splits a text into words and signs, and skips blanks, comments and
// strings.
type tokens struct{ rest string }

// next returns the next token, "" at the end.
func (t *tokens) next() string {
	for t.rest != "" {
		switch c := t.rest[0]; {
		case c <= ' ':
			t.rest = t.rest[1:]
		case strings.HasPrefix(t.rest, "//"):
			t.skipTo("\n")
		case strings.HasPrefix(t.rest, "/*"):
			t.rest = t.rest[2:]
			t.skipTo("*/")
		case c == '"':
			t.rest = t.rest[1:]
			t.skipTo(`"`)
		default:
			n := 1
			for isWord(c) && n < len(t.rest) && isWord(t.rest[n]) && t.rest[n] != '.' {
				n++
			}
			tok := t.rest[:n]
			t.rest = t.rest[n:]
			return tok
		}
	}
	return ""
}

func (t *tokens) skipTo(end string) {
	_, t.rest, _ = strings.Cut(t.rest, end)
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '%' || c == '.' || c >= 0x80
}

func isName(tok string) bool {
	return isWord(tok[0]) && tok[0] != '.' && (tok[0] < '0' || tok[0] > '9') && (len(tok) > 1 || tok[0] != '%')
}

// declared returns the names in a declaration, up to its semicolon. Those are the first
// name in the declaration and the first after each comma. Names in brackets and after
// an equals sign are sizes and values.
func (t *tokens) declared() []string {
	var names []string
	wanted, depth := true, 0
	for tok := t.next(); tok != "" && (tok != ";" || depth > 0); tok = t.next() {
		switch {
		case strings.Contains(openers, tok):
			depth++
		case strings.Contains(closers, tok):
			depth--
		case depth > 0:
		case tok == ",":
			wanted = true
		case wanted && isName(tok):
			names = append(names, tok)
			wanted = false
		}
	}
	return names
}
