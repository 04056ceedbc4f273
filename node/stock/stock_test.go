package stock

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"muster/device"
	"muster/node/dispatch"
	"muster/node/inventory"
	"muster/node/loop"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/control"
)

// gpu is a device that says what it is, and no more.
type gpu struct{ device.Device }

func (gpu) Info() device.Info {
	return device.Info{Name: "gpu", Memory: 1 << 30, Granularity: 1 << 16, Speed: 1}
}

// node is a stock with a loop that runs, and programs that note what they are told.
type node struct {
	*Stock
	said  []string
	needs []vgpu.ClientID // who depends on any device
	unfit error
	lost  error // what a probe finds
}

func (n *node) Changed(number int, e *inventory.Device, why string) {
	n.said = append(n.said, fmt.Sprint(number, " ", e.Here, " ", why))
}
func (n *node) Refused(id vgpu.DeviceID, why string) {
	n.said = append(n.said, fmt.Sprint(int(id), " is refused: ", why))
}
func (n *node) Fits(*inventory.Device) error                     { return n.unfit }
func (n *node) DependOn(vgpu.DeviceID) []vgpu.ClientID           { return n.needs }
func (n *node) Decided(time.Duration, vgpu.Event, []vgpu.Effect) {}
func (n *node) Perform([]vgpu.Effect)                            {}
func (n *node) Performed()                                       { n.Tend() }

func configured(names ...string) (all []settings.Device) {
	for _, name := range names {
		all = append(all, settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: name}})
	}
	return all
}

func newNode(t *testing.T) *node {
	n := &node{}
	log := slog.New(slog.DiscardHandler)
	open := func(control.DeviceConfig) (device.Device, error) { return gpu{}, nil }
	is, err := Fresh(configured("a"), open)
	if err != nil {
		t.Fatal(err)
	}
	core, err := vgpu.New(vgpu.Config{Devices: []vgpu.Device{is.Entries[0].Dispatched(2)}})
	if err != nil {
		t.Fatal(err)
	}
	l := loop.New(time.Now)
	n.Stock = New(is, l, dispatch.New(core, l, n), n, Options{
		Open: open, Slots: func() int { return 2 }, Closing: func() bool { return true }, Log: log,
		Probe: func(control.DeviceConfig, *os.File) (control.Probed, error) { return control.Probed{}, n.lost },
		Lock:  func(int) (*os.File, error) { return os.Open(os.DevNull) },
	})
	if err := n.MakeLocks(); err != nil {
		t.Fatal(err)
	}
	go l.Run(func() bool { return true }, nil, func() {})
	t.Cleanup(func() { l.Do(l.Drain); <-l.Ended(); n.CloseLocks() })
	return n
}

// do has the loop do something, and returns what programs were told then.
func (n *node) do(f func() error) string {
	said := ""
	if err := n.loop.Try(func() error {
		n.said = nil
		err := f()
		said = strings.Join(n.said, "; ")
		return err
	}); err != nil {
		return "error: " + err.Error()
	}
	return said
}

// A device that is removed leaves when nobody needs it any more, and its number is given again.
func TestADeviceLeavesAndAnotherComes(t *testing.T) {
	n := newNode(t)
	n.do(func() error { n.needs = []vgpu.ClientID{7}; return nil })
	if said := n.do(func() error { return n.Remove(0, false) }); said != "0 false "+TakenOut {
		t.Error(said)
	}
	if state := n.do(func() error { return errors.New(n.dispatcher.State(0).String()) }); state != "error: drained" {
		t.Error(state)
	}
	n.do(func() error { n.needs = nil; n.Tend(); return nil })
	if state := n.do(func() error { return errors.New(n.dispatcher.State(0).String()) }); state != "error: removed" {
		t.Error(state)
	}
	add := func() error { _, err := n.Add(configured("b")[0], gpu{}.Info(), AnyNumber, true); return err }
	n.do(func() error { n.unfit = errors.New("it cannot"); return nil })
	if said := n.do(add); said != "error: it cannot" {
		t.Error(said)
	}
	n.do(func() error { n.unfit = nil; return nil })
	if said := n.do(add); said != "0 true " {
		t.Error(said)
	}
}

// A device is lost if a probe finds so, not because a worker says so.
func TestSuspects(t *testing.T) {
	n := newNode(t)
	for _, lost := range []error{nil, errors.New("it fell off the bus")} {
		var known <-chan struct{}
		n.do(func() error {
			n.lost = lost
			n.Suspect(9, "there is none")
			n.Suspect(0, "it is gone")
			known = n.Suspected(0)
			return nil
		})
		<-known
		is := n.do(func() error { return errors.New(n.dispatcher.State(0).String()) })
		if want := map[bool]string{true: "error: lost", false: "error: up"}[lost != nil]; is != want {
			t.Errorf("a probe finds %v: %s", lost, is)
		}
	}
}

// Another configuration takes away what it does not have, and adds what is new once there is room for it.
func TestAnotherConfiguration(t *testing.T) {
	n := newNode(t)
	coming, err := n.ExamineAll(configured("b"))
	if err != nil {
		t.Fatal(err)
	}
	n.do(func() error { n.Apply(configured("a"), configured("b"), coming); return nil })
	if is := n.Load().Entries; len(is) != 1 || is[0].Name != "b" || !is[0].Here {
		t.Errorf("%+v", is)
	}
}
