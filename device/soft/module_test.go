package soft

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"muster/device"
)

func TestBetterArchitecture(t *testing.T) {
	for _, c := range []struct {
		a, b int
		want bool
	}{
		{70, 52, true}, {52, 70, false}, {90, 80, true},
		{90, 100, true}, {100, 90, false}, {50, 120, true},
		{100, 120, true}, {120, 100, false}, {80, 80, false},
	} {
		if got := better(c.a, c.b); got != c.want {
			t.Errorf("compute_%d rather than compute_%d: %v", c.a, c.b, got)
		}
	}
}

// elfFile is the header of an ELF file, of a class and for a machine.
func elfFile(class, machine byte) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF")
	b[4], b[18] = class, machine
	return b
}

// An image without PTX is refused, and the error says what to do about it.
func TestImageWithoutPTX(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	for what, image := range map[string][]byte{
		"a cubin":                elfFile(2, 190),
		"a fat binary of cubins": readFile(t, "testdata/cubin.fatbin"),
	} {
		_, err := c.Load(image)
		if !errors.Is(err, device.ErrNoKernelImage) || !strings.Contains(err.Error(), "-gencode arch=compute_90,code=compute_90") {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	for what, image := range map[string][]byte{
		"a file of a host's": elfFile(2, 62), "one of 32 bits": elfFile(1, 190), "a part of a header": elfFile(2, 190)[:40], "not even that": []byte("\x7fELF"),
	} {
		if _, err := c.Load(image); !errors.Is(err, device.ErrInvalidImage) || errors.Is(err, device.ErrNoKernelImage) {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	damaged := readFile(t, "testdata/basic.fatbin")
	damaged = damaged[:len(damaged)/2]
	if _, err := c.Load(damaged); !errors.Is(err, device.ErrInvalidImage) {
		t.Errorf("half a fat binary: answered %v", err)
	}
}

// The error tells apart the same reasons for refusing an image that CUDA does.
func TestRefusedImages(t *testing.T) {
	c := openContext(t, newDevice(t, testProfile(), Options{}))
	const head = ".target sm_70\n.address_size 64\n.visible .entry f() {\n"
	for text, want := range map[string]error{
		"nonsense": device.ErrInvalidImage,
		".version 6.4\n" + head + "nonsense.u32 %r;\n}\n":                device.ErrInvalidPTX,
		".version 6.4\n" + head + ".reg .b32 %r;\nnonsense.u32 %r;\n}\n": device.ErrInvalidPTX,
		".version 6.4\n":                                  device.ErrInvalidPTX,
		".version 99.9\n" + head + "ret;\n}\n":            device.ErrPTXVersion,
		".version 9.5\n" + head + "nonsense.u32 %r;\n}\n": device.ErrPTXVersion,
		".version x\n":                                    device.ErrInvalidPTX,
	} {
		if _, err := c.Load([]byte(text)); !errors.Is(err, want) || !errors.Is(err, device.ErrInvalidImage) {
			t.Errorf("%q: answered %v, want %v", text, err, want)
		}
	}
}

// A module whose variables exceed the device's memory is refused and takes no memory.
func TestVariablesTooLarge(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	for _, size := range []uint64{d.info.Memory + 1, 1 << 40, 1<<63 - 1} {
		text := fmt.Sprintf(".version 6.4\n.target sm_70\n.address_size 64\n.visible .global .align 1 .b8 large[%d];\n", size)
		if _, err := c.Load([]byte(text)); !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, device.ErrInvalidImage) {
			t.Errorf("%d bytes: answered %v", size, err)
		}
	}
	if free := d.budget.free(); free != d.info.Memory {
		t.Errorf("%d of %d bytes free", free, d.info.Memory)
	}
}

// Inspect, without a context, tells the same of an image as loading it.
func TestInspectTellsWhatLoadTells(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	for _, file := range []string{"matmul.nvcc90.ptx", "memory.nvcc90.ptx", "mathlib.nvcc90.ptx"} {
		image := readFile(t, "../../ptx/testdata/kernels/"+file)
		info, err := d.Can().Inspect(image)
		if err != nil {
			t.Fatal(err)
		}
		before, _, err := c.Memory()
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Load(image)
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := c.Memory()
		if err != nil {
			t.Fatal(err)
		}
		want := device.ImageInfo{Memory: before - after}
		for _, name := range m.Functions() {
			f, err := m.Function(name)
			if err != nil {
				t.Fatal(err)
			}
			want.Functions = append(want.Functions, f.Info())
		}
		for _, g := range m.Globals() {
			want.Globals = append(want.Globals, device.Global{Name: g.Name, Size: g.Size, Managed: g.Managed})
		}
		if !reflect.DeepEqual(info, want) {
			t.Errorf("%s: inspected %+v, loaded %+v", file, info, want)
		}
	}
}
