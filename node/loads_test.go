package node

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/lending"
	"muster/node/loop"
	"muster/node/settings"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/borrow"
	"muster/wire/control"
)

// Of a mapped client, busy time at home is that of all its devices: home counts only if something ran,
// or is, there.
func TestRecentUseOfMappedClients(t *testing.T) {
	c := &client{mappings: mappings{mapping: "ag", home: 1}}
	c.used(1, time.Second, 0, 0, time.Second)
	if c.uses[1].Busy != 0 {
		t.Errorf("%+v", c.uses[1])
	}
	c.used(1, 2*time.Second, 0, 1, 0) // a long kernel
	if c.uses[1].Busy < 0.9 {
		t.Errorf("%+v", c.uses[1])
	}
	c.used(-1, time.Second, 1, 1, time.Second) // no device
	if len(c.uses) != 1 {
		t.Errorf("%+v", c.uses)
	}
}

// What a lender says is added to what the node knows, and both are as old as the older.
func TestMergedLoads(t *testing.T) {
	all := merge(nil, control.Busyness{Device: 1, Calls: 1000, Each: 10})
	all = merge(all, control.Busyness{Device: 1, Calls: 3000, Each: 50, Age: 7})
	all = merge(all, control.Busyness{Device: 2, Calls: 1})
	if len(all) != 2 || all[0] != (control.Busyness{Device: 1, Calls: 4000, Each: 40, Age: 7}) {
		t.Errorf("%+v", all)
	}
}

// lentDevice is a device whose lender says how busy it is.
type lentDevice struct{ device.Device }

func (lentDevice) Load() (int, time.Duration) { return 1500, 3 * time.Millisecond }

// What the lender of a device of the configuration said when it was greeted counts, and gets older.
func TestLoadsOfLentDevices(t *testing.T) {
	now := time.Unix(100, 0)
	b := &loads{common: common{loop: loop.New(func() time.Time { return now })}}
	b.stock = stock.New(&inventory.Inventory{Entries: []inventory.Device{{}, {Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote, Index: 4}}, Here: true}}}, nil, nil, nil, stock.Options{})
	b.lenders = lending.NewLenders(b.loop.Do, nil, b.loop.Now, maxMissed)
	if said, _ := b.lenderSaid(1); said != (borrow.Load{}) {
		t.Errorf("nobody has said anything: %+v", said)
	}
	b.lenders.Heard(0, 0, struct{ device.Device }{}) // of another kind
	b.lenders.Heard(1, 4, lentDevice{})
	now = now.Add(time.Second)
	if said, age := b.lenderSaid(1); said.Calls != 1500 || said.Each != 3*time.Millisecond || age != time.Second {
		t.Errorf("%+v, %v ago", said, age)
	}
	if said, _ := b.lenderSaid(0); said.Calls != 0 {
		t.Errorf("%+v", said)
	}
}

// A lender can say the most that a message may have, and a client still gets a message that it takes.
func TestLendersLie(t *testing.T) {
	line, err := borrow.Encode(borrow.Answer{Version: borrow.Version, Node: "n", Loads: []borrow.Load{{Device: 1, Calls: 1 << 20, Each: 24 * time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := borrow.ReadAnswer(bytes.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []control.Busyness{{Device: 1, Calls: 1, Each: 1}, {Device: 1, Calls: 64000, Each: 64 * time.Second}} {
		said := a.Loads[0]
		all := merge([]control.Busyness{own}, control.Busyness{Device: said.Device, Calls: said.Calls, Each: said.Each})
		if len(all) != 1 || all[0].Each <= own.Each || all[0].Each > said.Each || all[0].Calls < said.Calls {
			t.Errorf("%+v", all)
		}
	}
	for _, lie := range []string{`"calls":-1,"each":1`, `"calls":1048577,"each":1`, `"calls":1,"each":-1`, `"calls":1,"each":9223372036854775807`, `"calls":1,"each":1e400`, `"calls":NaN,"each":1`, `"calls":1.5,"each":1`} {
		line := fmt.Sprintf(`{"version":%d,"node":"n","slots":1,"free":0,"waiting":0,"idle":0,"loads":[{"device":0,%s}]}`, borrow.Version, lie)
		if a, err := borrow.ReadAnswer([]byte(line)); err == nil {
			t.Errorf("%s is taken: %+v", lie, a)
		}
	}
}

// Launches of a worker that was killed count no more when the daemon has noticed, even if another process
// has its number now; and what a worker wrote in the names of others goes with it.
func TestQueuesOfEndedWorkers(t *testing.T) {
	f, err := wire.CreatePrecedence()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := wire.MapPrecedence(f)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Unmap()
	const lives = 1
	stranger := os.Getpid() // a process, but no worker
	b := &loads{precedence: &precedence{f}, common: common{clients: map[vgpu.ClientID]*client{1: {worker: workers.Fake(lives, 0)}, 2: {}}}}
	kept := page.Queue(0, lives)
	kept.Add(3)
	page.Queue(0, stranger).Add(7)
	for page.Queue(1, stranger) != nil {
	}
	b.sweepQueues()
	if got := page.QueuedBy(0, 0); got != 3 {
		t.Errorf("%d are queued", got)
	}
	if page.Queue(1, lives) == nil {
		t.Error("no place is left for others")
	}
	(&loads{precedence: &precedence{}}).sweepQueues() // no memory
}
