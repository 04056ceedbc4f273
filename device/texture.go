package device

import "fmt"

// Resource says what a texture reads.
type Resource uint32

// The resources, by CUDA's numbers (CUresourcetype).
const (
	ArrayResource Resource = iota
	MipmapResource
	LinearResource
	PitchResource
)

// Flags of arrays, as CUDA has them (CUDA_ARRAY3D_*).
const (
	ArrayLayered     = 1
	ArraySurface     = 2
	ArrayCube        = 4
	ArrayGather      = 8
	arrayFlags       = ArrayLayered | ArraySurface | ArrayCube | ArrayGather
	maxTextureLevels = 32
)

// Flags of textures, as CUDA has them (CU_TRSF_*).
const (
	TextureIntegers   = 1 // reads return integers as they are, not as fractions of 1
	TextureNormalised = 2 // coordinates go from 0 to 1
	TextureSRGB       = 0x10
	TextureSeamless   = 0x40 // filters across the edges of a cube
)

// Texture describes a texture or a surface, with CUDA's numbers.
type Texture struct {
	Surface  bool     `json:",omitempty"`
	Resource Resource `json:",omitempty"`
	Address  uint64   // of the first byte
	Format   uint32   // CUarray_format
	Channels uint32
	Width    uint64 `json:",omitempty"` // in elements, of the array's level 0; unused for a linear resource
	Height   uint64 `json:",omitempty"` // 0: one dimension
	Depth    uint64 `json:",omitempty"` // 0: two dimensions; the number of layers if the array is layered
	Flags    uint32 `json:",omitempty"` // of the array
	Levels   uint32 `json:",omitempty"` // of the array, 1 if it is no mipmap
	Level    uint32 `json:",omitempty"` // the one that is read, if the resource is an array
	Size     uint64 `json:",omitempty"` // bytes of a linear resource
	Pitch    uint64 `json:",omitempty"` // bytes from row to row of a pitched resource

	Sampler Sampler
	View    *View `json:",omitempty"` // nil: the whole resource, as it is
}

// Sampler says how a texture is read.
type Sampler struct {
	Address    [3]uint32 // CUaddress_mode
	Filter     uint32    // CUfilter_mode
	Flags      uint32
	Anisotropy uint32
	MipFilter  uint32
	Bias       uint32 // this and the fields below are the bits of floats: JSON in a checkpoint has no NaN
	Min, Max   uint32 // levels
	Border     [4]uint32
}

// View is a part of a resource, or its bits as another format.
type View struct {
	Format                int // CUresourceViewFormat
	Width, Height, Depth  uint64
	FirstLevel, LastLevel uint32
	FirstLayer, LastLayer uint32
}

// ElementSize returns the bytes of an element; 0 for a format that is not supported.
func ElementSize(format, channels uint32) uint64 {
	var each uint64
	switch format {
	case 0x01, 0x08: // 8 bits
		each = 1
	case 0x02, 0x09, 0x10: // 16 bits, halves among them
		each = 2
	case 0x03, 0x0a, 0x20: // 32 bits, floats among them
		each = 4
	}
	if channels != 1 && channels != 2 && channels != 4 {
		return 0
	}
	return each * uint64(channels)
}

// levelStep is the alignment of a mipmap's levels, in bytes.
const levelStep = 512

// ArrayLevel is one level of an array: its offset from the array's first byte, and
// its size in elements. Rows follow each other without gaps, and so do slices or layers.
type ArrayLevel struct{ Offset, Width, Height, Depth uint64 }

// ArrayLevels returns the levels of the array and the bytes that all of them take.
func (t *Texture) ArrayLevels() (levels []ArrayLevel, size uint64) {
	element := ElementSize(t.Format, t.Channels)
	half := func(n uint64, level uint32) uint64 { return max(1, n>>level) }
	for i := range max(1, t.Levels) {
		l := ArrayLevel{Offset: (size + levelStep - 1) &^ (levelStep - 1), Width: half(t.Width, i), Height: half(t.Height, i), Depth: max(1, t.Depth)}
		if t.Flags&(ArrayLayered|ArrayCube) == 0 {
			l.Depth = half(t.Depth, i)
		}
		size = l.Offset + l.Width*l.Height*l.Depth*element
		levels = append(levels, l)
	}
	return levels, size
}

// Bytes returns how many bytes from Address on the texture covers.
func (t *Texture) Bytes() uint64 {
	switch t.Resource {
	case LinearResource:
		return t.Size
	case PitchResource:
		return (max(1, t.Height)-1)*t.Pitch + t.Width*ElementSize(t.Format, t.Channels)
	}
	_, size := t.ArrayLevels()
	return size
}

// Check returns why no device can have this texture, or nil. It bounds all sizes, so that
// the products in Bytes and ArrayLevels cannot overflow.
func (t *Texture) Check() error {
	const most = 1 << 20 // elements a side
	element := ElementSize(t.Format, t.Channels)
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("a texture: %s: %w", fmt.Sprintf(format, args...), ErrInvalidValue)
	}
	switch {
	case element == 0:
		return fmt.Errorf("a texture: %d channels of format %#x: %w", t.Channels, t.Format, ErrNotSupported)
	case t.Resource > PitchResource:
		return wrong("resource %d", t.Resource)
	case t.Flags&^uint32(arrayFlags) != 0:
		return fmt.Errorf("a texture: an array with flags %#x: %w", t.Flags, ErrNotSupported)
	case t.Surface && t.Resource != ArrayResource:
		return wrong("a surface of no array")
	case t.Levels > maxTextureLevels || t.Level > 0 && t.Level >= t.Levels:
		return wrong("level %d of %d", t.Level, t.Levels)
	case t.Resource == LinearResource && (t.Size == 0 || t.Size > 1<<40):
		return wrong("%d bytes", t.Size)
	case t.Resource != LinearResource && (t.Width == 0 || t.Width > most || t.Height > most || t.Depth > most || t.Pitch > 1<<32):
		return wrong("%d by %d by %d elements", t.Width, t.Height, t.Depth)
	case t.Resource != LinearResource && max(1, t.Width)*max(1, t.Height) > 1<<40/max(1, t.Depth):
		return wrong("%d by %d by %d elements are more than any device has", t.Width, t.Height, t.Depth)
	case t.Resource == PitchResource && t.Pitch < t.Width*element:
		return wrong("rows of %d elements, %d bytes apart", t.Width, t.Pitch)
	}
	for _, mode := range t.Sampler.Address {
		if mode > 3 {
			return wrong("address mode %d", mode)
		}
	}
	if t.Sampler.Filter > 1 || t.Sampler.MipFilter > 1 {
		return wrong("filter modes %d and %d", t.Sampler.Filter, t.Sampler.MipFilter)
	}
	if t.Address+t.Bytes() < t.Address {
		return wrong("%d bytes at %#x", t.Bytes(), t.Address)
	}
	return nil
}
