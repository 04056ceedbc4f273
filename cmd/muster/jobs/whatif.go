package jobs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/whatifpage"
	"muster/head/whatifrun"
	"muster/internal/screen"
	"muster/internal/wholefile"
	"muster/report"
	"muster/wire/api"
)

const whatifHelp = `Show what other policies would have made of the cluster's own jobs: those of the last day
and of the last week, which the head simulates every night under each policy that there
is (muster sim --list-policies) and under those that its configuration names.

The first line is what was measured. Everything else is simulated. The policy in force is
simulated too: how far that is from what was measured is the error of the simulation, and
says how much the other lines are worth. Waits are means, from submission to start; CHANGE is
that of the mean wait against the policy in force, both simulated.

With --now the head simulates now; administrators may ask for that, and for some policies
only (--policy). A policy that takes too long is listed with that.`

// whatifFlags are the flags of muster whatif.
type whatifFlags struct {
	cli.AskFlags
	period, html       string
	policies           []string
	now, users, asJSON bool
}

func NewWhatIf() *cobra.Command {
	var f whatifFlags
	c := &cobra.Command{
		Use:   "whatif [--period day|week] [--policy LIST] [--users] [--now] [--json] [--html FILE]",
		Short: "Show what other policies would have made of the cluster's own jobs",
		Long:  whatifHelp + cli.AskHelp,
		Example: `  muster whatif
  muster whatif --period week --policy easy,conservative --users
  muster whatif --now --period day
  muster whatif --html whatif.html`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.Add(c)
	flags.StringVar(&f.period, "period", "", "day or week (default: both)")
	flags.StringSliceVar(&f.policies, "policy", nil, "these `policies` beside the one in force (default: all)")
	flags.BoolVar(&f.users, "users", false, "also show what each policy means for each user")
	flags.BoolVar(&f.now, "now", false, "have the head simulate now, and wait for it (administrators)")
	flags.StringVar(&f.html, "html", "", "write a page to this `file`")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON document")
	cli.CompleteFlag(c, "policy", cli.CompletePolicies)
	return c
}

func (f *whatifFlags) run(c *cobra.Command) error {
	if f.period != "" && f.period != "day" && f.period != "week" {
		return cli.UsageErrorf("--period %q: give day or week", f.period)
	}
	h, err := f.Open()
	if err != nil {
		return err
	}
	var w *api.WhatIf
	if f.now {
		w, err = f.simulate(c, h)
	} else {
		w, err = h.WhatIf(c.Context())
	}
	if err != nil {
		return err
	}
	whatifpage.Choose(w, f.period, f.policies)
	if f.html != "" {
		if err := wholefile.Write(f.html, whatifpage.Page(w, time.Local).WriteHTML); err != nil {
			return err
		}
	}
	if f.asJSON {
		return cli.PrintJSON(c, w)
	}
	return f.print(c, w)
}

// simulate has the head simulate, and waits.
func (f *whatifFlags) simulate(c *cobra.Command, h *headclient.Head) (*api.WhatIf, error) {
	const steps = 1000
	bar := report.NewProgress(c.ErrOrStderr(), screen.IsTerminal(c.ErrOrStderr()), "simulating", steps)
	defer bar.Done()
	return h.WhatIfDone(c.Context(), api.WhatIfWanted{Period: f.period, Policies: f.policies}, func(done float64) { bar.Set(int64(done * steps)) })
}

// print writes what was simulated. It is a failure that something was not which was asked for now.
func (f *whatifFlags) print(c *cobra.Command, w *api.WhatIf) error {
	out := c.OutOrStdout()
	text := whatifpage.Text{Users: f.users, Columns: screen.Columns(out), Zone: time.Local, Tell: func(sentence string) {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), sentence)
	}}
	if err := text.Write(out, w); err != nil {
		return err
	}
	if f.now && slices.ContainsFunc(w.Periods, func(p api.WhatIfPeriod) bool { return p.Error != "" }) {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

// simulatorName is the command that a head starts to simulate.
const simulatorName = "head-simulator"

// NewHeadSimulator is what the head starts to simulate its history.
func NewHeadSimulator() *cobra.Command {
	return &cobra.Command{
		Use:     simulatorName,
		Short:   "Simulate the history of a head (started by muster head)",
		Long:    "Simulate the history of a head, at the lowest priority. The head starts it, and hands over its history; it is of no use to people.",
		Example: "  muster whatif --now",
		Hidden:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
				return cli.UsageErrorf("only a head starts this: use muster whatif --now")
			}
			if whatifrun.Serve(os.Stdin, os.Stdout, cli.NewPolicy) != nil {
				return cli.ExitStatus(cli.ExitFailed) // the head was told
			}
			return nil
		},
	}
}

// HeadSimulator starts this program again, to simulate.
func HeadSimulator(ctx context.Context) *exec.Cmd {
	c := exec.CommandContext(ctx, "/proc/self/exe", simulatorName)
	c.Args[0] = "muster"
	return c
}
