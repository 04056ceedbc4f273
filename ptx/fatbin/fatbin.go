// Package fatbin reads CUDA fat binaries: containers that hold one program
// several times, as PTX text and as machine code for several architectures,
// each stored plain or compressed. nvcc -fatbin writes them to files and puts
// them in the section .nv_fatbin of executables.
//
// It finds, lists and decompresses what is inside. It must not know what PTX
// means, which entry suits a device, or how a program is loaded.
package fatbin

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what an entry holds. There may be others than those named here.
type Kind uint16

const (
	PTX  Kind = 1 // text in the parallel thread assembly
	ELF  Kind = 2 // machine code for one architecture (a cubin)
	NVVM Kind = 8 // intermediate code for the linker, in a form of its own
)

// String returns PTX, ELF, NVVM or kind N.
func (k Kind) String() string {
	switch k {
	case PTX:
		return "PTX"
	case ELF:
		return "ELF"
	case NVVM:
		return "NVVM"
	}
	return fmt.Sprintf("kind %d", uint16(k))
}

// Entry is one form of a program.
type Entry struct {
	Kind         Kind
	Arch         int    // 90 for sm_90, compute_90 and their variants such as sm_90a
	Variant      string // "a": for this architecture alone; "f": for its family; "" else
	Major, Minor int    // PTX: version of the language; else of the form of the content
	Name         string // the source file's name, where the compiler recorded it
	Options      string // for the program that compiles the content further
	Compressed   bool

	// Data is the content of PTX and ELF, decompressed; of PTX without the
	// NULs at its end. It is nil for other kinds, and after List for what is
	// compressed and not loaded yet.
	Data []byte

	stored []byte // as in the image
	method compression
	size   uint64 // of the content when decompressed
}

// Target returns the architecture with its variant, as in sm_90a.
func (e *Entry) Target() string { return fmt.Sprintf("sm_%d%s", e.Arch, e.Variant) }

// readable says whether Data can be had.
func (e *Entry) readable() bool { return e.Kind == PTX || e.Kind == ELF }

const (
	magic        = 0xBA55ED50
	magicOld     = 0x1EE55A01 // before CUDA 4
	magicWrapper = 0x466243B1 // the struct in an executable that points to a fat binary

	headerSize      = 16
	entryHeaderSize = 64
)

var order = binary.LittleEndian

// Recognise says whether an image begins as a fat binary does. Open says
// whether it is a sound one.
func Recognise(image []byte) bool {
	return len(image) >= 4 && order.Uint32(image) == magic
}

// Open returns all entries of an image, loaded, in the order of the image. An
// image may be several fat binaries one after the other, with zeros between
// them, as in an executable's section .nv_fatbin.
//
// Data of entries that are not compressed lies in the image itself. Memory
// beyond that is bounded by MaxLoaded, whatever the image declares.
func Open(image []byte) ([]Entry, error) {
	entries, err := List(image)
	if err != nil {
		return nil, err
	}
	var total uint64
	for i := range entries {
		e := &entries[i]
		if e.Data != nil || !e.readable() {
			continue
		}
		if total += e.size; total > MaxLoaded {
			return nil, fmt.Errorf("entries 0 to %d decompress to over %d bytes in all: list the image and load only what is needed", i, MaxLoaded)
		}
		if err := e.Load(); err != nil {
			return nil, fmt.Errorf("%w (entry %d)", err, i)
		}
	}
	return entries, nil
}

// List is Open without decompression: entries that are compressed have no
// Data until they are loaded. A device that wants one entry of a large image
// loads that one alone.
func List(image []byte) ([]Entry, error) {
	if err := checkMagic(image); err != nil {
		return nil, err
	}
	var entries []Entry
	for at := 0; at < len(image); {
		body, end, err := container(image, at)
		if err != nil {
			return nil, err
		}
		for len(body) > 0 {
			e, rest, err := entry(body)
			if err != nil {
				return nil, fmt.Errorf("entry %d at byte %d: %w", len(entries), end-len(body), err)
			}
			entries = append(entries, e)
			body = rest
		}
		at = skipZeros(image, end)
	}
	return entries, nil
}

// checkMagic explains what an image is that is no fat binary.
func checkMagic(image []byte) error {
	if Recognise(image) {
		return nil
	}
	if len(image) < 4 {
		return fmt.Errorf("%d bytes are too few for a fat binary", len(image))
	}
	switch got := order.Uint32(image); got {
	case magicWrapper:
		return errors.New("this is the wrapper that points to a fat binary in its program's memory: pass what it points to")
	case magicOld:
		return errors.New("a fat binary of a toolkit before CUDA 4: compile the program again with a current nvcc")
	default:
		return fmt.Errorf("no fat binary: it begins with %#08x, not %#08x", got, uint32(magic))
	}
}

