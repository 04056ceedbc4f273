package programs

import (
	"context"

	"muster/cmd/muster/cli"
	"muster/node/ask"
	"muster/node/nodetable"
	"muster/node/programs"
	"muster/wire/status"

	"github.com/spf13/cobra"
)

// whereFlags say whose status is wanted: that of a node on this machine, of a node of
// the cluster, or of all.
type whereFlags struct {
	socket, node string
	cluster      bool
	head         cli.AskFlags
}

const whereHelp = `

--node NAME asks a node of the cluster, through the head; --cluster asks all of them at
once. A node that is away, or does not answer in time, is shown as such.` + cli.AskHelp

func (f *whereFlags) add(c *cobra.Command) {
	nodeFlag(c, &f.socket)
	c.Flags().BoolVar(&f.cluster, "cluster", false, "ask all nodes of the cluster")
	c.Flags().StringVar(&f.node, "node", "", "ask the node of this `name`")
	f.head.Add(c)
	_ = c.RegisterFlagCompletionFunc("node", cli.CompleteNodes(&f.head))
}

func (f *whereFlags) check() error {
	if f.cluster && f.node != "" || f.socket != "" && (f.cluster || f.node != "") {
		return cli.UsageErrorf("give one of --socket, --cluster and --node")
	}
	return nil
}

// one asks the node of this machine, and adds the arguments of its programs, or the node that is
// named.
func (f *whereFlags) one(ctx context.Context) (*status.Node, error) {
	if f.node == "" {
		s, err := ask.Status(socketOf(f.socket))
		if err == nil {
			programs.AddArguments(s)
		}
		return s, err
	}
	h, err := f.head.Open()
	if err != nil {
		return nil, err
	}
	return h.NodeStatus(ctx, f.node)
}

// all asks all nodes of the cluster.
func (f *whereFlags) all(ctx context.Context) (*nodetable.Cluster, error) {
	h, err := f.head.Open()
	if err != nil {
		return nil, err
	}
	answers, err := h.NodeStatuses(ctx)
	if err != nil {
		return nil, err
	}
	all := &nodetable.Cluster{Nodes: []nodetable.NodeStatus{}}
	for _, a := range answers {
		all.Nodes = append(all.Nodes, nodetable.NodeStatus{Node: a.Node.Name, State: a.Node.State, Status: a.Status, Error: a.Error})
	}
	return all, nil
}
