package stack

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

var buildTextures = sync.OnceValue(func() error { return compile("textures") })

// textures starts the program with textures.
func (w *world) textures(options ...string) *dialogue {
	w.Helper()
	if err := buildTextures(); err != nil {
		w.Fatal(err)
	}
	d := &dialogue{program: w.launchWith(options, made("textures"))}
	if line := d.next(); line != "ready" {
		w.Fatalf("the program says %q", line)
	}
	return d
}

// Arrays, textures and surfaces of a program keep their content and their handles after its client
// has moved to another device, has lost its worker, and was restored from a checkpoint.
func TestTexturesMoveWithTheirClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--swap-dir", w.T.TempDir())
	p := w.textures("--socket", n.socket)
	p.expect("make", "made 1 2 3 4 5 6 7")
	p.expect("errors", "refused")
	p.expect("read", "all is right")
	p.expect("step", "stepped")

	c, ok := n.client(p.program)
	if !ok || c.Device == nil {
		t.Fatalf("the program has no device: %+v", c)
	}
	other := []string{"b", "a"}[*c.Device]
	w.muster("move", fmt.Sprint(c.ID), other, "--socket", n.socket)
	p.expect("read", "all is right")
	p.expect("step", "stepped")
	n.eventually("it is on the other device", func() bool { // as soon as it has left and uses it again
		p.expect("read", "all is right")
		now, ok := n.client(p.program)
		return ok && now.Device != nil && *now.Device == 1-*c.Device
	})

	n.killWorkers()
	p.expect("read", "all is right")
	p.expect("step", "stepped")
	p.expect("show", "value 3")

	saved := filepath.Join(w.T.TempDir(), "saved")
	w.muster("checkpoint", "--socket", n.socket, fmt.Sprint(c.ID), saved)
	p.expect("step", "stepped")
	p.expect("show", "value 4")
	w.muster("restore", "--socket", n.socket, saved)
	p.expect("read", "all is right")
	p.expect("step", "stepped")
	p.expect("show", "value 4")
	n.killWorkers() // right after work that no recovery copy includes
	p.expect("show", "value 4")
	p.expect("drop", "dropped")
	p.expect("make", "made 1 2 3 4 5 6 7")
	p.expect("read", "all is right")
	p.right()
	n.idle()
}

// Two programs whose memory does not fit together take turns, with arrays that are swapped
// out and in.
func TestTexturesAreSwapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=2M", "--swap-dir", w.T.TempDir())
	first, second := w.textures("--socket", n.socket), w.textures("--socket", n.socket)
	for _, p := range []*dialogue{first, second} {
		p.expect("make", "made 1 2 3 4 5 6 7")
	}
	for i := range 3 {
		for _, p := range []*dialogue{first, second} {
			p.expect("read", "all is right")
			p.expect("step", "stepped")
			p.expect("show", fmt.Sprintf("value %d", i+1))
		}
	}
	if c, _ := n.client(first.program); c.Swaps < 2 {
		t.Errorf("its memory was swapped %d times", c.Swaps)
	}
	first.right()
	second.right()
	n.idle()
}
