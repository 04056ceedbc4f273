package worker

import (
	"bytes"
	"testing"

	"muster/device"
	"muster/wire"
)

// What a stream is given behind its wait for a word happens after that wait, also if the memory was on
// no device: another stream, which writes the word, sees what was there before.
func TestCopiesComeAfterAWaitForAWord(t *testing.T) {
	const size = 4096
	c := newClient(t, options{})
	at, word := c.alloc(chunk), c.alloc(8)
	before, after := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
	c.in(at, before)
	for _, id := range []uint32{3, 4} {
		c.post(&wire.StreamCreate{Stream: id, Flags: nonBlocking})
	}
	c.post(&wire.StreamAwait{Stream: 3, Addr: word, Value: 7, Width: 4, Compare: uint32(device.Equal), Cookie: 1})
	c.post(&wire.CopyInline{Dst: at, Stream: 3, Data: after})
	if got := c.outOn(4, at, size); !bytes.Equal(got, before) {
		t.Errorf("before the word was written, %d is there", got[0])
	}
	c.post(&wire.StreamWrite{Stream: 4, Addr: word, Value: 7, Width: 4})
	if got := c.outOn(3, at, size); !bytes.Equal(got, after) {
		t.Errorf("after the word was written, %d is there", got[0])
	}
}
