package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/node/loop"
	"muster/node/vgpu"
)

// node notes what it is to do, and has a client leave again that was granted a device.
type node struct {
	*Dispatcher
	said []string
}

func (n *node) Decided(_ time.Duration, e vgpu.Event, _ []vgpu.Effect) {
	n.said = append(n.said, fmt.Sprintf("%T", e))
}

func (n *node) Perform(effects []vgpu.Effect) {
	for _, e := range effects {
		n.said = append(n.said, e.Kind.String())
		if e.Kind == vgpu.Grant {
			n.Afterwards(vgpu.Released{Client: e.Client}, vgpu.Detach{Client: e.Client})
		}
	}
}

func (n *node) Performed() { n.said = append(n.said, ".") }

// An event is decided upon, written down, performed; what that leads to comes after all of it.
func TestStep(t *testing.T) {
	core, err := vgpu.New(vgpu.Config{Devices: []vgpu.Device{{Name: "a", Slots: 1, Speed: 1, Memory: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	n.Dispatcher = New(core, loop.New(time.Now), n)
	n.Last = 7
	id := n.NewNumber()
	if id != 8 || n.Last != 8 {
		t.Error(id, n.Last)
	}
	n.Step(vgpu.Attach{Client: id, User: "u", Weight: 1})
	n.Step(vgpu.Want{Client: id, Need: 1, Pinned: vgpu.AnyDevice})
	const want = "vgpu.Attach . vgpu.Want grant . vgpu.Released . vgpu.Detach ."
	if got := strings.Join(n.said, " "); got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
	if err := n.Tell(vgpu.Drain{Device: 0}); err != nil || n.State(0) != vgpu.DeviceDrained {
		t.Error(err, n.State(0))
	}
	if err := n.Tell(vgpu.Resume{Device: 0}); err != nil || n.Tell(vgpu.Remove{Device: 0}) == nil {
		t.Error("a device that is up is removed", err)
	}
}
