package stack

import (
	"strings"
	"testing"
)

// A program describes tensors to a software GPU, whose kernels copy boxes of them, and
// columns of pixels. What the engine cannot copy is refused to the program.
func TestTensors(t *testing.T) {
	t.Parallel()
	if err := compile("tensors"); err != nil {
		t.Fatal(err)
	}
	const want = `with another address the map is the other one: 1
the box over the border: right
the column over two images: right
a column without pixels: 1
rows too long for the swizzle: 1
interleaved: 801
`
	if got := newWorld(t).launchWith([]string{"--private"}, made("tensors")).right(); !strings.HasSuffix(got, want) {
		t.Errorf("it says\n%swant\n%s", got, want)
	}
}
