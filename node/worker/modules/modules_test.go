package modules

import (
	"bytes"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/node/clientcore"
)

const counter = `.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u64 count = 3;
.visible .global .align 8 .u64 at = count;
.visible .entry nothing() { ret; }
`

// opened returns a context of a new device, in which so many other images are loaded before.
func opened(t *testing.T, others int) (*Modules, device.Context, device.Stream) {
	d, err := soft.New(soft.Profile{Name: "test", Memory: 64 << 20, Speed: 1, Workers: 1}, soft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Open(device.Config{Arena: device.Arena{Base: 0x6400_0000_0000, Size: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for range others {
		if _, err := c.Load([]byte(counter)); err != nil {
			t.Fatal(err)
		}
	}
	on, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	m := New(d, c, on)
	if others > 0 {
		m.loadAt = nil // it chooses addresses itself
	}
	return m, c, on
}

// A module that is loaded again in another context has the contents that its variables had, and where they
// lie elsewhere, operations and pointers between them are translated.
func TestModulesGoToAnotherContext(t *testing.T) {
	for name, others := range map[string]int{"same addresses": 0, "other addresses": 1} {
		t.Run(name, func(t *testing.T) {
			from, _, on := opened(t, 0)
			globals, functions, err := from.Load(&clientcore.Op{Module: 1, Image: []byte(counter)})
			if err != nil || len(globals) != 2 || len(functions) != 1 || functions[0].Name != "nothing" {
				t.Fatalf("%v, %v, %v", globals, functions, err)
			}
			at := map[string]uint64{}
			for _, g := range globals {
				at[g.Name] = g.Address
			}
			if err := on.CopyIn(at["count"], []byte{7, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
			loaded := []clientcore.Loaded{{Module: 1, Image: []byte(counter), Globals: globals}}
			saved, err := from.Save(t.Context(), loaded)
			if err != nil {
				t.Fatal(err)
			}
			loaded[0].Saved = saved[1]

			to, c, on := opened(t, others)
			if err := to.Replay(t.Context(), loaded, others > 0); err != nil {
				t.Fatal(err)
			}
			if to.Shifted() != (others > 0) {
				t.Errorf("shifted: %v", to.Shifted())
			}
			o := to.Here(&clientcore.Op{From: clientcore.Area{Addr: at["count"], Width: 8, Height: 1, Pitch: 8}})
			got := make([]byte, 8)
			if err := on.CopyOut(got, o.From.Addr); err != nil {
				t.Fatal(err)
			}
			if err := c.Synchronise(t.Context()); err != nil || !bytes.Equal(got, []byte{7, 0, 0, 0, 0, 0, 0, 0}) {
				t.Errorf("the variable has %v: %v", got, err)
			}
			again, err := to.Save(t.Context(), loaded)
			if err != nil || !bytes.Equal(again[1][0], saved[1][0]) || !bytes.Equal(again[1][1], saved[1][1]) {
				t.Errorf("saved again it has %v, not %v: %v", again, saved, err)
			}
			if _, err := to.Function(&clientcore.Op{Module: 1, Name: "nothing"}); err != nil {
				t.Error(err)
			}
			if err := to.Unload(1); err != nil {
				t.Error(err)
			}
			if to.Unload(1) == nil || to.Shifted() {
				t.Error("it is loaded still")
			}
			if _, err := to.Describe(1, "nothing"); err == nil {
				t.Error("a kernel of a module that is unloaded is described")
			}
		})
	}
}
