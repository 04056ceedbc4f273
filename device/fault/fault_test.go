package fault

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/device"
	"muster/device/devicetest"
	"muster/device/soft"
)

func softDevice(t *testing.T) device.Device {
	t.Helper()
	d, err := soft.New(soft.Profile{Name: "test", Memory: 128 << 20, Speed: 1, Workers: 1}, soft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Without rules a wrapped device passes the same suite as the device.
func TestTransparent(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) device.Device { return Wrap(softDevice(t), nil, nil) },
		devicetest.Options{Isolated: true, Located: true, Stoppable: true, FixedVariables: true, ExactMemory: true, Prints: true})
}

const base, granule = uint64(0x6400_0000_0000), uint64(2 << 20)

// wrapped is an open context on a device with rules.
type wrapped struct {
	*testing.T
	dev    *Device
	ctx    device.Context
	stream device.Stream
	slept  []time.Duration
}

func wrap(t *testing.T, rules string) *wrapped {
	t.Helper()
	parsed, err := Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	w := &wrapped{T: t}
	w.dev = Wrap(softDevice(t), parsed, func(d time.Duration) { w.slept = append(w.slept, d) })
	w.ctx, err = w.dev.Open(device.Config{Arena: device.Arena{Base: base, Size: 16 * granule}})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.ctx.Close()) })
	w.stream, err = w.ctx.NewStream()
	w.ok(err)
	return w
}

func (w *wrapped) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *wrapped) finish() {
	w.Helper()
	w.ok(w.stream.Synchronise(context.Background()))
}

func TestFailsTheNthCall(t *testing.T) {
	w := wrap(t, "map:2:fail=out-of-memory, map:4-5:fail=invalid-value, map:7-:fail=not-supported")
	want := []error{nil, device.ErrOutOfMemory, nil, device.ErrInvalidValue, device.ErrInvalidValue, nil, device.ErrNotSupported, device.ErrNotSupported}
	for i, e := range want {
		if err := w.ctx.Map(base+uint64(i)*granule, granule); !errors.Is(err, e) || e == nil && err != nil {
			t.Errorf("call %d: answered %v, want %v", i+1, err, e)
		}
	}
	if n := w.dev.Calls("map"); n != 8 {
		t.Errorf("%d calls counted", n)
	}
}

