package fatbin

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// MaxLoaded bounds what one Load or one Open may decompress to, in bytes.
const MaxLoaded = 1 << 30

// compression is how an entry is stored.
type compression byte

const (
	plain compression = iota
	lz4
	zstandard
)

// methods has for each compression its name, its decoder (which must come to
// exactly size bytes), and the most bytes that one stored byte can stand for:
// a small image cannot ask for much memory.
var methods = [...]struct {
	name   string
	expand func(stored []byte, size int) ([]byte, error)
	ratio  uint64
}{
	lz4:       {"LZ4", expandLZ4, 255},
	zstandard: {"zstd", expandZstd, 128 << 10 / 4}, // a block of 128 KiB in four bytes
}

// Load decompresses PTX or ELF into Data. It does nothing if Data is there.
func (e *Entry) Load() error {
	if e.Data != nil {
		return nil
	}
	if !e.readable() {
		return fmt.Errorf("the content of %s for %s cannot be read, only PTX and ELF", e.Kind, e.Target())
	}
	m := methods[e.method]
	stored := uint64(len(e.stored))
	switch {
	case e.size > MaxLoaded:
		return fmt.Errorf("%s for %s declares %d bytes, over the limit of %d", e.Kind, e.Target(), e.size, MaxLoaded)
	case e.size > stored*m.ratio:
		return fmt.Errorf("%s for %s declares %d bytes, more than %d bytes of %s can hold: the image is damaged", e.Kind, e.Target(), e.size, stored, m.name)
	}
	data, err := m.expand(e.stored, int(e.size))
	if err != nil {
		return fmt.Errorf("%s for %s, compressed with %s, is damaged: %w", e.Kind, e.Target(), m.name, err)
	}
	e.Data = e.trim(data)
	return nil
}

// zstdDecoder is made once, since that is not cheap. It writes no more than it
// is given room for, so the window that a frame declares costs no memory.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(MaxLoaded))
})

func expandZstd(stored []byte, size int) ([]byte, error) {
	decoder, err := zstdDecoder()
	if err != nil {
		return nil, err
	}
	out, err := decoder.DecodeAll(stored, make([]byte, 0, size))
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, fmt.Errorf("it comes to %d bytes, not %d", len(out), size)
	}
	return out, nil
}
