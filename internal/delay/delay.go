// Package delay passes connections on to another address, each byte later by a given time. It stands for
// a distant network where nobody may tell the system to delay packets (tc needs root, and a module of
// the kernel). It does not limit the bandwidth.
package delay

import (
	"context"
	"net"
	"sync"
	"time"
)

// Forward forwards connections to an address, with the given delay each way, until the context ends:
// then it closes the listener and all of them.
func Forward(ctx context.Context, listener net.Listener, to string, each time.Duration) {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer near.Close()
			far, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
			var both sync.WaitGroup
			both.Go(func() { forwardOne(far, near, each) })
			both.Go(func() { forwardOne(near, far, each) })
			both.Wait()
		})
	}
}

// underway is how many pieces of a connection's bytes are on their way at most: 64 MiB, what
// the fastest networks carry within ten milliseconds.
const underway = 1024

// forwardOne passes bytes of one direction on, until that ends.
func forwardOne(to, from net.Conn, later time.Duration) {
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, underway)
	var sender sync.WaitGroup
	sender.Go(func() {
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close() // and the pieces that are left go nowhere
			}
		}
		if half, ok := to.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
	})
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{time.Now().Add(later), b[:n]}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	sender.Wait()
}
