package client

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"muster/wire"
)

// A lane that a busy node did not accept is tried again: without it, the program's data would have
// fewer connections for as long as it runs.
func TestLaneIsTriedAgain(t *testing.T) {
	tries, taken := 0, make(chan struct{})
	dial := func(context.Context) (net.Conn, error) {
		if tries++; tries == 1 {
			return nil, errors.New("the node is busy")
		}
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			key := make([]byte, len(wire.LaneKey{}))
			if _, err := io.ReadFull(far, key); err != nil || tries == 2 {
				return // it has no place for it
			}
			_, _ = far.Write([]byte{1})
			close(taken)
			_, _ = far.Read(key)
		}()
		return near, nil
	}
	b := newBulk(dial, wire.Frame{Lanes: 1, From: 1}, time.Second, 0, func(uint64) {})
	over := make(chan struct{})
	go func() {
		b.serve()
		close(over)
	}()
	<-taken
	b.end()
	<-over
	if tries != 3 {
		t.Errorf("it was tried %d times", tries)
	}
}
