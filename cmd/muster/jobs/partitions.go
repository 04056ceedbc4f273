package jobs

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/head/jobtable"
	"muster/internal/screen"
	"muster/wire/api"
)

func NewPartitions() *cobra.Command {
	var f cli.AskFlags
	var names []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "partitions [-p PARTITION] [--json]",
		Short: "List the partitions of the cluster",
		Long: `List the partitions of the cluster, as sinfo does: a line for the nodes of each that are
in the same state. A * marks the default, which jobs have that name none. AVAIL is
whether it takes jobs, and whether these start; TIMELIMIT the longest that a job may ask
for. GPUS has how many GPUs of these nodes jobs hold and, behind the slash, how many there
are; RGPUS is how many GPUs jobs of the partition may have in all, lenders' included.
UNKNOWN are nodes that have not come yet. --json has all limits.` + cli.AskHelp,
		Example: "  muster partitions\n  muster partitions -p gpu --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			list, err := h.Partitions(c.Context())
			if err != nil {
				return err
			}
			divided := len(list) > 0
			list = slices.DeleteFunc(list, func(p api.Partition) bool { return !jobtable.Wanted(names, p.Name) })
			if asJSON {
				return cli.PrintJSON(c, api.Partitions{List: list})
			}
			if !divided {
				fmt.Fprintln(c.ErrOrStderr(), "muster: note: the cluster has no partitions: an administrator makes some with partitions in head.yaml")
			}
			nodes, err := h.AllNodes(c.Context())
			if err != nil {
				return err
			}
			return jobtable.WritePartitions(c.OutOrStdout(), list, nodes.Nodes, screen.Columns(c.OutOrStdout()))
		},
	}
	f.Add(c)
	c.Flags().StringSliceVarP(&names, "partition", "p", nil, "these `partitions`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}
