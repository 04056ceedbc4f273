package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"muster/device"
)

func (w *wrapped) isLost(what string, err error) {
	w.Helper()
	var f *device.Fault
	if !errors.As(err, &f) || f.Kind != device.DeviceLost {
		w.Errorf("%s: answered %v", what, err)
	}
}

// A device is lost while a file exists: contexts used meanwhile stay lost, others are
// not affected, and a new one works afterwards.
func TestLostWhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lost")
	w := wrap(t, "any:while="+file+":fail=device-lost")
	w.ok(w.ctx.Map(base, granule))
	w.ok(w.stream.Fill(base, 1, 4, 1))
	event, err := w.ctx.NewEvent()
	w.ok(err)
	unaware, err := w.dev.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	w.ok(err)
	w.ok(os.WriteFile(file, nil, 0o600))
	_, _, err = w.ctx.Memory() // has no name in Operations
	w.isLost("Memory", err)
	_, err = w.dev.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	w.isLost("Open", err)
	w.ok(os.Remove(file))
	w.isLost("Fill", w.stream.Fill(base, 1, 4, 1))
	w.isLost("the event", event.Synchronise(context.Background()))
	w.ok(unaware.Map(base, granule))
	w.ok(unaware.Close())
	again, err := w.dev.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	w.ok(err)
	w.ok(again.Map(base, granule))
	w.ok(again.Close())
}

// If a device is lost while a call waits for its work, the call reports that.
func TestLostMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lost")
	w := wrap(t, "any:while="+file+":fail=device-lost")
	w.ok(w.stream.Call(func() { w.ok(os.WriteFile(file, nil, 0o600)) }))
	w.isLost("Synchronise", w.stream.Synchronise(context.Background()))
}

// One call takes the file away; the new name says which process it was.
func TestTake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "map")
	w := wrap(t, "map:take="+file+":fail=out-of-memory")
	w.ok(w.ctx.Map(base, granule))
	w.ok(os.WriteFile(file, nil, 0o600))
	w.ok(w.ctx.Unmap(base, granule))
	if err := w.ctx.Map(base, granule); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("answered %v", err)
	}
	w.ok(w.ctx.Map(base, granule))
	left, err := filepath.Glob(file + "*")
	w.ok(err)
	if want := []string{fmt.Sprintf("%s.%d", file, os.Getpid())}; !slices.Equal(left, want) {
		t.Errorf("%v is left, want %v", left, want)
	}
}

// A device has what the wrapped one can do, and rules apply to it.
func TestCan(t *testing.T) {
	rules, err := Parse("load:2:fail=out-of-memory")
	if err != nil {
		t.Fatal(err)
	}
	inner := softDevice(t)
	image, err := os.ReadFile("../devicetest/kernels/basic.ptx")
	if err != nil {
		t.Fatal(err)
	}
	whole := Wrap(inner, rules, nil)
	if _, err := whole.Can().Inspect(image); err != nil {
		t.Error(err)
	}
	x, err := whole.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	m, err := x.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	at := m.Globals()
	if err := m.Unload(); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Can().LoadAt(x, image, at); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("answered %v", err)
	}
	again, err := whole.Can().LoadAt(x, image, at)
	if err != nil || !slices.Equal(again.Globals(), at) {
		t.Errorf("loaded as %v, %v", again, err)
	}
	stranger, err := inner.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := whole.Can().LoadAt(stranger, image, at); !errors.Is(err, device.ErrInvalidValue) {
		t.Errorf("answered %v", err)
	}

	plain := Wrap(plain{inner}, nil, nil).Can()
	if plain.Inspect != nil || plain.LoadAt != nil {
		t.Error("a device offers what the one inside does not")
	}
}

// plain is a device that can nothing beside what every device can.
type plain struct{ device.Device }

func (plain) Can() *device.DeviceCan { return &device.DeviceCan{} }
