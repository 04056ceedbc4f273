package soft

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"muster/device"
	"muster/ptx/simt/tensormap"
)

// tensor is a tensor as a program describes it: mcu_tensor in device/cuda/driver.h.
type tensor struct {
	Type, Rank                              uint32
	Address                                 uint64
	Sizes                                   [tensormap.MaxRank]uint64
	Strides                                 [tensormap.MaxRank - 1]uint64
	Box, Upper                              [tensormap.MaxRank]int32
	Steps                                   [tensormap.MaxRank]uint32
	Channels, Pixels                        uint32
	Interleave, Swizzle, Promotion, NaNFill uint32
	Unused                                  uint32
}

// ask answers what a GPU's driver works out: tensor maps, those in tile mode byte for byte as
// the driver of an H200 makes them. Tensors whose copies the engine does not know are refused here,
// where the program is told, rather than in a kernel.
func (c *Context) ask(what int, about []byte) ([]byte, error) {
	switch what {
	case device.AskTiled, device.AskIm2col:
		return tensorMap(about, what == device.AskIm2col)
	case device.AskReplaced:
		if len(about) != tensormap.Size+8 {
			return nil, fmt.Errorf("a tensor map and an address in %d bytes: %w", len(about), device.ErrInvalidValue)
		}
		made := [tensormap.Size]byte(about)
		if err := tensormap.Replace(&made, binary.LittleEndian.Uint64(about[tensormap.Size:])); err != nil {
			return nil, fmt.Errorf("%w: %w", err, device.ErrInvalidValue)
		}
		return made[:], nil
	}
	return nil, fmt.Errorf("question %d to a software GPU: %w", what, device.ErrNotSupported)
}

func tensorMap(about []byte, im2col bool) ([]byte, error) {
	var t tensor
	if len(about) != binary.Size(t) {
		return nil, fmt.Errorf("a tensor in %d bytes: %w", len(about), device.ErrInvalidValue)
	}
	if err := binary.Read(bytes.NewReader(about), binary.LittleEndian, &t); err != nil {
		return nil, fmt.Errorf("a tensor: %w: %w", err, device.ErrInvalidValue)
	}
	m := tensormap.Map{
		Type: tensormap.Type(t.Type), Rank: int(t.Rank), Address: t.Address, Sizes: t.Sizes, Strides: t.Strides, Steps: t.Steps,
		Interleave: t.Interleave, Swizzle: tensormap.Swizzle(t.Swizzle), Promotion: t.Promotion, NaN: t.NaNFill == 1,
	}
	if m.Im2col = im2col; im2col { // Box is the lower corner then
		m.Box[0], m.Pixels = t.Channels, t.Pixels
		copy(m.Lower[:], t.Box[:])
		copy(m.Upper[:], t.Upper[:])
	} else {
		for i, n := range t.Box {
			m.Box[i] = uint32(n)
		}
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, device.ErrInvalidValue)
	}
	switch {
	case t.NaNFill > 1:
		return nil, fmt.Errorf("fill %d of what lies outside of a tensor is not known: %w", t.NaNFill, device.ErrInvalidValue)
	case t.Interleave != 0:
		return nil, fmt.Errorf("interleaved tensors on a software GPU: %w", device.ErrNotSupported)
	}
	made := m.Encode()
	return made[:], nil
}
