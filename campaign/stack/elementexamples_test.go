package stack

import (
	"strings"
	"testing"
)

// The examples check their own results. These must be right with every way to divide the work, on
// GPUs of two nodes, also with more portions or elements than GPUs.
func TestExamplesWithElements(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts many processes")
	}
	near, far := elementCluster(t)
	for _, c := range []struct {
		name string
		args string
	}{
		{"nbody", "--size 100 --repeat 3 --way spawn --portions 3"},
		{"nbody", "--size 100 --repeat 2 --way monitor"},
		{"nbody", "--size 100 --repeat 2 --way guided"},
		{"dmm", "--size 50 --way spawn --portions 4"},
		{"nbody", "--size 100 --repeat 2 --way guided --cpus 1,1 --check 20"},
		{"dmm", "--size 50 --way guided --tiles 7"},
		{"dmm", "--size 50 --way guided --tiles 7 --repeat 2 --cpus 2 --every 3"},
		{"nw", "--size 41 --letters 17 --way spawn --portions 5"},
		{"nw", "--size 41 --way guided"},
		{"himeno", "--size 30 --width 7 --repeat 5 --way monitor --most 6"},
		{"himeno", "--size 30 --width 7 --repeat 5 --way guided"},
	} {
		program := example(t, "ivm-"+c.name)
		p := near.launchWith([]string{"--socket", near.socket, "--nodes", far.gateway}, program, append(strings.Fields(c.args), "--gpus", "1,1")...)
		if got := p.right(); !strings.Contains(got, " right\n") || !strings.Contains(got, "\nwork ") {
			t.Errorf("%s %s said %q", c.name, c.args, got)
		}
	}
}
