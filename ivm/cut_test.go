package ivm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"muster/ivm"
)

const cutValues = 1 << 17

func init() {
	// A put whose connection breaks is lost, and so is the mirror: a second put must not say that
	// all is well, since it would send what has changed since the first one only.
	scenarios["cut"] = func(ctx context.Context, e *ivm.Element) error {
		s, err := ivm.Map[int64](ctx, e, "values")
		if err != nil {
			return err
		}
		for i := range s.Data {
			s.Data[i] = -1
		}
		for range 2 {
			if err := s.Put(ctx, 0, len(s.Data)); !errors.Is(err, ivm.ErrLost) {
				return fmt.Errorf("a put that cannot have arrived says %v", err)
			}
		}
		if _, err := ivm.Map[int64](ctx, e, "values"); !errors.Is(err, ivm.ErrLost) {
			return fmt.Errorf("mapping it again says %v", err)
		}
		return nil
	}
}

// cutConn breaks when more than a few blocks of data were written.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func TestAPutThatBreaksIsNotForgotten(t *testing.T) {
	nodes := clusterOver(t, 2, func(c net.Conn, server bool) net.Conn {
		if server {
			return c
		}
		return &cutConn{c, 300 << 10}
	})
	ctx, e := begin(t, nodes, "cut")
	must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "values", cutValues))
	ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 1))
	check(t, e.Wait(ctx, ids[0]))
}

// testSilence is that of the daemons of a cluster that is made next; 0 is their default.
var testSilence time.Duration

// mutedConn drops everything once it is muted, and says nothing.
type mutedConn struct {
	net.Conn
	muted *atomic.Bool
}

func (c *mutedConn) Write(b []byte) (int, error) {
	if c.muted.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// The network between two nodes drops everything, without a word: both notice, the elements beyond it
// are lost, and nobody waits for them for ever.
func TestHalfOpenNodesAreLost(t *testing.T) {
	testSilence = 500 * time.Millisecond
	defer func() { testSilence = 0 }()
	var muted atomic.Bool
	nodes := clusterOver(t, 2, func(c net.Conn, _ bool) net.Conn { return &mutedConn{c, &muted} })
	ctx, e := begin(t, nodes, "waits")
	ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 1))
	check(t, e.Wait(ctx, ids[0])) // its signal: it is there
	muted.Store(true)
	if err := e.Wait(ctx, ids[0]); !errors.Is(err, ivm.ErrDead) {
		t.Errorf("the element of a node that is silent: %v", err)
	}
}

func init() {
	scenarios["waits"] = func(ctx context.Context, e *ivm.Element) error {
		if err := e.Signal(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}
