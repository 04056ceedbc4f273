package lab

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/exp"
	"muster/exp/all"
	"muster/internal/screen"
	"muster/internal/wholefile"
	"muster/report"
)

const reproduceHelp = `Reproduce the experiments of a paper, and set its numbers beside ours.

Every row has the paper's number (a dash where it has none), the mean over all
seeds, half of its 95 % confidence interval, the least and the most, and the ratio
of ours to the paper's. Inputs that the authors did not publish are generated from
what they did publish; the notes say so, and say what differs and why. The same
seed and number of runs give the same output, byte for byte, on every machine, but
for experiments that measure time (noderuntime, clusterscheduler, ivm, and all with --live).

rgpu and aucsched run on a real Slurm with --live: a private one, with nodes emulated
on this machine (muster help slurm emulate), against Slurm's own scheduler, beside
the paper and beside the simulator. A few minutes by default; --full is the paper's
size, in real time. tsubame and gremm run on nodes of software GPUs with --live, with
programs of examples/: copies and programs beside traffic on a link, and kernels that a
mapper sends to any GPU of four nodes, beside the simulator. Two minutes by default; as
root they make links with a bandwidth, else they use the loopback interface.

noderuntime, clusterscheduler and ivm always measure: they start nodes with software
GPUs on this machine, and programs of examples/. ivm needs an MPI, which the paper
compares with.

--html writes a page with the pictures. --days shortens the generated logs, to see
quickly how it works; the numbers are then not those of the paper's setting.
--figure chooses figures where an experiment has several that stand alone. Some
experiments have flags of their own, which the others refuse. aucsched has 7 seeds
as the paper, but 3 when all of it is made at once, without --figure, --table and
--machine; --runs 7 makes 7 of all.

Ctrl-C ends an experiment; one that can shows what it has by then, says what is
missing, and ends with status 130. A second Ctrl-C ends it at once.`

type reproduceFlags struct {
	seed         uint64
	runs, days   int
	workers      int
	figures      []string
	html         string
	asJSON, list bool
	own          map[string]bool // flags of single experiments
}

func NewReproduce() *cobra.Command {
	var f reproduceFlags
	c := &cobra.Command{
		Use:   "reproduce {NAME | list} [--figure LIST] [--seed S] [--runs N] [--json] [--html FILE] [flags of NAME]",
		Short: "Reproduce a paper's experiments, with its numbers beside ours",
		Long:  reproduceHelp,
		Example: `  muster reproduce list
  muster reproduce tsubame --html tsubame.html
  muster reproduce tsubame --runs 1 --days 30 --json
  muster reproduce noderuntime --figure 3-9,3-10 --runs 3
  muster reproduce aucsched --machine S --table 5 --runs 2
  muster reproduce rgpu --live --html rgpu-live.html`,
		Args:              f.arguments,
		ValidArgsFunction: completeExperiments,
		RunE: func(c *cobra.Command, args []string) error {
			if f.list || args[0] == "list" {
				return listExperiments(c, f.asJSON)
			}
			return f.run(c, args[0])
		},
	}
	c.Flags().BoolVar(&f.list, "list", false, "list the experiments")
	_ = c.Flags().MarkHidden("list") // muster reproduce list, as elsewhere
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the first `seed`; the others follow it")
	c.Flags().IntVar(&f.runs, "runs", 0, "how many seeds to try (default: as many as the experiment says)")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().IntVar(&f.days, "days", 0, "length of generated logs, in days (default: as long as the paper's)")
	c.Flags().StringSliceVar(&f.figures, "figure", nil, "make only these figures, as `3-9,3-10` (default: all)")
	c.Flags().IntVar(&f.workers, "workers", runtime.NumCPU(), "runs at the same time; the results do not depend on it")
	f.ownFlags(c, all.Experiments)
	return c
}

