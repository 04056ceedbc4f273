package lab

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/wholefile"
	"muster/report"
	"muster/sim/source"
	"muster/workload"
	"muster/workload/bundled"
	"muster/workload/workloadpage"
)

const workloadHelp = `Make, convert and describe logs of jobs.

Logs are read in these formats, gzipped or not; which one it is, is told from the
content unless --from says it:

  swf      the Standard Workload Format of the Parallel Workloads Archive
  sacct    what Slurm's sacct prints with -P
  pbs      accounting logs of PBS Pro, OpenPBS and Torque
  openb    pod lists of Alibaba's GPU trace of 2023
  philly   the flattened log of Microsoft's Philly cluster
  csv      a table for people: a row a job, with the columns it needs
  submit   a line a job: when, how long, and the options that ask Slurm for it

swf and csv can be written. docs/workloads.md tells what becomes of each field.`

const workloadArgHelp = `A workload is a log (swf, sacct, pbs, openb, philly, csv or submit, gzipped or not),
the record of a head or of a Slurm's driver (--record), which has its cluster with it,
the name of a bundled log, or a generator with its parameters:

  log.swf.gz   small   congested   congested:jobs=200:max_nodes=2:gpu_mix=1:2:1

A file of that name wins over a name, a folder does not; - is a log on standard input.`

func NewWorkload() *cobra.Command {
	c := &cobra.Command{
		Use:   "workload",
		Short: "Make, convert and describe logs of jobs",
		Long:  workloadHelp,
		Example: `  muster workload describe log.swf.gz --cluster tsubame
  muster workload convert -o log.swf.gz sacct.txt
  muster workload gen general --set jobs=1000 -o jobs.csv`,
	}
	c.AddCommand(newWorkloadList(), newWorkloadGen(), newWorkloadConvert(), newWorkloadDescribe())
	return c
}

