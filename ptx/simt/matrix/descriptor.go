package matrix

// Descriptor says where a matrix lies in shared memory: bits 0 to 13 are the
// address, 16 to 29 and 32 to 45 two distances, all in units of 16 bytes, and 62
// and 63 how chunks of 16 bytes are swapped.
type Descriptor uint64

func (d Descriptor) start() uint64 { return uint64(d) & 0x3fff << 4 }

func (d Descriptor) leading() uint64 { return uint64(d) >> 16 & 0x3fff << 4 }

func (d Descriptor) stride() uint64 { return uint64(d) >> 32 & 0x3fff << 4 }

func (d Descriptor) base() uint64 { return uint64(d) >> 49 & 7 }

// swizzle returns how many bytes a row of eight has, of which chunks are swapped; 16
// if none are.
func (d Descriptor) swizzle() uint64 { return [...]uint64{16, 128, 64, 32}[d>>62] }

// Address returns where an element lies. Outer is its row of A or its column of B,
// inner its place along K; size is its bytes. Byte for byte along K unless across.
func (d Descriptor) Address(outer, inner, size uint64, across bool) uint64 {
	width := d.swizzle()
	var at uint64
	if across {
		line := width / size // elements along the outer dimension
		near, far := d.leading(), d.stride()
		if width == 16 {
			near, far = far, near
		}
		at = outer%line*size + outer/line*near + inner%8*width + inner/8*far
	} else {
		chunk := inner * size / 16
		step := uint64(16)
		if width == 16 {
			step = d.leading()
		}
		at = outer%8*width + outer/8*d.stride() + chunk*step + inner*size%16
	}
	at += d.start()
	if width > 16 {
		row := at>>7 - d.base()
		at ^= row & (width/16 - 1) << 4
	}
	return at
}
