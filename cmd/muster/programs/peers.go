package programs

import (
	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/node/ask"
	"muster/node/nodetable"

	"github.com/spf13/cobra"
)

func NewPeers() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "peers [--socket ADDRESS] [--json]",
		Short: "List the nodes from which a node borrows virtual GPUs, and those to which it lends",
		Long: `List the peers of a node: those from which it borrows virtual GPUs while programs wait,
or would run faster there (peers in its configuration). HEARD is how long ago the peer said
how it is; VGPUS are those of its devices, FREE those that it would lend now, WAITING its
programs that wait for one, and UNUSED the speed of the fastest device that nobody uses.
BORROWED is how many this node has of it, PROGRAMS how many programs are there.

A second table lists what this node has lent: the node that borrowed, the device, and
how many of its virtual GPUs (0 for a node that has the device for good); recalled where
this node wants them back. PROGRAMS are there now;
KERNELS ran there, IN and OUT were copied there and back, since this node began.

muster ps shows on which node each program is.`,
		Example: "  muster peers\n  muster peers --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := ask.Status(socketOf(socket))
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, nodetable.PeersOf(s))
			}
			return nodetable.WritePeers(c.OutOrStdout(), s, screen.Columns(c.OutOrStdout()))
		},
	}
	nodeFlag(c, &socket)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}
