package worker

import (
	"encoding/binary"
	"fmt"

	"muster/device"
	"muster/node/clientcore"
)

// The library sends the input of a link as one image, with all numbers little-endian: the number of
// options (u32), each a name (u32) and a value (u64); then, until the end, the inputs, each with
// its kind (u32), the length of its name (u32), the length of its data (u64), its name and its
// data.

// maxLinkOptions is more than CUDA has.
const maxLinkOptions = 64

// link links several images into one.
func (l *loader) link(o *clientcore.Op) clientcore.Outcome {
	input, err := decodeLink(o.Image)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	input.Check = o.On
	var image []byte
	if err = l.in(o.Place, func(g *gpu) (err error) {
		image, err = g.context.Link(input)
		return err
	}); err != nil {
		return clientcore.Outcome{Err: err}
	}
	return clientcore.Outcome{Image: image}
}

// decodeLink decodes what the library sent. Data of inputs are slices of image.
func decodeLink(image []byte) (l device.Link, err error) {
	r := linkReader{rest: image}
	options := r.u32()
	if options > maxLinkOptions {
		return l, fmt.Errorf("%d options of a link: at most %d: %w", options, maxLinkOptions, device.ErrInvalidValue)
	}
	for range options {
		l.Options = append(l.Options, device.LinkOption{Option: r.u32(), Value: r.u64()})
	}
	for len(r.rest) > 0 && !r.short {
		kind, name, size := device.LinkKind(r.u32()), r.u32(), r.u64()
		if !kind.Exists() {
			return l, fmt.Errorf("an input of kind %d: %w", kind, device.ErrInvalidValue)
		}
		l.Inputs = append(l.Inputs, device.LinkInput{Kind: kind, Name: string(r.bytes(uint64(name))), Data: r.bytes(size)})
	}
	if r.short {
		return l, fmt.Errorf("the inputs of a link are cut short: %w", device.ErrInvalidValue)
	}
	return l, nil
}

// linkReader reads from a slice. What lies beyond its end reads as zero, and sets short.
type linkReader struct {
	rest  []byte
	short bool
}

func (r *linkReader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *linkReader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *linkReader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
