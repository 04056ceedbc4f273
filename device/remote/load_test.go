package remote

import (
	"context"
	"testing"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/client"
)

// A lender says how busy a device is with programs of others, and does not count those of the node
// that asks.
func TestLenderSaysHowBusyItIs(t *testing.T) {
	l := newLender(t, nil)
	own := openOn(t, l.open(t, 0), 4<<20)
	load := func() int {
		calls, each := l.open(t, 0).Load()
		if calls > 0 && each <= 0 {
			t.Errorf("%d programs whose kernels take %v", calls, each)
		}
		return calls
	}
	// What another node's program does, on the first device.
	arena := device.Arena{Base: base, Size: 1 << 30}
	hello := greeting()
	hello.Program = "a node's device, lent to another one"
	guest, err := client.Connect(t.Context(), plain(l.address), hello, wire.Attach{ArenaBase: arena.Base, ArenaSize: arena.Size})
	must(t, err)
	d := l.open(t, 0)
	d.contexts++
	other := newContext(d, device.Config{Arena: arena}, guest)
	t.Cleanup(func() { _ = other.Close() })
	must(t, other.Map(base, 4<<20))
	m, err := other.Load([]byte(countKernel))
	must(t, err)
	f, err := m.Function("count")
	must(t, err)
	on, err := other.NewStream()
	must(t, err)
	block := device.Dim{X: 256, Y: 1, Z: 1}
	for deadline := time.Now().Add(2 * time.Minute); load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the lender never says that the device is busy")
		}
		own.launch() // does not count
		own.finish()
		must(t, on.Launch(f, device.Launch{Grid: device.Dim{X: 1 << 12, Y: 1, Z: 1}, Block: block, Params: own.params}))
		must(t, on.Synchronise(context.Background()))
	}
	if calls, _ := l.open(t, 1).Load(); calls != 0 {
		t.Errorf("%d programs are on a device that nobody uses", calls)
	}
}
