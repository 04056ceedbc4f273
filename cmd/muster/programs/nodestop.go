package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/cmd/muster/cli"
	"muster/node/ask"

	"github.com/spf13/cobra"
)

const stopHelp = `End a node, and wait for that. Only root and the user whose node it is may do so.

Programs have the node's grace time to end, and are then ended and told why. With
--now they are ended at once. With --handover they go on, for the node's orphan_grace:
start the node again, perhaps another version of it, and it serves them as before.`

func newNodeStop() *cobra.Command {
	var socket string
	var now, handover bool
	var wait time.Duration
	c := &cobra.Command{
		Use:     "stop [--socket ADDRESS] [--handover | --now] [--wait TIME]",
		Short:   "End a node, or leave its programs to the next one",
		Long:    stopHelp,
		Example: "  muster node stop\n  muster node stop --handover && muster node --config /etc/muster/node.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			how := "grace"
			switch {
			case now && handover:
				return cli.UsageErrorf("--now and --handover: give one of them")
			case now:
				how = "now"
			case handover:
				how = "handover"
			}
			ctx, cancel := context.WithTimeout(c.Context(), wait)
			defer cancel()
			err := ask.Stop(ctx, socketOf(socket), how)
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("after %v the node has not ended: it still waits for its programs (--now ends them)", wait)
			}
			return err
		},
	}
	nodeFlag(c, &socket)
	c.Flags().BoolVar(&handover, "handover", false, "leave the programs to the next daemon at the same socket")
	c.Flags().BoolVar(&now, "now", false, "end the programs at once")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait for the node's end")
	return c
}
