package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/head/whatifrun"
	"muster/internal/wholefile"
	"muster/report"
	"muster/report/screen"
	"muster/report/whatifpage"
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
	askFlags
	period, html       string
	policies           []string
	now, users, asJSON bool
}

func newWhatIf() *cobra.Command {
	var f whatifFlags
	c := &cobra.Command{
		Use:   "whatif [--period day|week] [--policy LIST] [--users] [--now] [--json] [--html FILE]",
		Short: "Show what other policies would have made of the cluster's own jobs",
		Long:  whatifHelp + askHelp,
		Example: `  muster whatif
  muster whatif --period week --policy easy,conservative --users
  muster whatif --now --period day
  muster whatif --html whatif.html`,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.add(c)
	flags.StringVar(&f.period, "period", "", "day or week (default: both)")
	flags.StringSliceVar(&f.policies, "policy", nil, "these `policies` beside the one in force (default: all)")
	flags.BoolVar(&f.users, "users", false, "also show what each policy means for each user")
	flags.BoolVar(&f.now, "now", false, "have the head simulate now, and wait for it (administrators)")
	flags.StringVar(&f.html, "html", "", "write a page to this `file`")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON document")
	completeFlag(c, "policy", completePolicies)
	return c
}

func (f *whatifFlags) run(c *cobra.Command) error {
	if f.period != "" && f.period != "day" && f.period != "week" {
		return usageErrorf("--period %q: give day or week", f.period)
	}
	h, err := f.open()
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
	f.choose(w)
	if f.html != "" {
		if err := wholefile.Write(f.html, whatifpage.Page(w, time.Local).WriteHTML); err != nil {
			return err
		}
	}
	if f.asJSON {
		return printJSON(c, w)
	}
	return f.print(c, w)
}

// choose leaves what was asked for.
func (f *whatifFlags) choose(w *api.WhatIf) {
	w.Periods = slices.DeleteFunc(w.Periods, func(p api.WhatIfPeriod) bool { return f.period != "" && p.Name != f.period })
	if len(f.policies) == 0 {
		return
	}
	for i := range w.Periods {
		w.Periods[i].Policies = slices.DeleteFunc(w.Periods[i].Policies, func(l api.WhatIfPolicy) bool { return !l.InForce && !slices.Contains(f.policies, l.Policy) })
	}
}

// askAgain is how often the head is asked how far it is.
const askAgain = 500 * time.Millisecond

// simulate has the head simulate, and waits.
func (f *whatifFlags) simulate(c *cobra.Command, h *headclient.Head) (*api.WhatIf, error) {
	w, err := h.WhatIfNow(c.Context(), api.WhatIfWanted{Period: f.period, Policies: f.policies})
	bar := report.NewProgress(c.ErrOrStderr(), screen.IsTerminal(c.ErrOrStderr()), "simulating", 1000)
	defer bar.Done()
	for err == nil {
		running, done := false, 0.0
		for _, p := range w.Periods {
			if f.period == "" || p.Name == f.period {
				running = running || p.Running
				done = max(done, p.Progress)
			}
		}
		if !running {
			return w, nil
		}
		bar.Set(int64(done * 1000))
		select {
		case <-time.After(askAgain):
		case <-c.Context().Done():
			return nil, c.Context().Err()
		}
		w, err = h.WhatIf(c.Context())
	}
	return nil, err
}

// shownUsers is how many users the terminal gets.
const shownUsers = 30

func (f *whatifFlags) print(c *cobra.Command, w *api.WhatIf) error {
	failed := false
	for i := range w.Periods {
		p := &w.Periods[i]
		if p.Error != "" {
			fmt.Fprintf(c.ErrOrStderr(), "%s: the last %s could not be simulated: %s\n", c.CommandPath(), p.Name, p.Error)
			failed = f.now
		}
		if p.Running {
			fmt.Fprintf(c.ErrOrStderr(), "%s: note: the last %s is being simulated anew, %s done\n", c.CommandPath(), p.Name, report.Percent(p.Progress))
		}
		if p.MadeAt == 0 {
			if p.Error == "" {
				fmt.Fprintf(c.ErrOrStderr(), "%s: note: the last %s has not been simulated yet%s\n", c.CommandPath(), p.Name, when(w.Next))
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := writeTable(c.OutOrStdout(), whatifpage.Figures(p, time.Local)); err != nil {
			return err
		}
		if f.users {
			fmt.Fprintln(c.OutOrStdout())
			if err := writeTable(c.OutOrStdout(), whatifpage.Users(p, shownUsers)); err != nil {
				return err
			}
		}
		for _, note := range p.Notes {
			fmt.Fprintf(c.ErrOrStderr(), "%s: note: last %s: %s\n", c.CommandPath(), p.Name, note)
		}
	}
	if failed {
		return exitStatus(exitFailed)
	}
	return nil
}

func when(next float64) string {
	if next == 0 {
		return ": an administrator can have that done (--now)"
	}
	return fmt.Sprintf(": it will be at %s, or now with --now", time.Unix(int64(next), 0).Format("2006-01-02 15:04"))
}

// simulatorName is the command that a head starts to simulate.
const simulatorName = "head-simulator"

// newHeadSimulator is what the head starts to simulate its history.
func newHeadSimulator() *cobra.Command {
	return &cobra.Command{
		Use:     simulatorName,
		Short:   "Simulate the history of a head (started by muster head)",
		Long:    "Simulate the history of a head, at the lowest priority. The head starts it, and hands over its history; it is of no use to people.",
		Example: "  muster whatif --now",
		Hidden:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			if info, err := os.Stdin.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
				return usageErrorf("only a head starts this: use muster whatif --now")
			}
			if whatifrun.Serve(os.Stdin, os.Stdout, newPolicy) != nil {
				return exitStatus(exitFailed) // the head was told
			}
			return nil
		},
	}
}

// headSimulator starts this program again, to simulate.
func headSimulator(ctx context.Context) *exec.Cmd {
	c := exec.CommandContext(ctx, "/proc/self/exe", simulatorName)
	c.Args[0] = "muster"
	return c
}
