package jobs

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/internal/screen"
	"muster/model/clusterfile"
	"muster/node/nodetable"
	"muster/report"
	"muster/wire/api"
	"muster/wire/trust"
)

func NewNodes() *cobra.Command {
	var f cli.AskFlags
	var asJSON, asCluster, hostnames bool
	c := &cobra.Command{
		Use:   "nodes [NODE...] [--json | --cluster-file | --hostnames]",
		Short: "List the nodes of the cluster",
		Long: `List the nodes of the cluster, as sinfo -N does. CORES, MEMORY and GPUS have what jobs
hold and, behind the slash, what there is; a GPU counts as held when any of its memory
is. USE is how much of the last second its GPUs ran kernels, on average, and WAITING how
many programs want a GPU there and have none. JOBS is how many have something of the
node, a lent GPU included.

STATE is IDLE, MIXED where some of it is in use, ALLOCATED where all cores are, DRAINING
where it takes no jobs and some still run, DRAINED where none does, DOWN where nothing
is heard of it. A * means that its agent is not connected. REASON is why it is drained or
down, which settings of the head it does not take, and which notices it has: of GPU memory
that is nearly used up, long waits, much swapping. Below the list is which other nodes the
head refuses, and why. Of nodes that are named it says how they serve programs.

--cluster-file describes them, and their partitions, as a cluster for muster sim --cluster, in the order in
which the head has them.

--hostnames writes out a list of names, as scontrol show hostnames does; inside a job
that of its nodes.` + cli.AskHelp,
		Example: `  muster nodes
  muster nodes n[1-4]
  muster nodes --json | jq '.nodes[].devices'
  muster nodes --cluster-file > ours.yaml
  mpiexec -f <(muster nodes --hostnames) ...`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE: func(c *cobra.Command, args []string) error {
			if hostnames {
				return printHostnames(c, args)
			}
			list, err := listNodes(c, &f, args)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, list)
			}
			if asCluster {
				return writeCluster(c, &f, list.Nodes)
			}
			if err := nodetable.WriteNodes(c.OutOrStdout(), list.Nodes, screen.Columns(c.OutOrStdout())); err != nil {
				return err
			}
			if len(args) > 0 {
				if err := nodetable.WriteSettings(c.OutOrStdout(), list.Nodes); err != nil {
					return err
				}
			}
			for _, n := range list.Refused {
				if slices.ContainsFunc(list.Nodes, func(row api.Node) bool { return row.Name == n.Name && strings.HasSuffix(row.Reason, n.Reason) }) {
					continue
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s: the head refuses node %s: %s\n", c.CommandPath(), trust.Quoted(n.Name), report.Printable(n.Reason))
			}
			return nil
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	c.Flags().BoolVar(&asCluster, "cluster-file", false, "describe them as a cluster, for muster sim")
	c.Flags().BoolVar(&hostnames, "hostnames", false, "only write out a list of names, a line each: the one that is given, or that of the job")
	c.AddCommand(newNodesRemove(), newNodesRename(), newNodesLabel())
	return c
}

func newNodesRemove() *cobra.Command {
	var f cli.AskFlags
	var force bool
	c := &cobra.Command{
		Use:   "remove NODE... [--force]",
		Short: "Have the head forget nodes, as dead or misnamed ones",
		Long: `Have the head forget nodes, with their labels and what was said of them. A node that is
connected, or has jobs, is refused: stop it there (muster node stop), and wait until it
is down. With --force it is removed all the same, and its jobs are lost as those of a node
that died. If such a node connects again it is a new one. Only administrators may.` + cli.AskHelp,
		Example:           "  muster nodes remove n7",
		Args:              cli.SomeNodes,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE: func(c *cobra.Command, args []string) error {
			return changeNodes(c, &f, args, "remove", api.RemoveNode{Force: force})
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&force, "force", false, "also if it is connected or has jobs: these are lost")
	return c
}

func newNodesRename() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "rename NODE NAME",
		Short: "Give a node another name",
		Long: `Give a node another name, and keep its labels and whether it is drained. It must have no
jobs and be stopped: drain it, wait, and stop it; then rename it, and start it with
--name NAME, or with the host's new name, and a certificate for it. The history of its jobs
keeps the old name. Only administrators may.` + cli.AskHelp,
		Example:           "  muster nodes rename localhost gpu7",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("give the node and its new name, as localhost gpu7")
			}
			return changeNodes(c, &f, args[:1], "rename", api.RenameNode{Name: args[1]})
		},
	}
	f.Add(c)
	return c
}

