package lab

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/model"
	"muster/model/clusterfile"
	"muster/report"
)

const clusterHelp = `Look at, check and convert descriptions of clusters.

A description is a YAML file. All of this may be said, and nothing else:

  name: my-cluster
  gpu_types:
    k20x: {memory: 6GB, speed: 1.0, peer_bandwidth: 171GB/s}
  links:
    qdr: {bandwidth: 10GB/s, latency: 1.2ms}
  remote_gpus: {latency: 3.47ms, overhead: 1.09, far: 2, driver_memory: 10M, client_memory: 63M}
  nodes:
    - {name: "n[001-480]", cores: 8, memory: 22GB, gpus: {k20x: 3}, link: qdr, switch: rack-1}
    - {name: login, cores: 4, memory: 8GB}

Only nodes are needed, each with name, cores and memory. Names take ranges as in
Slurm, in quotes. GB is decimal, GiB and G are binary; bandwidths are per second
and in bytes (GB/s) or bits (Gbit/s). speed is relative to the machine the job's
run times come from. remote_gpus is what using a GPU of another node costs beyond
the network: time for each transfer, a factor on the bytes moved, how many times
more both are on another switch (far), and the memory that a shared GPU loses to
each job and to each of its threads.`

func NewCluster() *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Describe clusters for muster sim; make one of hosts by ssh (up, down)",
		Long:  clusterHelp,
		Example: `  muster cluster list
  muster cluster show tsubame > mine.yaml
  muster cluster check mine.yaml`,
	}
	c.AddCommand(newClusterList(), newClusterShow(), newClusterCheck(), newClusterConvert())
	return c
}

func newClusterList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list [--json]",
		Short:   "List the clusters that are built in",
		Long:    "List the clusters that are built in. Their names stand wherever a cluster file can.",
		Example: "  muster cluster list",
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return cli.PrintJSON(c, map[string]any{"presets": clusterfile.Presets()})
			}
			t := &report.Table{Columns: report.Columns("<Cluster", "<What it is")}
			for _, p := range clusterfile.Presets() {
				t.Rows = append(t.Rows, []string{p.Name, p.Summary})
			}
			return cli.WriteTable(c.OutOrStdout(), t)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func newClusterShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show NAME|FILE [--json]",
		Short: "Print a cluster: a summary and its description",
		Long: `Print the built-in cluster NAME, or the one described in FILE. What is printed
is a description again, with the summary as a comment, and a good start for one
of your own.`,
		Example:           "  muster cluster show tsubame\n  muster cluster show mine.yaml --json",
		Args:              cli.OneArgument("the name of a cluster or a file"),
		ValidArgsFunction: cli.CompletePresets,
		RunE: func(c *cobra.Command, args []string) error {
			cluster, err := clusterfile.Load(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, clusterfile.Document(cluster))
			}
			return writeCluster(c.OutOrStdout(), cluster)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func newClusterCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check descriptions of clusters",
		Long: `Check descriptions of clusters. What is wrong is named with file, line, column and
remedy, and the exit status is 1.`,
		Example: "  muster cluster check mine.yaml\n  muster cluster check clusters/*.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageErrorf("name one file or more")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			bad := 0
			for _, path := range args {
				cluster, err := clusterfile.ReadFile(path)
				if err != nil {
					fmt.Fprintln(c.ErrOrStderr(), cli.Plainly(err))
					bad++
					continue
				}
				tellDoubts(c.ErrOrStderr(), path, cluster)
				fmt.Fprintf(c.OutOrStdout(), "%s: ok, %s\n", path, cluster.Summary())
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d files cannot be used", bad, len(args))
			}
			return nil
		},
	}
}

// tellDoubts says what in a description of a cluster is probably a slip.
func tellDoubts(w io.Writer, name string, c *model.Cluster) {
	for _, d := range clusterfile.Doubts(c) {
		fmt.Fprintf(w, "%s: %s\n", name, d)
	}
}

// clusterSources are the foreign forms that can be converted.
var clusterSources = map[string]func(io.Reader) (*model.Cluster, error){
	"openb": clusterfile.FromOpenb,
}

func newClusterConvert() *cobra.Command {
	var from string
	c := &cobra.Command{
		Use:   "convert --from openb FILE",
		Short: "Turn a node list of another kind into a description",
		Long: `Turn a node list of another kind into a description, on standard output.

openb: the node list of Alibaba's GPU trace of 2023 (CSV: sn,cpu_milli,memory_mib,
gpu,model). Each GPU gets 1000 MiB, so that a thousandth of it, as its jobs ask
for, is one MiB. FILE may be - for standard input.`,
		Example: "  muster cluster convert --from openb openb_node_list_all_node.csv > openb.yaml",
		Args:    cli.OneArgument("the file to convert, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			read, ok := clusterSources[from]
			switch {
			case from == "":
				return cli.UsageErrorf("say what the file is: --from openb")
			case !ok:
				return cli.UsageErrorf("--from %s: only openb can be converted", from)
			}
			in := c.InOrStdin()
			if args[0] != "-" {
				text, err := clusterfile.OpenbLimit.ReadFile(args[0])
				if err != nil {
					return err
				}
				in = bytes.NewReader(text)
			}
			cluster, err := read(in)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return writeCluster(c.OutOrStdout(), cluster)
		},
	}
	c.Flags().StringVar(&from, "from", "", "what the file is: openb")
	return c
}

func writeCluster(w io.Writer, c *model.Cluster) error {
	if _, err := fmt.Fprintf(w, "# %s\n", c.Summary()); err != nil {
		return err
	}
	return clusterfile.Write(w, c)
}
