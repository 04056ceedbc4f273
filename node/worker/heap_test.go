package worker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/wire"
	"muster/wire/control"
)

// What kernels have allocated is there wherever the client goes: to another device, into
// a checkpoint and back, to another worker after the first has died.
func TestHeapFollowsTheClient(t *testing.T) {
	image, err := os.ReadFile("../../ptx/simt/testdata/heap/heap.ptx")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]options{
		"moved": {}, "in a file": {swapDir: t.TempDir()}, "dies": {recovers: true, dies: rand.New(rand.NewPCG(1, 5)), lives: 60},
	} {
		t.Run(name, func(t *testing.T) {
			turn := 0
			o.identity = "me"
			o.devices = []soft.Profile{{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 64 * mib, Speed: 1, Workers: 2}}
			o.grant = func(m control.Want) (int, uint64) { turn++; return turn % 2, m.Memory }
			c := newClient(t, o)
			path := filepath.Join(t.TempDir(), "file")
			const grid, block = 2, 64
			kept, wrong := c.alloc(8*8*grid*block), c.alloc(4096)
			c.in(kept, make([]byte, 8*8*grid*block))
			c.in(wrong, make([]byte, 4096))
			c.post(&wire.Limit{Limit: device.LimitHeap, Value: 3 * mib})
			churn := c.load(1, image, "churn")
			run := func(f uint32, params []byte) {
				c.post(&wire.Launch{Function: f, GridX: grid, GridY: 1, GridZ: 1, BlockX: block, BlockY: 1, BlockZ: 1, Params: params})
			}
			steps := func(seed uint32) {
				p := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, kept), wrong), wrong+4)
				run(churn, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(p, 20), seed))
			}
			for seed := range uint32(2) {
				steps(seed)
				c.revoke("memory")
				steps(seed + 100)
				if name != "dies" {
					c.checkpoint(path)
					steps(seed + 200) // what is undone
					if answer := c.restore(path); answer.Error != "" {
						t.Fatal(answer.Error)
					}
					c.transplant(path)
				}
			}
			clearing := c.load(2, image, "clear") // of another module
			run(clearing, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, kept), wrong))
			c.must(&wire.Synchronise{}, nil)
			if got := c.out(wrong, 8); binary.LittleEndian.Uint32(got) != 0 || binary.LittleEndian.Uint32(got[4:]) != 0 {
				t.Errorf("%d blocks had another's content, and %d could not be had", binary.LittleEndian.Uint32(got), binary.LittleEndian.Uint32(got[4:]))
			}
			if got := fmt.Sprint(c.out(kept, 8)); got != "[0 0 0 0 0 0 0 0]" {
				t.Errorf("a block remains: %s", got)
			}
		})
	}
}
