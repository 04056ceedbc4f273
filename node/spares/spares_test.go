package spares

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

// host is a loop that runs functions at once, with a device that has room.
type host struct {
	now     time.Duration
	waiting int
	last    vgpu.ClientID
	told    []vgpu.Event
}

func (h *host) Do(f func()) bool           { f(); return true }
func (h *host) Ask(f func()) bool          { f(); return true }
func (h *host) Now() time.Duration         { return h.now }
func (h *host) Waiting() int               { return h.waiting }
func (h *host) NewNumber() vgpu.ClientID   { h.last++; return h.last }
func (h *host) Step(e vgpu.Event)          { h.told = append(h.told, e) }
func (h *host) Afterwards(e ...vgpu.Event) { h.told = append(h.told, e...) }
func (h *host) Device(vgpu.DeviceID) (vgpu.DeviceView, bool) {
	return vgpu.DeviceView{Memory: 1 << 30, Free: 1 << 30, State: vgpu.DeviceUp}, true
}

// node is spares of which each waits as soon as it is started.
func node() (*Spares, *host, *inventory.Inventory) {
	h := &host{}
	ready := func(_ *workers.Prepared, _ control.Prepare, _ *os.File, _ []*os.File, on workers.Waiting) {
		on.Ready(workers.Fake(1, 1))
	}
	stock := &inventory.Inventory{Entries: []inventory.Device{{Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "gpu"}}, Info: device.Info{Memory: 1 << 30, ContextCost: 1 << 20}, Here: true}}}
	return New(h, ready, "ann", func() Terms { return Terms{} }, slog.New(slog.DiscardHandler)), h, stock
}

// A spare is started where there is room, counts with the dispatcher, and goes to the next client with its
// terms. Its number ends when the client has the device.
func TestASpareIsTaken(t *testing.T) {
	p, h, stock := node()
	h.waiting = 1
	if p.Tend(1, false, stock); p.Waiting(0) != 0 {
		t.Error("a spare is started though a client waits")
	}
	h.waiting, h.now = 0, time.Minute
	if p.Tend(1, false, stock); p.Waiting(0) != 1 {
		t.Fatal("no spare waits")
	}
	if e, is := h.told[0].(vgpu.Adopt); !is || e.Client != 1 || e.Kept != 1<<20 || e.User != "ann" {
		t.Errorf("the dispatcher was told %+v", h.told)
	}
	config := stock.Entries[0].Config()
	if p.Take(0, Terms{Batch: true}, config, nil) != nil || p.Take(1, Terms{}, config, nil) != nil || p.Take(0, Terms{}, control.DeviceConfig{}, nil) != nil {
		t.Error("a client with other terms, or elsewhere, was given it")
	}
	gone := false
	s := p.Take(0, Terms{}, config, func() { gone = true })
	if s == nil || p.Waiting(0) != 0 {
		t.Fatal("nobody was given it")
	}
	p.Used(s, 0)
	if e, is := h.told[1].(vgpu.Detach); !gone || !is || e.Client != 1 || p.Of(1) != nil {
		t.Errorf("it counts still: %+v", h.told)
	}
}

// A context on another device than the client's, or that others need the memory of, is given back first.
func TestAContextIsGivenBack(t *testing.T) {
	p, h, stock := node()
	p.Tend(1, false, stock)
	s := p.Take(0, Terms{}, stock.Entries[0].Config(), func() {})
	p.Used(s, 1)
	if said := s.Worker.Posted(); len(said) != 1 || said[0] != (control.Forgo{}) || len(h.told) != 1 {
		t.Errorf("it was told %v, and the dispatcher %v", said, h.told)
	}
	p.Perform(s, vgpu.Effect{Kind: vgpu.Revoke, Client: 1})
	if said := s.Worker.Posted(); len(said) != 0 {
		t.Errorf("it was told %v once more", said)
	}
	if p.Leave(s); len(h.told) != 2 {
		t.Error("the dispatcher counts it still")
	}
}

// A fault under MPS has broken the contexts of the spares that share it, and of no others.
func TestEndBroken(t *testing.T) {
	p, _, _ := node()
	shared, apart := &Spare{Terms: Terms{MPS: control.MPS{Shared: true}}, waits: workers.NewPrepared()}, &Spare{waits: workers.NewPrepared()}
	p.all = map[vgpu.ClientID]*Spare{7: shared, 8: apart}
	if p.EndBroken(); !shared.ending || apart.ending {
		t.Errorf("the one that shares ends: %v, the other: %v", shared.ending, apart.ending)
	}
}

// Where one cannot be started, the next is started later.
func TestASpareThatCannotBeStarted(t *testing.T) {
	p, h, stock := node()
	tries := 0
	p.prepare = func(_ *workers.Prepared, _ control.Prepare, _ *os.File, _ []*os.File, on workers.Waiting) {
		tries++
		on.Ended(errors.New("no memory").Error(), false)
	}
	for range 20 {
		p.Tend(1, false, stock)
		h.now += time.Second
	}
	if tries != 2 {
		t.Errorf("%d tries in 20 s", tries)
	}
}

// Spares that die soon, one after the other, are started ever less often.
func TestSparesThatDieAreNotStartedAtOnce(t *testing.T) {
	p := New(&host{}, nil, "", nil, nil)
	now, s := &p.host.(*host).now, &Spare{}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := p.pauseAfter(s); got != want*time.Second {
			t.Errorf("after %d that died: %v", i+1, got)
		}
	}
	*now += longestPause
	if got := p.pauseAfter(s); got != workers.RetryTime {
		t.Errorf("after one that waited long: %v", got)
	}
}

// Spares are for programs like those that come: two in a row with other terms change them.
func TestSparesLearnTheirTerms(t *testing.T) {
	a, b := Terms{Batch: true}, Terms{MPS: control.MPS{Pipe: "p", Share: 50}, HasMPS: true}
	p := &Spares{all: map[vgpu.ClientID]*Spare{1: {}}, terms: a}
	for i, c := range []struct{ comes, then Terms }{{b, a}, {a, a}, {b, a}, {b, b}, {b, b}, {a, b}, {a, a}} {
		if p.learn(c.comes); p.terms != c.then {
			t.Errorf("after %d programs: %+v", i+1, p.terms)
		}
	}
}

// Where programs come in groups, as many are expected again, for a while and up to a limit.
func TestGroupsOfProgramsAreExpectedAgain(t *testing.T) {
	var none *demand
	if n := none.size(0); n != 1 {
		t.Errorf("%d are expected where none came", n)
	}
	c := &demand{}
	for _, step := range []struct {
		at    time.Duration
		comes int
		want  int
	}{
		{0, 1, 1},
		{10 * time.Second, 3, 3},
		{20 * time.Second, 1, 3}, // one alone does not mean that no group comes any more
		{30 * time.Second, 2, 3},
		{10*time.Second + groupStays, 0, 3},
		{11*time.Second + groupStays, 0, 1},
		{12*time.Second + groupStays, 2, 2},
		{20*time.Second + groupStays, 9, groupMost},
	} {
		for range step.comes {
			c.note(step.at)
		}
		if n := c.size(step.at); n != step.want {
			t.Errorf("at %v %d are expected, not %d", step.at, n, step.want)
		}
	}
}
