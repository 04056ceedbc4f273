// Command muster turns the GPUs of a cluster into one pool. This is the thin
// main: flags, environment, exit codes. What the commands do is elsewhere.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
)

func main() {
	os.Exit(run(headclient.AsRemoteShell(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// The exit statuses that scripts may rely on.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	// exitInterrupted is what a shell makes of a command that SIGINT ended.
	exitInterrupted = 130
)

// exitStatus is an error that says nothing: muster run ends as its program did.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// run is the whole program with its surroundings as arguments.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	root := newRoot(stdout, stderr, env)
	root.SetIn(stdin)
	root.SetArgs(args)
	if cmd, err := checkCommand(root, args); err != nil {
		return fail(stderr, cmd, err, true)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		eachCommand(root, completeWords)
	}
	// Cobra finds wrong usage before it runs a command; after that it is failure.
	running := false
	eachCommand(root, func(c *cobra.Command) {
		if work := c.RunE; work != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				running = true
				return work(c, args)
			}
		}
	})
	cmd, err := root.ExecuteC()
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if err != nil {
		return fail(stderr, cmd, err, !running)
	}
	return exitDone
}
