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

func TestParseKinds(t *testing.T) {
	for text, want := range map[string]int{"worker-kill,move": 2, "sabotage-kill": 1, "-daemon-kill,-move": len(Kinds) - 2} {
		if got, err := ParseKinds(text); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                  `there is no kind of fault ""`,
		"worker-kil":        `there is no kind of fault "worker-kil": did you mean worker-kill?`,
		"worker-kill,-move": "name those to try, or those to leave out",
	} {
		if got, err := ParseKinds(text); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want && text != "worker-kill,-move" {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
