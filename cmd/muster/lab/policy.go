package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/misuse"
	"muster/model"
	"muster/policy/catalog"
	"muster/policy/script"
	"muster/sim/question"
)

const policyHelp = `Look at policies, and write your own.

A policy decides which job starts where. There are those that muster policy list names,
and scripts: files in Starlark, a small language that looks like Python. A script that
decides as first come, first served with overtaking does:

  def decide(view, plan):
      for job in view.fitting():
          plan.start(job)

The file's name stands wherever a policy is named, with its settings behind it, as
./mine.star:depth=20. A script cannot oversubscribe a cluster, and has bounds: a call of it
that takes too long, wants too much memory, raises or proposes what makes no sense
costs that step alone, which another policy decides (the setting fallback).
docs/policy-scripts.md has all that a script may say.`

func NewPolicyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "List policies, and check and try your own",
		Long:  policyHelp,
		Example: `  muster policy list
  muster policy show easy.star > mine.star
  muster policy check mine.star
  muster policy try mine.star --workload sacct.txt.gz --cluster mine.yaml
  muster head --policy mine.star`,
	}
	c.AddCommand(newPolicyList(), newPolicyShow(), newPolicyCheck(), newPolicyTry())
	return c
}

// bundledScripts are those that come with Muster, as they are chosen.
func bundledScripts() []cli.Choosable {
	var list []cli.Choosable
	for _, b := range script.AllBundled() {
		c := cli.Choosable{Name: b.Name, Summary: b.Summary}
		if _, p, err := catalog.Script(b.Name, b.Source, ""); err == nil {
			c.Options = p.Options()
		}
		list = append(list, c)
	}
	return list
}

func newPolicyList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list [--json]",
		Short:   "List the policies, and the scripts that come with Muster",
		Long:    "List the policies, and the scripts that come with Muster: muster policy show prints one to begin with.",
		Example: "  muster policy list",
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return cli.PrintChoosableJSON(c, "policies", append(cli.Policies(), bundledScripts()...))
			}
			if err := cli.PrintChoosable(c, "Policy", cli.Policies()); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout())
			return cli.PrintChoosable(c, "Script", bundledScripts())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func newPolicyShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Print a script that comes with Muster, or the settings of a policy",
		Long:              "Print a script that comes with Muster, to begin your own with, or what a built-in policy does and its settings.",
		Example:           "  muster policy show easy.star > mine.star\n  muster policy show conservative",
		Args:              cli.OneArgument("the name of a policy"),
		ValidArgsFunction: cli.CompleteOne(cli.Policies),
		RunE: func(c *cobra.Command, args []string) error {
			for _, p := range cli.Policies() {
				if p.Name == args[0] {
					return cli.PrintChoosable(c, "Policy", []cli.Choosable{p})
				}
			}
			b, err := script.FindBundled(args[0])
			if err != nil {
				return unknownPolicy(args[0])
			}
			_, err = c.OutOrStdout().Write(b.Source)
			return err
		},
	}
}

func unknownPolicy(name string) error {
	var names []string
	for _, p := range append(cli.Policies(), bundledScripts()...) {
		names = append(names, p.Name)
	}
	if near := model.Nearest(name, names); near != "" {
		return cli.UsageErrorf("there is no policy %q: did you mean %q?", name, near)
	}
	return cli.UsageErrorf("there is no policy %q: muster policy list lists them", name)
}

// mustBeScript refuses a policy that is no script, and names the script that decides as it does.
func mustBeScript(spec string) error {
	err := question.MustBeScript(spec)
	name, _, _ := strings.Cut(spec, ":")
	if b, none := script.FindBundled(name + ".star"); err != nil && none == nil {
		return cli.UsageErrorf("%v; muster policy show %s prints one that decides as it does", err, b.Name)
	}
	return err
}

func newPolicyCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE.star[:key=value...]",
		Short: "Say what is wrong with a script",
		Long: `Read a script as muster head would, and run it for a moment on a small cluster, so
that slips which only show when it decides are found too. What is wrong is named with
line and column.`,
		Example: "  muster policy check mine.star\n  muster policy check mine.star:most=5",
		Args:    cli.OneArgument("the file of a script"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := mustBeScript(args[0]); err != nil {
				return err
			}
			like, all := "easy.star", "docs/policy-scripts.md"
			l, err := question.CheckScript(c.Context(), args[0], func(path string) ([]byte, error) {
				text, err := cli.ReadPolicyFile(path)
				if bytes.Contains(text, []byte("mccs")) {
					like, all = "latency.star", "docs/mccs.md"
				}
				return text, err
			})
			if err != nil && !misuse.Is(err) && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w\nmuster policy show %s prints a script that is right; %s has all that one may say", err, like, all)
			}
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintf(out, "%s is a policy.\n", args[0])
			if s := script.Summary(l.Source); s != "" {
				fmt.Fprintln(out, s)
			}
			tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, o := range l.Script.Options() {
				fmt.Fprintf(tw, "  :%s=%s\t%s\n", o.Name, o.Default, o.Summary)
			}
			return tw.Flush()
		},
	}
}

func newPolicyTry() *cobra.Command {
	f := newSimFlags()
	var beside string
	c := &cobra.Command{
		Use:   "try FILE.star[:key=value...] [--cluster FILE|NAME] [--workload FILE|NAME] [--beside NAME[,...]] [--html FILE] [--json]",
		Short: "Try a script on a log, beside other policies",
		Long: `Simulate a log of jobs on a cluster under a script and under other policies, as muster sim
does, and say whether the script failed, and where. What it prints is shown.`,
		Example: `  muster policy try mine.star
  muster policy try mine.star:most=5 --cluster mine.yaml --workload sacct.txt.gz --beside easy,conservative --html page.html`,
		Args: cli.OneArgument("the file of a script"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := mustBeScript(args[0]); err != nil {
				return err
			}
			f.ask.Policies = strings.TrimSuffix(args[0]+","+beside, ",")
			f.ask.Bundled = !c.Flags().Changed("workload")
			err := f.run(c)
			f.ask.Scripts.TellPrinted(c.ErrOrStderr())
			return err
		},
	}
	c.Flags().StringVar(&f.ask.Cluster, "cluster", question.TryCluster, "the cluster: a `file`, or a name that muster cluster list lists")
	c.Flags().StringVar(&f.ask.Workload, "workload", question.TryWorkload, "the jobs: a `log`, the name of a bundled one, or a generator with its parameters")
	c.Flags().StringVar(&beside, "beside", "easy", "the `policies` to compare it with, with commas between")
	c.Flags().StringVar(&f.html, "html", "", "write a page with pictures to this `file`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	addReading(c, &f.log)
	cli.CompleteFlag(c, "cluster", cli.CompletePresets)
	cli.CompleteFlag(c, "workload", completeWorkloads)
	cli.CompleteFlag(c, "beside", cli.CompletePolicies)
	return c
}
