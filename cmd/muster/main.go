// Command muster turns the GPUs of a cluster into one pool. This is the thin
// main: flags, environment, exit codes. What the commands do is elsewhere.
package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
)

func main() {
	os.Exit(run(headclient.AsRemoteShell(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the whole program with its surroundings as arguments.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	root := newRoot(stdout, stderr, env)
	root.SetIn(stdin)
	root.SetArgs(args)
	if cmd, err := checkCommand(root, args); err != nil {
		return fail(stderr, cmd, err, true)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		cli.EachCommand(root, cli.CompleteWords)
	}
	// Cobra finds wrong usage before it runs a command; after that it is failure.
	running := false
	cli.EachCommand(root, func(c *cobra.Command) {
		if work := c.RunE; work != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				running = true
				return work(c, args)
			}
		}
	})
	cmd, err := root.ExecuteC()
	var status cli.ExitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if err != nil {
		return fail(stderr, cmd, err, !running)
	}
	return cli.ExitDone
}
