// Package fatbin reads CUDA fat binaries: containers that hold one program
// several times, as PTX text and as machine code for several architectures,
// each stored plain or compressed. nvcc -fatbin writes them to files and puts
// them in the section .nv_fatbin of executables.
//
// It finds, lists and decompresses what is inside. It must not know what PTX
// means, which entry suits a device, or how a program is loaded.
package fatbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what an entry holds. Kinds without a name here exist (they hold
// what linkers use) and are listed like any other.
type Kind uint16

const (
	PTX Kind = 1 // text in the parallel thread assembly
	ELF Kind = 2 // machine code for one architecture (a cubin)
)

// String returns PTX, ELF or kind N.
func (k Kind) String() string {
	switch k {
	case PTX:
		return "PTX"
	case ELF:
		return "ELF"
	}
	return fmt.Sprintf("kind %d", uint16(k))
}

// Entry is one form of a program.
type Entry struct {
	Kind         Kind
	Arch         int    // 90 for sm_90 and compute_90, and also for their variants such as sm_90a
	Major, Minor int    // PTX: version of the language; ELF: version of the code format
	Name         string // the source file's name, where the compiler recorded it
	Options      string // options for the assembler, as recorded for PTX
	Compressed   bool

	// Data is the entry's content, decompressed, without the NULs that end
	// PTX text. It is nil after List for an entry that is compressed and not
	// loaded yet.
	Data []byte

	stored []byte // as in the image
	method compression
	size   uint64 // of the content when decompressed
}

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
		if e.Data != nil {
			continue
		}
		if total += e.size; total > MaxLoaded {
			return nil, fmt.Errorf("fatbin: entries 0 to %d decompress to over %d bytes in all: list the image and load only what is needed", i, MaxLoaded)
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
				return nil, fmt.Errorf("fatbin: entry %d at byte %d: %w", len(entries), end-len(body), err)
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
		return fmt.Errorf("fatbin: %d bytes are too few for a fat binary", len(image))
	}
	switch got := order.Uint32(image); got {
	case magicWrapper:
		return errors.New("fatbin: this is the wrapper that points to a fat binary in its program's memory: pass what it points to")
	case magicOld:
		return errors.New("fatbin: a fat binary of a toolkit before CUDA 4: compile the program again with a current nvcc")
	default:
		return fmt.Errorf("fatbin: no fat binary: it begins with %#08x, not %#08x", got, uint32(magic))
	}
}

// container returns the entries of the fat binary at a byte of the image, and
// the byte at which it ends.
func container(image []byte, at int) (body []byte, end int, err error) {
	h := image[at:]
	switch {
	case len(h) < headerSize:
		return nil, 0, fmt.Errorf("fatbin: %d bytes at byte %d are too few for a header: the image is cut short or padded with other than zeros", len(h), at)
	case order.Uint32(h) != magic:
		return nil, 0, fmt.Errorf("fatbin: what follows at byte %d begins with %#08x and is no fat binary", at, order.Uint32(h))
	}
	version, header, size := order.Uint16(h[4:]), order.Uint16(h[6:]), order.Uint64(h[8:])
	switch {
	case version != 1:
		return nil, 0, fmt.Errorf("fatbin: version %d at byte %d: only version 1 is known", version, at)
	case header < headerSize || int(header) > len(h):
		return nil, 0, fmt.Errorf("fatbin: a header of %d bytes at byte %d", header, at)
	case size > uint64(len(h)-int(header)):
		return nil, 0, fmt.Errorf("fatbin: the fat binary at byte %d has %d bytes of entries, the image only %d: it is cut short", at, size, len(h)-int(header))
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

// entry reads the entry at the start of a body and returns what follows it.
func entry(body []byte) (e Entry, rest []byte, err error) {
	if len(body) < entryHeaderSize {
		return e, nil, fmt.Errorf("%d bytes are too few for its header", len(body))
	}
	var (
		header     = order.Uint32(body[4:])
		padded     = order.Uint64(body[8:])
		compressed = order.Uint32(body[16:])
		flags      = order.Uint64(body[40:])
	)
	if header < entryHeaderSize || uint64(header) > uint64(len(body)) {
		return e, nil, fmt.Errorf("a header of %d bytes, and %d bytes are left", header, len(body))
	}
	if padded > uint64(len(body))-uint64(header) {
		return e, nil, fmt.Errorf("%d bytes of content, and only %d are left", padded, len(body)-int(header))
	}
	e = Entry{
		Kind:   Kind(order.Uint16(body)),
		Minor:  int(order.Uint16(body[24:])),
		Major:  int(order.Uint16(body[26:])),
		Arch:   int(order.Uint32(body[28:])),
		stored: body[header:][:padded],
		size:   order.Uint64(body[56:]),
	}
	if e.method, err = compressionOf(flags); err != nil {
		return e, nil, err
	}
	e.Name, err = text(body[:header], order.Uint32(body[32:]), order.Uint32(body[36:]))
	if err != nil {
		return e, nil, fmt.Errorf("its name: %w", err)
	}
	e.Compressed = e.method != plain
	if !e.Compressed {
		e.Data = e.trim(e.stored)
	} else if uint64(compressed) > padded {
		return e, nil, fmt.Errorf("%d compressed bytes in %d bytes of content", compressed, padded)
	} else {
		e.stored = e.stored[:compressed]
	}
	return e, body[header:][padded:], nil
}

// text returns a string within an entry's header.
func text(header []byte, at, length uint32) (string, error) {
	if length == 0 {
		return "", nil
	}
	if uint64(at)+uint64(length) > uint64(len(header)) {
		return "", fmt.Errorf("bytes %d to %d of a header of %d", at, uint64(at)+uint64(length), len(header))
	}
	return string(bytes.TrimRight(header[at:][:length], "\x00")), nil
}

// trim takes the NULs off the end of PTX. What is left is never nil.
func (e *Entry) trim(content []byte) []byte {
	n := len(content)
	for e.Kind == PTX && n > 0 && content[n-1] == 0 {
		n--
	}
	return content[:n]
}
