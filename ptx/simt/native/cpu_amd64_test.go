//go:build linux && amd64

package native

import "testing"

// Which code a processor gets can be said from outside.
func TestFindSupport(t *testing.T) {
	has := findSupport("")
	if got := findSupport("cpu.avx512f=off"); got.wide || got.narrow != has.narrow {
		t.Errorf("without AVX-512: %+v, with it %+v", got, has)
	}
	if got := findSupport("cpu.avx2=off"); got.wide || got.narrow {
		t.Errorf("without AVX2: %+v", got)
	}
}
