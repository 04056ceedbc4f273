package stack

import (
	"fmt"
	"strings"
	"testing"
)

// Images of modules are kept on the host while a program may be moved. They count against the
// user's memory, beside what the user's programs allocate.
func TestImagesCountAgainstTheUser(t *testing.T) {
	t.Parallel()
	if err := compile("images"); err != nil {
		t.Fatal(err)
	}
	const limit = 64 << 20
	n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nlimits: {default: {memory: 64MiB}}\n")

	// A program at its memory limit can still load modules of usual size.
	n.launch(made("small"), "memory", fmt.Sprint(limit)).right()

	greedy := n.launch(made("images"), fmt.Sprint(4*limit))
	greedy.says("bytes")
	one(t, greedy.output.String(), `no room on the host for the image of a module: user \S+ has no more memory on this node \(64 MiB, of which .*`)
	var loaded int
	_, after, _ := strings.Cut(greedy.output.String(), "out of memory after ")
	if _, err := fmt.Sscan(after, &loaded); err != nil {
		t.Fatalf("4 times the user's memory: it said %q", greedy.output)
	}
	if loaded < limit/2 || loaded > 3*limit/2 {
		t.Errorf("%d bytes of images were loaded where %d are allowed", loaded, limit)
	}

	// What it uses is not available to another program of the same user.
	other := n.launch(made("small"), "memory", fmt.Sprint(limit))
	if code := other.wait(); code != 1 || !strings.Contains(other.output.String(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("beside the images another program got all of the memory: %d, %q", code, other.output)
	}

	// It continues with the images that it has, and unloading frees their memory.
	if got := greedy.right(); !strings.Contains(got, "right") {
		t.Errorf("it said %q", got)
	}
	n.idle()
	n.launch(made("small"), "memory", fmt.Sprint(limit)).right()
	n.idle()
}
