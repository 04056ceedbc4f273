package programs

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/nodetable"
	"muster/node/vgpu"
)

const replayHelp = `Play a recording of muster node --record again, without a node: each event is told
to a fresh dispatcher, and what it decides is compared with what was recorded,
byte for byte. The same version decides the same; of another version this tells
where it decides otherwise.

The first difference is printed with its line, and the exit status is 1. What
comes after it is not played, since the dispatcher is no longer where it was.

FILE may be - for standard input. A recording may still be written, or may have
been cut off when its node was killed; then it is played as far as it goes.`

func newNodeReplay() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "replay [--json] FILE",
		Short:   "Play a recording of a node's decisions again",
		Long:    replayHelp,
		Example: "  muster node --record decisions.jsonl\n  muster node replay decisions.jsonl",
		Args:    cli.OneArgument("a recording, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "-" {
				return replay(c, c.InOrStdin(), "standard input", asJSON)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return replay(c, file, args[0], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// replay plays a recording and prints what came of it.
func replay(c *cobra.Command, in io.Reader, name string, asJSON bool) error {
	r, err := vgpu.Replay(in)
	if err != nil {
		return nodetable.UnreadableRecording(name, r, err)
	}
	if asJSON {
		err = cli.PrintJSON(c, nodetable.ReplayedJSON(name, r))
	} else {
		err = nodetable.WriteReplayed(c.OutOrStdout(), r)
	}
	if err == nil && r.Difference != nil {
		err = fmt.Errorf("%s:%d: another decision is made now than was recorded", name, r.Difference.Line)
	}
	return err
}
