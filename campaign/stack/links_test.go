package stack

import (
	"path/filepath"
	"strings"
	"testing"
)

// Kernels are linked of several texts, and what is wrong with them is told.
func TestLinks(t *testing.T) {
	if err := compile("links"); err != nil {
		t.Fatal(err)
	}
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			if got := w.launchWith(way, made("links"), "right", filepath.Join(t.TempDir(), "image")).right(); !strings.Contains(got, "right\n") {
				t.Errorf("it said %s", got)
			}
			t.Setenv("MUSTER_QUIET", "1")
			got := w.launchWith(way, made("links"), "wrong").right()
			for _, want := range []string{
				"syntax: CUDA_ERROR_INVALID_PTX: error: the PTX of the image cannot be used: bad.ptx:4:1: expected a directive such as .visible, .entry or .global, found \"nonsense\"\n",
				"version: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: error: the PTX of the image is of a newer version than the device knows: new.ptx:1:10: ",
				"alone: CUDA_SUCCESS: \n",
				"undefined: CUDA_ERROR_INVALID_SOURCE: error: the images cannot be linked: ",
				"later: CUDA_SUCCESS: \n", "defined: CUDA_SUCCESS: \n",
				"twice: CUDA_ERROR_INVALID_SOURCE: error: the images cannot be linked: multiple definition of 'offset' in 'two.ptx', first defined in 'one.ptx'\n",
				"library: CUDA_ERROR_NO_BINARY_FOR_GPU: error: lib.a is an object or a library",
				"kind: CUDA_ERROR_INVALID_VALUE: \n", "garbage: CUDA_ERROR_INVALID_IMAGE: \n", "nothing: CUDA_ERROR_INVALID_VALUE: \n",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("it did not say %s", want)
				}
			}
			if t.Failed() {
				t.Logf("it said %s", got)
			}
		})
	}
}
