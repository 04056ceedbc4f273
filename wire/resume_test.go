package wire

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A consumer continues where another one stopped, in memory with the same bytes.
func TestConsumerGoesOnElsewhere(t *testing.T) {
	g := Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 1 << 20, Pinned: 1 << 20}
	ring, arena, err := Create(g)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	defer arena.Close()
	first, err := Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Unmap()
	producer, consumer := NewProducer(first), NewConsumer(first)
	for i := range 10 {
		if err := producer.Post(&MemFree{Addr: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	take := func(c *Consumer, want uint64) {
		t.Helper()
		_, body, err := c.Next(4 * time.Minute)
		var m MemFree
		if err != nil || m.Decode(body) != nil || m.Addr != want {
			t.Fatalf("message %d: %+v, %v", want, m, err)
		}
	}
	for i := range 4 {
		take(consumer, uint64(i))
	}
	ring2, arena2, err := Create(g)
	if err != nil {
		t.Fatal(err)
	}
	defer ring2.Close()
	defer arena2.Close()
	if err := Contents(ring, 4096, func(at uint64, data []byte) error { _, err := ring2.WriteAt(data, int64(at)); return err }); err != nil {
		t.Fatal(err)
	}
	second, err := Map(ring2, arena2)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Unmap()
	head := make([]byte, 64)
	if _, err := ring.ReadAt(head, 0); err != nil || !second.SameGeometry(head) {
		t.Error("it has another geometry", err)
	}
	if head[16]++; second.SameGeometry(head) || second.SameGeometry(head[:10]) {
		t.Error("another geometry is taken for the same")
	}
	next := NewConsumer(second)
	next.Resume(consumer.Position())
	for i := 4; i < 10; i++ {
		take(next, uint64(i))
	}
	if next.Pending() {
		t.Error("more messages came")
	}
}

// Contents finds what was written, and does not allocate pages.
func TestContents(t *testing.T) {
	f, err := memfd("muster-test", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte{7}, 10000)
	if _, err := f.WriteAt(want, 512<<20); err != nil {
		t.Fatal(err)
	}
	found := map[uint64]byte{}
	if err := Contents(f, 4096, func(at uint64, data []byte) error {
		for i, b := range data {
			if b != 0 {
				found[at+uint64(i)] = b
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) != len(want) || found[512<<20] != 7 || found[512<<20+9999] != 7 {
		t.Errorf("%d bytes were found", len(found))
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks > 64 {
		t.Errorf("looking took %d blocks", blocks)
	}
}

func TestNamesAreUnique(t *testing.T) {
	g := Geometry{Ring: 256 << 10, Staging: 4 << 20, Bounce: 1 << 20, Pinned: 1 << 20}
	seen := map[string]bool{}
	for range 3 {
		ring, arena, err := Create(g)
		if err != nil {
			t.Fatal(err)
		}
		defer ring.Close()
		defer arena.Close()
		_, r, _ := strings.Cut(ring.Name(), ringName)
		_, a, _ := strings.Cut(arena.Name(), arenaName)
		if r == "" || r != a || seen[r] {
			t.Errorf("%s, %s", ring.Name(), arena.Name())
		}
		seen[r] = true
	}
}
