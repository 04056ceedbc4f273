package main

import (
	"fmt"
	"net"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// newDelay is for measuring how programs fare with a node that is far away, where nobody may
// tell the system to delay packets (tc needs root, and the kernel's module).
func newDelay() *cobra.Command {
	var listen, to string
	var roundTrip time.Duration
	c := &cobra.Command{
		Use:     "delay --listen ADDRESS --to ADDRESS --round-trip TIME",
		Short:   "Pass connections on, later",
		Long:    "Pass connections on to another address, each byte so much later that a round trip takes TIME\nmore. Bandwidth is not limited. It ends at Ctrl-C or SIGTERM.\n\nmuster --help does not list this command, as it is for measuring Muster, not for using it:\nscripts/gpu-bench shows with it how programs fare whose GPU is far away.",
		Example: "  muster delay --listen 127.0.0.1:9422 --to gpu1.example.org:9421 --round-trip 10ms",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if to == "" || roundTrip < 0 {
				return usageErrorf("say where to (--to), and how much later (--round-trip)")
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			go func() {
				<-ctx.Done()
				listener.Close()
			}()
			fmt.Fprintln(c.OutOrStdout(), listener.Addr())
			delayAll(listener, to, roundTrip/2)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "take connections at this `address`, which is printed")
	flags.StringVar(&to, "to", "", "pass them on to this `address`")
	flags.DurationVar(&roundTrip, "round-trip", time.Millisecond, "how much longer a round trip takes")
	return c
}

// delayAll forwards connections until the listener is closed, with the given delay each way.
func delayAll(listener net.Listener, to string, each time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			var both sync.WaitGroup
			both.Go(func() { delayOne(far, near, each) })
			both.Go(func() { delayOne(near, far, each) })
			both.Wait()
		})
	}
}

// underway is how many pieces of a connection's bytes are on their way at most: 64 MiB, what
// the fastest networks carry within ten milliseconds.
const underway = 1024

// delayOne passes bytes of one direction on, until that ends.
func delayOne(to, from net.Conn, later time.Duration) {
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
