package jobs

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/head/daemon"
	"muster/report"
	"muster/wire/api"
)

func newHeadStatus() *cobra.Command {
	var f cli.AskFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "List the heads, which of them leads, and how far each one is",
		Long: `List the heads of a cluster, which of them leads, and how far each one is: the last entry of
their common log that it has in its store. Any of them can be asked. With --json it also says
which version of muster each one runs.` + cli.AskHelp,
		Example: `  muster head status
  muster head status --head a.example.org,b.example.org`,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			all, err := h.Heads(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(c, all)
			}
			return writeHeads(c.OutOrStdout(), all)
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func writeHeads(w io.Writer, all *api.Heads) error {
	var rows [][]string
	for _, h := range all.Heads {
		state, applied := "follows", strconv.FormatUint(h.Applied, 10)
		switch {
		case h.Error != "":
			state, applied = "away: "+h.Error, "-"
		case h.Leads:
			state = "leads"
		case !h.Votes:
			state = "joins"
		case h.Leader == "":
			state = "knows none that leads"
		}
		rows = append(rows, []string{cmp.Or(h.Address, "this one, alone"), applied, state})
	}
	return report.WriteColumns(w, []string{"HEAD", "ENTRY", "STATE"}, rows, -1, 0)
}

func newHeadRemove() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "remove HOST:PORT",
		Short: "Go on without a head",
		Long: `Go on without a head, as muster head status lists it: one that will not come back, or whose
machine is needed for something else. The majority is then one of those that are left. If it
runs, it ends. This is for administrators.` + cli.AskHelp,
		Example: `  muster head remove b.example.org:9422`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.UsageErrorf("name one head as muster head status lists it, HOST:PORT")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			return h.RemoveHead(c.Context(), args[0])
		},
	}
	f.Add(c)
	return c
}

func newHeadAlone() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use:   "alone [--state DIR]",
		Short: "Go on with one head of several, when the others are lost",
		Long: `Make a stopped head one that is alone, when the others are lost and it has no majority
without them. Start it again afterwards. What the lost ones acknowledged last may be
missing. They must never start again with what they have: remove their folders first, or
there are two heads that decide.`,
		Example: `  muster head alone && muster head --tls-dir head-a.example.org`,
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if state == "" {
				state = daemon.DefaultState()
			}
			if err := daemon.GoAlone(state); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "The head of %s is alone now. Start it, and have others join it.\n", state)
			return nil
		},
	}
	c.Flags().StringVar(&state, "state", "", "`folder` of the head (default: /var/lib/muster/head, or the user's)")
	return c
}
