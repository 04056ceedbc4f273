//go:build linux && cgo

package cuda

import (
	"bytes"
	"errors"
	"testing"

	"muster/device"
)

// What a device sends back is what it got, whatever the stream does with that memory afterwards, and
// whether its memory was pinned in one part or in several.
func testEcho(t *testing.T, b *bench) {
	const size, part = 13<<20 + 5000, 2 << 20
	b.ok(b.Map(testBase, (size+b.g-1)/b.g*b.g))
	src, keep := make([]byte, size), make([]byte, size)
	e := b.stream.Can()
	if err := e.CopyInKept(testBase, src, keep); !errors.Is(err, device.ErrNotSupported) {
		t.Fatalf("memory that is not pinned: %v", err)
	}
	if err := e.CopyInKept(testBase, src, keep[1:]); !errors.Is(err, device.ErrInvalidValue) {
		t.Fatalf("less memory than data: %v", err)
	}
	_, err := b.Pin(src)
	b.ok(err)
	for at := 0; at < size; at += part {
		_, err := b.Pin(keep[at:min(at+part, size)])
		b.ok(err)
	}
	for round, n := range []int{1, 4096, 1 << 20, 3<<20 + 17, size} {
		for i := range src {
			src[i] = byte(i*7 + i>>13 + round)
		}
		clear(keep)
		from := size - n
		b.ok(e.CopyInKept(testBase+uint64(from), src[from:], keep[from:]))
		b.ok(b.stream.Fill(testBase, 0xee, 1, size))
		b.ok(b.stream.Synchronise(b.ctx))
		if !bytes.Equal(keep[from:], src[from:]) || bytes.Count(keep[:from], []byte{0}) != from {
			t.Errorf("other bytes came back of %d", n)
		}
	}
}

func TestEcho(t *testing.T) { withStandin(t, testEcho) }

func TestEchoOfAGPU(t *testing.T) { testEcho(t, open(t, 64<<20)) }

func TestEchoPieces(t *testing.T) {
	for size, want := range map[int]int{1 << 20: 1 << 20, 4 << 20: 1 << 20, 40 << 20: 2 << 20, 64 << 20: 4 << 20, 1 << 30: 4 << 20} {
		if got := echoPiece(size); got != want {
			t.Errorf("%d bytes in pieces of %d, want %d", size, got, want)
		}
	}
}