// ownFlags adds the flags that single experiments have. Two may have one of the same name.
func (f *reproduceFlags) ownFlags(c *cobra.Command, list []exp.Experiment) {
	f.own = map[string]bool{}
	for _, e := range list {
		for _, flag := range e.Flags {
			if known := c.Flags().Lookup(flag.Name); known != nil {
				known.Usage += "; " + e.Name + ": " + flag.Summary
				continue
			}
			usage := e.Name + ": " + flag.Summary
			if flag.Values != nil {
				usage = e.Name + ": " + flag.Summary + ", as `" + strings.Join(flag.Values, "|") + "`"
			}
			f.own[flag.Name] = true
			if flag.Switch {
				c.Flags().Bool(flag.Name, false, usage)
			} else {
				c.Flags().String(flag.Name, "", usage)
			}
		}
	}
}

// ofExperiment gives the values of the experiment's own flags, and refuses those of others.
func (f *reproduceFlags) ofExperiment(c *cobra.Command, e *exp.Experiment) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.own)) {
		if !c.Flags().Changed(name) {
			continue
		}
		values[name] = c.Flags().Lookup(name).Value.String()
		if err := e.CheckFlag(all.Experiments, name, values[name]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// arguments wants a name, unless the names are asked for.
func (f *reproduceFlags) arguments(c *cobra.Command, args []string) error {
	if f.list {
		return cli.NoArguments(c, args)
	}
	return cli.OneArgument("the name of an experiment: muster reproduce list lists them")(c, args)
}

func completeExperiments(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, e := range all.Experiments {
			names = append(names, e.Name+"\t"+e.Summary)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func listExperiments(c *cobra.Command, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(c, map[string]any{"experiments": exp.List(all.Experiments)})
	}
	t := &report.Table{Columns: report.Columns("<Experiment", "<What it reproduces")}
	for _, e := range all.Experiments {
		t.Rows = append(t.Rows, []string{e.Name, e.Summary})
	}
	return cli.WriteTable(c.OutOrStdout(), t)
}

// HelpExperiment tells about one experiment.
func HelpExperiment(c *cobra.Command, name string) error {
	e, err := exp.Find(all.Experiments, name)
	if err != nil {
		return err
	}
	e.WriteHelp(c.OutOrStdout())
	return nil
}

// maxSeeds bounds the runs, so that a slip costs an error.
const maxSeeds = 10_000

func (f *reproduceFlags) run(c *cobra.Command, name string) error {
	e, err := exp.Find(all.Experiments, name)
	switch {
	case err != nil:
		return err
	case f.runs < 0 || f.runs > maxSeeds || c.Flags().Changed("runs") && f.runs == 0:
		return cli.UsageErrorf("--runs %d: give a number from 1 to %d", f.runs, maxSeeds)
	case f.days < 0:
		return cli.UsageErrorf("--days %d: give a number of days above 0", f.days)
	case f.workers < 1:
		return cli.UsageErrorf("--workers %d: give 1 or more", f.workers)
	}
	if err := e.CheckFigures(f.figures); err != nil {
		return err
	}
	own, err := f.ofExperiment(c, e)
	if err != nil {
		return err
	}
	if err := checkFolder(f.html); err != nil {
		return err
	}
	result, err := cli.WithProgress(c, e.Name, func(ctx context.Context, progress func(done, all int64)) (*exp.Result, error) {
		return e.Run(ctx, exp.Options{Seed: f.seed, Runs: f.runs, Days: f.days, Workers: f.workers, Figures: f.figures, Flags: own, Progress: progress})
	})
	if err != nil {
		return err
	}
	if err := f.show(c, e, result); err != nil {
		return err
	}
	if result.Partial != "" {
		return cli.Interruptedf("what was printed is a part of it; missing: %s", result.Partial)
	}
	return nil
}

// show writes what was found.
func (f *reproduceFlags) show(c *cobra.Command, e *exp.Experiment, result *exp.Result) error {
	if f.html != "" { // before the tables, of which a reader may not want all
		if err := wholefile.Write(f.html, result.Page.WriteHTML); err != nil {
			return err
		}
		defer fmt.Fprintf(c.ErrOrStderr(), "%s: the report with pictures\n", f.html)
	}
	if f.asJSON {
		return cli.PrintJSON(c, result)
	}
	return result.WriteText(c.OutOrStdout(), e.Title, screen.Columns(c.OutOrStdout()))
}
