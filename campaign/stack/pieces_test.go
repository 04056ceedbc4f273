package stack

import (
	"fmt"
	"syscall"
	"testing"
)

// A program that reserves addresses and puts memory there piece by piece: alone, beside
// another with which it does not fit, and after its worker was killed.
func TestPieces(t *testing.T) {
	t.Parallel()
	if err := compile("pieces"); err != nil {
		t.Fatal(err)
	}
	n := newWorld(t).start("--devices", "soft:memory=64M", "--vgpus", "2")
	first, second := n.launch(made("pieces"), "20"), n.launch(made("pieces"), "22")
	first.says("ready")
	second.says("ready")
	for pid := range n.workers() {
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, p := range []*program{first, second} {
		fmt.Fprintln(p.stdin)
		if got := p.right(); got == "" {
			t.Errorf("%s said nothing", p.name)
		}
	}
	n.idle()
}
