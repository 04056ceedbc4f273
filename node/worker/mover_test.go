package worker

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/vmm"
)

// newMover returns a mover between the host and two software devices, on which nothing is mapped.
func newMover(t *testing.T) *mover {
	arena := vmm.Range{Addr: testBase, Size: 64 * mib}
	host, err := hostcopy.New(arena, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	m := &mover{ctx: t.Context(), contexts: &contexts{open: map[vmm.Place]*gpu{}}, host: host, log: slog.New(slog.DiscardHandler)}
	m.block = func(f func() error) error { return f() }
	m.drain = func(g *gpu) error { return g.context.Synchronise(t.Context()) }
	began := time.Now()
	m.now = func() clientcore.Time { return time.Since(began) }
	for i := range 2 {
		d, err := soft.New(soft.Profile{Name: "test", Memory: 64 * mib, Speed: 1, Workers: 1}, soft.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g := &gpu{place: vmm.Device(i)}
		if g.context, err = d.Open(device.Config{Arena: device.Arena{Base: arena.Addr, Size: arena.Size}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.context.Close() })
		if g.mover, err = g.context.NewStream(); err != nil {
			t.Fatal(err)
		}
		g.hostPins = host.NewPins(g.context.Pin, m.log)
		m.contexts.add(g)
	}
	return m
}

// Memory goes from one device to another, through the host or straight, and to the host and back, as the
// directory plans it, and stays what it was.
func TestMover(t *testing.T) {
	for name, straight := range map[string]bool{"through the host": false, "straight": true} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t)
			space, err := vmm.New(vmm.Config{Arena: vmm.Range{Addr: testBase, Size: 64 * mib}, Chunk: chunk, Devices: vmm.Devices(2)})
			if err != nil {
				t.Fatal(err)
			}
			if straight {
				space.Direct(func(vmm.Place) string { return "peers" })
			}
			all := vmm.Range{Addr: testBase, Size: 9 * mib}
			if err := space.Alloc(all); err != nil {
				t.Fatal(err)
			}
			move := func(plan vmm.Plan, err error) []clientcore.Leg {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				legs, err := m.move(plan, false)
				if err != nil {
					t.Fatal(err)
				}
				return legs
			}
			on := func(device int) *gpu { return m.contexts.open[vmm.Device(device)] }
			want := bytes.Repeat([]byte("what was there "), 9*mib/15)
			move(space.Prepare(vmm.Device(0), []vmm.Range{all}, 64*mib))
			if err := on(0).mover.CopyIn(testBase, want); err != nil {
				t.Fatal(err)
			}
			space.Launched(vmm.Device(0), []vmm.Range{all})
			for _, device := range []int{1, 0} {
				var bytesOf uint64
				for _, leg := range move(space.Prepare(vmm.Device(device), []vmm.Range{all}, 64*mib)) {
					bytesOf += leg.Bytes
				}
				if bytesOf < all.Size {
					t.Errorf("%d bytes were moved", bytesOf)
				}
				space.Launched(vmm.Device(device), []vmm.Range{all})
			}
			move(space.Evict(vmm.Device(1), 0), nil)
			move(space.Evict(vmm.Device(0), 0), nil)
			if free, total, err := on(0).context.Memory(); err != nil || free != total {
				t.Errorf("%d of %d bytes are free after all has left: %v", free, total, err)
			}
			move(space.Prepare(vmm.Device(1), []vmm.Range{all}, 64*mib))
			got := make([]byte, len(want))
			if err := on(1).mover.CopyOut(got, testBase); err != nil {
				t.Fatal(err)
			}
			if err := m.finish(on(1)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("other bytes came back: %v", err)
			}
		})
	}
}
