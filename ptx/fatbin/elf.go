package fatbin

import (
	"debug/elf"
	"io"
)

// PlainELF reads a cubin with the version that every ELF file has: compilers since
// CUDA 13 write a number of their own there, which Go's reader refuses.
func PlainELF(image io.ReaderAt) io.ReaderAt { return plainELF{image} }

type plainELF struct{ image io.ReaderAt }

func (p plainELF) ReadAt(b []byte, off int64) (int, error) {
	const at, size = 20, 4 // e_version
	n, err := p.image.ReadAt(b, off)
	for i, v := range [size]byte{byte(elf.EV_CURRENT)} {
		if k := at + int64(i) - off; k >= 0 && k < int64(n) {
			b[k] = v
		}
	}
	return n, err
}

// Kernels returns the names of the kernels in a cubin, in its order.
func Kernels(cubin io.ReaderAt) ([]string, error) {
	f, err := elf.NewFile(PlainELF(cubin))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	const entry = 0x10 // of st_other: the function can be launched
	var names []string
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Other&entry != 0 && s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	return names, nil
}
