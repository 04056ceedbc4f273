package stack

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// Copies of all kinds (testdata/copies.c) are right while workers are killed in the midst of them,
// and on a node of another machine.
func TestCopiesSurvive(t *testing.T) {
	t.Parallel()
	if err := compile("copies"); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint32()
	t.Logf("seed %d", seed)
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=128M", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(made("copies"), fmt.Sprint(seed), "24", "200")
	for _, round := range []int{20, 60, 120} {
		p.says(fmt.Sprintf("round %d\n", round))
		n.killWorkers()
	}
	if got := p.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("seed %d: it said %q", seed, got)
	}
	n.idle()
}

func TestCopiesFromAfar(t *testing.T) {
	t.Parallel()
	if err := compile("copies"); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint32()
	t.Logf("seed %d", seed)
	w := newWorld(t)
	n, users := remoteNode(w)
	p := n.launchWith([]string{"--node", n.gateway, "--tls-dir", users[0]}, made("copies"), fmt.Sprint(seed), "16", "60")
	if got := p.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("seed %d: it said %q", seed, got)
	}
	n.idle()
}
