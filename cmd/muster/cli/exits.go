package cli

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"muster/internal/passthrough"
)

// The exit statuses that scripts may rely on.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
	// exitInterrupted is what a shell makes of a command that SIGINT ended.
	ExitInterrupted = 130
)

// ExitStatus is an error that says nothing: muster run ends as its program did.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Execute runs the program in this process's place, with the node at a socket.
func Execute(c *cobra.Command, path string, args, environment []string, socket string) error {
	err := syscall.Exec(path, args, passthrough.Set(environment, "MUSTER_SOCKET", socket))
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s: %v\n", c.CommandPath(), path, err)
	return ExitStatus(126)
}

// ExitAs ends as the program did.
func ExitAs(c *cobra.Command, state *os.ProcessState, err error) error {
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
		return ExitStatus(126)
	}
	return ExitBy(state.Sys().(syscall.WaitStatus))
}

// ExitBy ends as a process did: by the same signal, or with the same status.
func ExitBy(status syscall.WaitStatus) error {
	if status.Signaled() {
		passthrough.DieBy(status.Signal())
		return ExitStatus(128 + int(status.Signal()))
	}
	return ExitStatus(status.ExitStatus())
}