func newNodesLabel() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "label NODE... NAME=VALUE... [NAME-...]",
		Short: "Note something of nodes, as rack=r3",
		Long: `Note something of nodes, for people and scripts: muster nodes shows it in the column LABELS.
NAME- takes a label away. Only administrators may.` + cli.AskHelp,
		Example:           "  muster nodes label n[1-4] rack=r3 contract=2031\n  muster nodes label n1 contract-",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE: func(c *cobra.Command, args []string) error {
			var nodes []string
			labels := map[string]string{}
			for _, arg := range args {
				name, value, set := strings.Cut(arg, "=")
				gone, unset := strings.CutSuffix(arg, "-")
				switch {
				case set && value == "":
					return cli.UsageErrorf("%q says no value: write NAME=VALUE, or %s- to take the label away", arg, name)
				case set:
					labels[name] = value
				case unset:
					labels[gone] = ""
				default:
					nodes = append(nodes, arg)
				}
			}
			if len(nodes) == 0 || len(labels) == 0 {
				return cli.UsageErrorf("give nodes and labels, as n[1-4] rack=r3")
			}
			return changeNodes(c, &f, nodes, "label", api.LabelNode{Labels: labels})
		},
	}
	f.Add(c)
	return c
}

// writeCluster describes nodes and their partitions as a cluster.
func writeCluster(c *cobra.Command, f *cli.AskFlags, nodes []api.Node) error {
	cluster := nodetable.ModelOf(nodes)
	if slices.ContainsFunc(nodes, func(n api.Node) bool { return len(n.Partitions) > 0 }) {
		h, err := f.Open()
		if err != nil {
			return err
		}
		list, err := h.Partitions(c.Context())
		if err != nil {
			return err
		}
		if cluster.Partitions, err = nodetable.PartitionsOf(cluster, list); err != nil {
			return err
		}
	}
	return clusterfile.Write(c.OutOrStdout(), cluster)
}

// printHostnames expands lists of nodes, as scontrol show hostnames does. It
// asks no head.
func printHostnames(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		list := os.Getenv("MUSTER_JOB_NODELIST")
		if list == "" {
			return cli.UsageErrorf("--hostnames: give a list, as n[1-4]; this is no job, whose nodes were in $MUSTER_JOB_NODELIST")
		}
		args = []string{list}
	}
	names, err := headclient.NodeNames(args)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), strings.Join(names, "\n"))
	return nil
}

// listNodes asks for all nodes and those that are refused, or for nodes that are named.
func listNodes(c *cobra.Command, f *cli.AskFlags, args []string) (list api.Nodes, err error) {
	if len(args) > 0 {
		list.Nodes, err = f.Nodes(c, args)
		return list, err
	}
	h, err := f.Open()
	if err != nil {
		return list, err
	}
	return h.AllNodes(c.Context())
}

func NewDrain() *cobra.Command {
	var f cli.AskFlags
	var reason string
	c := &cobra.Command{
		Use:   "drain NODE... --reason TEXT",
		Short: "Take nodes out of use: what runs there goes on",
		Long: `Take nodes out of use: what runs there goes on, nothing new is started, and their GPUs
are lent to nobody new. muster resume takes them into use again. Only administrators
may.` + cli.AskHelp,
		Example:           "  muster drain n[1-4] --reason 'new memory on Monday'",
		Args:              cli.SomeNodes,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" {
				return cli.UsageErrorf("say why with --reason: whoever finds the node so will want to know")
			}
			return changeNodes(c, &f, args, "drain", api.Drain{Reason: reason})
		},
	}
	f.Add(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the node")
	return c
}

func NewResume() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "resume NODE...",
		Short: "Take drained nodes into use again",
		Long: `Take nodes into use again that were drained. Only administrators may. (muster job resume
is for suspended jobs, muster device resume for a device of this machine's node.)` + cli.AskHelp,
		Example:           "  muster resume n[1-4]",
		Args:              cli.SomeNodes,
		ValidArgsFunction: cli.CompleteNodes(&f),
		RunE:              func(c *cobra.Command, args []string) error { return changeNodes(c, &f, args, "resume", nil) },
	}
	f.Add(c)
	return c
}

func changeNodes(c *cobra.Command, f *cli.AskFlags, args []string, action string, document any) error {
	names, err := headclient.NodeNames(args)
	if err != nil {
		return err
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	return cli.Each(c, "node", names, func(name string) error { return h.ChangeNode(c.Context(), name, action, document) })
}