func TestFaultsStay(t *testing.T) {
	w := wrap(t, "fill:2:fail=device-lost")
	w.ok(w.ctx.Map(base, granule))
	w.ok(w.stream.Fill(base, 1, 4, 1))
	event, err := w.ctx.NewEvent()
	w.ok(err)
	w.finish()
	for what, err := range map[string]error{
		"the call":    w.stream.Fill(base, 1, 4, 1),
		"the next":    w.stream.Fill(base, 1, 4, 1),
		"Map":         w.ctx.Map(base+granule, granule),
		"Err":         w.ctx.Err(),
		"Synchronise": w.ctx.Synchronise(context.Background()),
		"the event":   event.Synchronise(context.Background()),
	} {
		var f *device.Fault
		if !errors.As(err, &f) || f.Kind != device.DeviceLost {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	w.ok(w.ctx.Close())
	if err := w.ctx.Err(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	other, err := w.dev.Open(device.Config{Arena: device.Arena{Base: base, Size: granule}})
	w.ok(err)
	w.ok(other.Map(base, granule))
	w.ok(other.Close())
}

func TestCorrupts(t *testing.T) {
	w := wrap(t, "copyin:2:corrupt, copyin:2:corrupt=6, copyout:3:corrupt=9")
	w.ok(w.ctx.Map(base, granule))
	good := []byte{10, 20, 30, 40}
	back := make([]byte, 4)
	for i, want := range [][]byte{{10, 20, 30, 40}, {11, 20, 31, 40}, {10, 21, 30, 40}, {10, 20, 30, 40}} {
		w.ok(w.stream.CopyIn(base, good))
		w.ok(w.stream.CopyOut(back, base))
		w.finish()
		if !bytes.Equal(back, want) {
			t.Errorf("round %d: %v, want %v", i+1, back, want)
		}
	}
	if !bytes.Equal(good, []byte{10, 20, 30, 40}) {
		t.Errorf("the caller's bytes were changed: %v", good)
	}
}

func TestDelays(t *testing.T) {
	w := wrap(t, "map:1:delay=1ms\nfill:*:delay=2ms # each\nfill:2:delay=3ms")
	w.ok(w.ctx.Map(base, granule))
	w.ok(w.stream.Fill(base, 1, 4, 1))
	w.ok(w.stream.Fill(base, 1, 4, 1))
	w.finish()
	if want := []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond}; !slices.Equal(w.slept, want) {
		t.Errorf("slept %v, want %v", w.slept, want)
	}
}

func TestOpenFails(t *testing.T) {
	d := Wrap(softDevice(t), []Rule{{Operation: "open", First: 1, Last: 1, Do: Action{Fail: "device-lost"}}}, nil)
	c := device.Config{Arena: device.Arena{Base: base, Size: granule}}
	if _, err := d.Open(c); err == nil || !strings.Contains(err.Error(), "device lost") {
		t.Errorf("answered %v", err)
	}
	x, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"  # nothing\n\n", ""},
		{"copyin:3:fail=out-of-memory", "copyin:3:fail=out-of-memory"},
		{"copyin:1-:corrupt=0", "copyin:*:corrupt"},
		{"copyout:2-4:corrupt=17", "copyout:2-4:corrupt=17"},
		{"launch:7-7:delay=1500us", "launch:7:delay=1.5ms"},
		{"launch:7-:delay=1s", "launch:7-:delay=1s"},
		{"any:while=/run/lost:fail=device-lost", "any:while=/run/lost:fail=device-lost"},
		{"copyout:while=/run/slow:delay=1ms", "copyout:while=/run/slow:delay=1ms"},
		{"copyout:take=/run/bad=1:corrupt", "copyout:take=/run/bad=1:corrupt"},
	} {
		rules, err := Parse(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		got := ""
		for _, r := range rules {
			got += r.String()
		}
		if got != c.want {
			t.Errorf("%q: read as %q, want %q", c.text, got, c.want)
		}
	}
	for _, c := range []struct{ text, complaint string }{
		{"copyin", "want operation:calls:action"},
		{"a:b:c:d", "want operation:calls:action"},
		{"copin:1:corrupt", "did you mean copyin?"},
		{"copyin:0:corrupt", "counted from 1"},
		{"copyin:01:corrupt", "counted from 1"},
		{"copyin:-1:corrupt", "counted from 1"},
		{"copyin:5-2:corrupt", "the last comes before the first"},
		{"copyin:x:corrupt", "counted from 1"},
		{"launch:1:corrupt", "only copyin and copyout"},
		{"launch:1:fail=out-of-memroy", "did you mean out-of-memory?"},
		{"launch:1:fail", "give fail=NAME"},
		{"launch:1:delay=-1s", "give a time"},
		{"launch:1:delay=5", "give a time"},
		{"copyin:1:corrupt=x", "number of a byte"},
		{"launch:shared=/f:fail=device-lost", "any:shared=FILE:fail=NAME"},
		{"any:shared=f:fail=device-lost", "absolute path"},
		{"any:*:fail=device-lost", "any:while=FILE:fail=NAME"},
		{"any:take=/f:fail=device-lost", "any:while=FILE:fail=NAME"},
		{"any:while=/f:delay=1s", "any:while=FILE:fail=NAME"},
		{"ani:while=/f:fail=device-lost", "did you mean any?"},
		{"copyin:while=f:corrupt", "absolute path"},
		{"copyin:while=/a/../f:corrupt", "absolute path"},
		{"copyin:take=:corrupt", "absolute path"},
		{"copyin:take=/a b:corrupt", "absolute path"},
		{"copyin:take=/a\x00:corrupt", "absolute path"},
		{"copyin:took=/f:corrupt", "while=FILE, take=FILE or shared=FILE"},
		{"ok\ncopyin:*:break", "line 1"},
		{"\ncopyin:*:break", "line 2"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.complaint) {
			t.Errorf("%q: answered %v, want something with %q", c.text, err, c.complaint)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("copyin:3:fail=out-of-memory, launch:*:delay=10ms\ncopyout:2-4:corrupt=8")
	f.Add("any:while=/run/lost:fail=device-lost\nlaunch:take=/run/launch:fail=illegal-address")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse(text)
		if err != nil {
			return
		}
		for _, r := range rules {
			again, err := Parse(r.String())
			if err != nil || len(again) != 1 || again[0] != r {
				t.Errorf("%+v is written as %q and read as %+v (%v)", r, r, again, err)
			}
		}
	})
}
