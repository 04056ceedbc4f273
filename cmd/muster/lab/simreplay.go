package lab

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/policy/history"
	"muster/sim/simpage"
	"muster/sim/source"
)

const simReplayHelp = `Play a history again: what a cluster's scheduler was told, as muster sim --record
writes it, is told to a fresh one with the same policy, and every plan is compared
with the one that was recorded. The same version decides the same; of another
version this tells where it decides otherwise. The first difference is printed with its
line, and the exit status is 1.

With --policy another policy is asked at every step what it would do, on the
cluster as it really was then; after each step the history goes on as it was
recorded. That tells how the decisions differ, not what would have come of them:
for that, run the workload with muster sim.

FILE may be gzipped, and may be - for standard input. A history may still be
written, or may have been cut off; then it is played as far as it goes.`

// shownDifferences bounds the steps that a comparison tells of.
const shownDifferences = 10

func newSimReplay() *cobra.Command {
	var other string
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay [--policy NAME[:key=value...]] [--json] FILE",
		Short: "Play a history of decisions again, or ask another policy",
		Long:  simReplayHelp,
		Example: `  muster sim --cluster small --workload small --policy easy --record history.jsonl
  muster sim replay history.jsonl
  muster sim replay history.jsonl --policy conservative`,
		Args: cli.OneArgument("a history, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			name, in := args[0], c.InOrStdin()
			if name == "-" {
				name = "standard input"
			} else {
				file, err := os.Open(name)
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			in, err := source.Unzipped(in)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if other != "" {
				return compareHistory(c, in, name, other, asJSON)
			}
			return replayHistory(c, in, name, asJSON)
		},
	}
	c.Flags().StringVar(&other, "policy", "", "ask another `policy` at every step")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cli.CompleteFlag(c, "policy", cli.CompletePolicies)
	return c
}

func replayHistory(c *cobra.Command, in io.Reader, name string, asJSON bool) error {
	r, err := history.Replay(in, cli.NewPolicy)
	if err != nil {
		return source.BadRecord(name, err)
	}
	if asJSON {
		err = cli.PrintJSON(c, simpage.Replayed(name, &r))
	} else {
		err = simpage.WriteReplayed(c.OutOrStdout(), &r)
	}
	if err == nil && r.Difference != nil {
		err = fmt.Errorf("%s:%d: another decision is made now than was recorded", name, r.Difference.Line)
	}
	return err
}

func compareHistory(c *cobra.Command, in io.Reader, name, other string, asJSON bool) error {
	if _, err := cli.NewPolicy(other); err != nil {
		return cli.UsageErrorf("--policy: %v", err)
	}
	r, err := history.Compare(in, cli.NewPolicy, other, shownDifferences)
	if err != nil {
		return source.BadRecord(name, err)
	}
	if !asJSON {
		return simpage.WriteCompared(c.OutOrStdout(), &r, other)
	}
	return cli.PrintJSON(c, simpage.Compared(name, other, &r))
}