// container returns the entries of the fat binary at a byte of the image, and
// the byte at which it ends.
func container(image []byte, at int) (body []byte, end int, err error) {
	h := image[at:]
	switch {
	case len(h) < headerSize:
		return nil, 0, fmt.Errorf("%d bytes at byte %d are too few for a header: the image is cut short or padded with other than zeros", len(h), at)
	case order.Uint32(h) != magic:
		return nil, 0, fmt.Errorf("what follows at byte %d begins with %#08x and is no fat binary", at, order.Uint32(h))
	}
	version, header, size := order.Uint16(h[4:]), order.Uint16(h[6:]), order.Uint64(h[8:])
	switch {
	case version != 1:
		return nil, 0, fmt.Errorf("version %d at byte %d: only version 1 is known", version, at)
	case header < headerSize || int(header) > len(h):
		return nil, 0, fmt.Errorf("a header of %d bytes at byte %d", header, at)
	case size > uint64(len(h)-int(header)):
		return nil, 0, fmt.Errorf("the fat binary at byte %d has %d bytes of entries, the image only %d: it is cut short", at, size, len(h)-int(header))
	}
	body = h[header:][:size]
	return body, at + int(header) + len(body), nil
}

func skipZeros(image []byte, at int) int {
	for at < len(image) && image[at] == 0 {
		at++
	}
	return at
}

// Flags of an entry.
const (
	flagLZ4     = 0x2000
	flagZstd    = 0x8000
	flagVariant = 0x100000 // sm_90a
	flagFamily  = 0x200000 // sm_100f
)

// entry reads the entry at the start of a body and returns what follows it.
func entry(body []byte) (e Entry, rest []byte, err error) {
	if len(body) < entryHeaderSize {
		return e, nil, fmt.Errorf("%d bytes are too few for its header", len(body))
	}
	size, padded := order.Uint32(body[4:]), order.Uint64(body[8:])
	if size < entryHeaderSize || uint64(size) > uint64(len(body)) {
		return e, nil, fmt.Errorf("a header of %d bytes, and %d bytes are left", size, len(body))
	}
	header, rest := body[:size], body[size:]
	if padded > uint64(len(rest)) {
		return e, nil, fmt.Errorf("%d bytes of content, and only %d are left", padded, len(rest))
	}
	flags := order.Uint64(header[40:])
	e = Entry{
		Kind:    Kind(order.Uint16(header)),
		Arch:    int(order.Uint32(header[28:])),
		Variant: variant(flags),
		Major:   int(order.Uint16(header[26:])),
		Minor:   int(order.Uint16(header[24:])),
		stored:  rest[:padded],
		size:    order.Uint64(header[56:]),
	}
	if err := e.readTexts(header); err != nil {
		return e, nil, err
	}
	if err := e.readCompression(flags, order.Uint32(header[16:])); err != nil {
		return e, nil, err
	}
	return e, rest[padded:], nil
}

func variant(flags uint64) string {
	switch {
	case flags&flagFamily != 0:
		return "f"
	case flags&flagVariant != 0:
		return "a"
	}
	return ""
}

// readTexts fills in the name and the options. Each is a place and a length;
// those of the options stand in a further record, which in ELF is no text.
func (e *Entry) readTexts(header []byte) (err error) {
	if e.Name, err = text(header, header[32:]); err != nil {
		return fmt.Errorf("its name: %w", err)
	}
	record := order.Uint32(header[20:])
	if record == 0 || e.Kind == ELF {
		return nil
	}
	if uint64(record)+8 > uint64(len(header)) {
		return fmt.Errorf("its options are at byte %d of a header of %d", record, len(header))
	}
	if e.Options, err = text(header, header[record:]); err != nil {
		return fmt.Errorf("its options: %w", err)
	}
	return nil
}

// text returns a string of a header, given its place and length.
func text(header, where []byte) (string, error) {
	at, length := uint64(order.Uint32(where)), uint64(order.Uint32(where[4:]))
	if length == 0 {
		return "", nil
	}
	if at+length > uint64(len(header)) {
		return "", fmt.Errorf("bytes %d to %d of a header of %d", at, at+length, len(header))
	}
	return string(header[at:][:length]), nil
}

// readCompression finds out how the content is stored, and takes it as it is
// where it is plain. compressed is its size without padding.
func (e *Entry) readCompression(flags uint64, compressed uint32) error {
	switch flags & (flagLZ4 | flagZstd) {
	case flagLZ4:
		e.method = lz4
	case flagZstd:
		e.method = zstandard
	case flagLZ4 | flagZstd:
		return fmt.Errorf("flags %#x name two compressions at once", flags)
	}
	e.Compressed = e.method != plain
	switch {
	case e.Compressed && uint64(compressed) > uint64(len(e.stored)):
		return fmt.Errorf("%d compressed bytes in %d bytes of content", compressed, len(e.stored))
	case e.Compressed:
		e.stored = e.stored[:compressed]
	case e.readable():
		e.Data = e.trim(e.stored)
	}
	return nil
}

// trim takes the NULs off the end of PTX. What is left is never nil.
func (e *Entry) trim(content []byte) []byte {
	n := len(content)
	for e.Kind == PTX && n > 0 && content[n-1] == 0 {
		n--
	}
	return content[:n]
}
