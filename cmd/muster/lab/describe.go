package lab

import (
	"fmt"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/wholefile"
	"muster/model"
	"muster/model/clusterfile"
	"muster/sim/source"
	"muster/workload/workloadpage"
)

const describeHelp = `Say what a log looks like: how long and how large its jobs are, when they come, how
well their run times were estimated, who submits them, and how they ended.

` + workloadArgHelp + `

FILE may be - for standard input. With --cluster the offered load is told, too:
the work that is submitted over what the cluster could do from the first
submission to the last. Above 100 % the queue grows.`

func newWorkloadDescribe() *cobra.Command {
	var from source.Reading
	var asJSON bool
	var seed uint64
	var html, clusterName string
	c := &cobra.Command{
		Use:   "describe [--json] [--html FILE] [--cluster NAME|FILE] [--seed S] FILE|NAME[:key=value...]",
		Short: "Say and plot what a log looks like",
		Long:  describeHelp,
		Example: `  muster workload describe log.swf.gz --cluster mine.yaml --html log.html
  muster workload describe congested:jobs=2000
  muster workload describe --json - < log.csv`,
		Args:              cli.OneArgument("a log, the name of a workload, or -"),
		ValidArgsFunction: completeWorkloads,
		RunE: func(c *cobra.Command, args []string) error {
			opt, err := from.Options()
			if err != nil {
				return err
			}
			var cluster *model.Cluster
			if clusterName != "" {
				if cluster, err = clusterfile.Load(clusterName); err != nil {
					return err
				}
			}
			load, err := source.Open(c.InOrStdin(), args[0], opt)
			if err != nil {
				return err
			}
			wl, found, err := load(seed)
			if err != nil {
				return err
			}
			d := workloadpage.New(wl, cluster)
			if found != nil {
				d.Report = found
				workloadpage.WriteRead(c.ErrOrStderr(), args[0], found)
			}
			if html != "" {
				if err := wholefile.Write(html, d.Page(wl).WriteHTML); err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s: written\n", html)
			}
			if asJSON {
				return cli.PrintJSON(c, d)
			}
			return d.WriteText(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&html, "html", "", "write a page with charts to this `file`")
	c.Flags().StringVar(&clusterName, "cluster", "", "tell the offered load for this cluster: a `name or file`")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of a generated workload")
	addReading(c, &from)
	return c
}
