package chaos

import "testing"

// What examples/cuda/weave printed on an idle node.
func TestWeave(t *testing.T) {
	for _, c := range []struct {
		weave
		want uint32
	}{
		{weave{size: 16384, rounds: 40, every: 8, seed: 1}, 0x3a4d72ef},
		{weave{size: 16384, rounds: 100, every: 8, seed: 1}, 0x530713a7},
		{weave{size: 4096, rounds: 400, every: 8, seed: 1}, 0x8535f905},
		{weave{size: 4096, rounds: 1500, every: 8, seed: 1}, 0x2eed8c22}, // the one of muster demo
	} {
		if got := c.checksum(); got != c.want {
			t.Errorf("%+v: checksum %08x, want %08x", c.weave, got, c.want)
		}
	}
}

func TestResult(t *testing.T) {
	if got := result("mm: 20 products of 64 x 64 right, 0.02 s (GPU 0.01 s, CPU 0.01 s)\n"); got != "mm: 20 products of 64 x 64 right" {
		t.Errorf("%q", got)
	}
}