func newWorkloadList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list [--json]",
		Short:   "List the generators of logs, and their parameters",
		Long:    "List the generators of synthetic logs, with their parameters, what these are by default, and what they mean.",
		Example: "  muster workload list",
		RunE:    func(c *cobra.Command, _ []string) error { return listGenerators(c, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func listGenerators(c *cobra.Command, asJSON bool) error {
	if asJSON {
		return cli.PrintChoosableJSON(c, "generators", cli.Generators())
	}
	return cli.PrintChoosable(c, "Generator", cli.Generators())
}

func newWorkloadGen() *cobra.Command {
	var settings []string
	var seed uint64
	var format, out string
	var list, asJSON bool
	c := &cobra.Command{
		Use:   "gen NAME [--set key=value ...] [--seed S] [--to swf|csv] [-o FILE]",
		Short: "Make a synthetic log",
		Long: `Make a synthetic log with the generator NAME. The same parameters and seed give
the same bytes on every machine, and the log's header says what they were.

The log goes to standard output, or to the file that -o names: gzipped where it
ends in .gz, as CSV where it ends in .csv or .csv.gz, and else as SWF.`,
		Example: `  muster workload list
  muster workload gen congested --seed 7 -o congested.swf.gz
  muster workload gen general --set jobs=1000 --set gpu_mix=1:1 --to csv`,
		Args:              cobra.ArbitraryArgs, // --list takes none
		ValidArgsFunction: completeGenerators,
		RunE: func(c *cobra.Command, args []string) error {
			if list {
				if len(args) > 0 {
					return cli.UsageErrorf("%q is one argument too many: --list lists all generators", args[0])
				}
				return listGenerators(c, asJSON)
			}
			if asJSON {
				return cli.UsageErrorf("--json goes with --list: logs are written as swf or csv")
			}
			if err := cli.OneArgument("the name of a generator: muster workload list lists them")(c, args); err != nil {
				return err
			}
			to, err := source.OutputFormat(format, out)
			if err != nil {
				return err
			}
			wl, err := source.Generate(args[0], settings, seed)
			if err != nil {
				return err
			}
			return writeLog(c, wl, to, out)
		},
	}
	c.Flags().BoolVar(&list, "list", false, "list the generators and their parameters")
	c.Flags().BoolVar(&asJSON, "json", false, "with --list: print one JSON document")
	c.Flags().StringArrayVar(&settings, "set", nil, "set a parameter: `key=value`; may be given several times")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of what is drawn at random")
	c.Flags().StringVar(&format, "to", "", "swf or csv (default: by the ending of the file, else swf)")
	c.Flags().StringVar(&format, "format", "", "the same as --to")
	for _, older := range []string{"list", "json", "format"} { // muster workload list, and --to, as elsewhere
		_ = c.Flags().MarkHidden(older)
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write to this `file`, gzipped where it ends in .gz")
	return c
}

func newWorkloadConvert() *cobra.Command {
	var from source.Reading
	var format, out string
	c := &cobra.Command{
		Use: `convert [--from FORMAT] [--to swf|csv] [-o FILE] [--skip-bad]
                          [--cores-per-node N] [--gpus-per-node N] FILE`,
		Short: "Turn a log into swf or csv",
		Long: `Turn a log into swf or csv. FILE may be - for standard input.

What was left out or assumed is told on standard error. Nothing of a job is lost:
what SWF has no field for stands in further columns, which other programs pass
over. A line that makes no sense ends the conversion with its file, line, column
and reason; with --skip-bad such lines are counted and left out.`,
		Example: `  muster workload convert --to csv log.swf.gz > log.csv
  muster workload convert -o all.swf.gz --skip-bad accounting/20130401
  sacct -a -X -P -S 2024-01-01 \
    -o JobID,User,Partition,Submit,Start,ElapsedRaw,TimelimitRaw,NNodes,NCPUS,ReqMem,AllocTRES,State |
    muster workload convert -o log.swf.gz -`,
		Args: cli.OneArgument("one file to convert, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			opt, err := from.Options()
			if err != nil {
				return err
			}
			to, err := source.OutputFormat(format, out)
			if err != nil {
				return err
			}
			var wl *workload.Workload
			var found *workload.ReadReport
			name := args[0]
			if name == "-" {
				name = "stdin"
				wl, found, err = workload.Read(c.InOrStdin(), name, opt)
			} else {
				wl, found, err = workload.ReadFile(name, opt)
			}
			if err != nil {
				return err
			}
			if err := writeLog(c, wl, to, out); err != nil {
				return err
			}
			workloadpage.WriteRead(c.ErrOrStderr(), name, found)
			return nil
		},
	}
	addReading(c, &from)
	c.Flags().StringVar(&format, "to", "", "swf or csv (default: by the ending of the file, else swf)")
	c.Flags().StringVarP(&out, "output", "o", "", "write to this `file`, gzipped where it ends in .gz")
	return c
}

// addReading adds the flags that say how logs are read.
func addReading(c *cobra.Command, r *source.Reading) {
	c.Flags().StringVar(&r.Format, "from", "", "format of the log: swf, sacct, pbs, openb, philly, csv or submit (default: told from the content)")
	c.Flags().BoolVar(&r.SkipBad, "skip-bad", false, "count lines that make no sense instead of stopping at the first")
	c.Flags().IntVar(&r.CoresPerNode, "cores-per-node", 0, "put cores on nodes of this many where the log has no nodes; 0 spreads them over any")
	c.Flags().IntVar(&r.GPUsPerNode, "gpus-per-node", 0, "put GPUs on nodes of this many where the log has no nodes; 0 is 8 (Philly)")
}

// writeLog writes to standard output where no file is named, or -.
func writeLog(c *cobra.Command, wl *workload.Workload, f workload.Format, file string) error {
	if file == "" || file == "-" {
		return workload.Write(c.OutOrStdout(), wl, f)
	}
	if err := wholefile.Write(file, func(w io.Writer) error { return workload.Write(w, wl, f) }); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s written as %s\n", file, report.Plural(len(wl.Jobs), "job"), f)
	return nil
}

// completeGenerators completes the names of generators.
func completeGenerators(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, g := range workload.Generators() {
		if len(args) == 0 {
			names = append(names, g.Name+"\t"+g.Summary)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeWorkloads completes the names of workloads, and files beside them.
func completeWorkloads(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, _ := completeGenerators(c, args, word)
	for _, b := range bundled.Logs() {
		if len(args) == 0 {
			names = append(names, b.Name+"\t"+b.Summary)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
