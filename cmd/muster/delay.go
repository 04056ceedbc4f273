package main

import (
	"fmt"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/delay"
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
				return cli.UsageErrorf("say where to (--to), and how much later (--round-trip)")
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			fmt.Fprintln(c.OutOrStdout(), listener.Addr())
			delay.Forward(ctx, listener, to, roundTrip/2)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "take connections at this `address`, which is printed")
	flags.StringVar(&to, "to", "", "pass them on to this `address`")
	flags.DurationVar(&roundTrip, "round-trip", time.Millisecond, "how much longer a round trip takes")
	return c
}
