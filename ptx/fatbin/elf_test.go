package fatbin

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// A cubin of CUDA 13 has a version of its own in its header; others have kernels
// and functions beside them.
func TestKernelsOfCubins(t *testing.T) {
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"testdata/elf.fatbin", []string{"saxpy", "vecadd", "vecadd4"}},
		{"../../device/cuda/testdata/cubin.fatbin", []string{"sum"}},
	} {
		image, err := os.ReadFile(tt.file)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := Open(image)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			if e.Kind != ELF {
				continue
			}
			names, err := Kernels(bytes.NewReader(e.Data))
			if err != nil {
				t.Errorf("%s: %v", tt.file, err)
			}
			got = append(got, names...)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: kernels %q, want %q", tt.file, got, tt.want)
		}
	}
}

func TestKernelsOfDamagedCubins(t *testing.T) {
	if names, err := Kernels(bytes.NewReader([]byte("\x7fELF and nothing else"))); err == nil {
		t.Errorf("kernels %q were found", names)
	}
}
