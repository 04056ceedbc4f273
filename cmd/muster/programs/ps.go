package programs

import (
	"fmt"
	"io"
	"slices"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/internal/screen"
	"muster/node/ask"
	"muster/node/nodetable"
	"muster/node/settings"
	"muster/wire/api"
	"muster/wire/status"

	"github.com/spf13/cobra"
)

func NewDevices() *cobra.Command {
	var socket, name string
	var asJSON, cluster bool
	var head cli.AskFlags
	c := &cobra.Command{
		Use:   "devices [--socket ADDRESS | --cluster | --node NAME] [--json]",
		Short: "List the devices of a node, or of the cluster",
		Long: `List the devices of a node: their state, their memory and how much of it is free,
their virtual GPUs (VGPUS) and how many of them programs have (ASSIGNED) and use at this
moment (BUSY), and how long kernels have run there since the node began. Devices that
were removed are left out; muster device list has them too. A line below says how
programs share the GPUs under NVIDIA's MPS, where the node could have it, and one what
keeps workers, which run what programs send, from the rest of the machine.

STATE is up while the device takes programs; draining when it does not any more and some
are still there, drained when none is; lost when it is gone.

--cluster asks the head for the devices of all nodes, --node NAME for those of one: what
jobs hold of their memory, and which jobs these are. There STATE is up while the device
takes jobs; down when it does not, as it is drained, lost, removed or borrowed; away when
the head does not hear of its node, of which muster nodes says more. The nodes themselves
are asked what confines their workers; of one that does not answer in time that is left
out.` + cli.AskHelp,
		Example: "  muster devices\n  muster devices --cluster\n  muster devices --node n3 --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if cluster || name != "" {
				if socket != "" || cluster && name != "" {
					return cli.UsageErrorf("give one of --socket, --cluster and --node")
				}
				return printClusterDevices(c, &head, name, asJSON)
			}
			s, err := ask.Status(socketOf(socket))
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, status.DevicesOf(s, false))
			}
			printProblems(c.ErrOrStderr(), s)
			if err := nodetable.WriteDevices(c.OutOrStdout(), s, false, screen.Columns(c.OutOrStdout())); err != nil {
				return err
			}
			if s.MPS != nil {
				fmt.Fprintln(c.OutOrStdout(), "MPS:", s.MPS)
			}
			if by, any := s.Confined(); any {
				_, err = fmt.Fprintln(c.OutOrStdout(), "Workers: confined by", by)
			}
			return err
		},
	}
	nodeFlag(c, &socket)
	c.Flags().BoolVar(&cluster, "cluster", false, "the devices of all nodes, as the head knows them")
	c.Flags().StringVar(&name, "node", "", "the devices of the node of this `name`, as the head knows them")
	head.Add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	_ = c.RegisterFlagCompletionFunc("node", cli.CompleteNodes(&head))
	return c
}

// printProblems says what is wrong with a node, a line each.
func printProblems(w io.Writer, s *status.Node) {
	for _, p := range s.Problems {
		fmt.Fprintf(w, "muster: problem: %s\n", p)
	}
}

func nodeFlag(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", "", "the node's socket (default: "+settings.DefaultSocket+", or $MUSTER_SOCKET)")
}

// printClusterDevices lists the devices of all nodes, or of one.
func printClusterDevices(c *cobra.Command, f *cli.AskFlags, node string, asJSON bool) error {
	var lists []string
	if node != "" {
		lists = []string{node}
	}
	names, err := headclient.NodeNames(lists)
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	nodes, err := h.NamedNodes(c.Context(), names)
	if err != nil {
		return err
	}
	all := nodetable.DevicesOf(nodes)
	var ask []api.Node // those with devices
	for i := range nodes {
		if len(nodes[i].Devices) > 0 {
			ask = append(ask, nodes[i])
		}
	}
	answers, err := h.StatusesOf(c.Context(), ask)
	if err != nil {
		return err
	}
	for _, a := range answers {
		at := slices.IndexFunc(all.Nodes, func(n nodetable.NodeDevices) bool { return n.Node == a.Node.Name })
		if a.Status != nil {
			all.Nodes[at].Add(a.Status)
		}
	}
	if asJSON {
		return cli.PrintJSON(c, all)
	}
	return all.Write(c.OutOrStdout(), screen.Columns(c.OutOrStdout()))
}
