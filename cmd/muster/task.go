package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"muster/node/agent"
)

// newTask is what the agent of a node starts for each task.
func newTask() *cobra.Command {
	return &cobra.Command{
		Use:     "task",
		Short:   "Run the processes of one task of a job (started by muster node)",
		Long:    "Run the processes of one task of a job. The agent of a node starts it; it is of no use to people.",
		Example: "  muster node --head HOST",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			tools := agent.Tools{Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))}
			if status := agent.Main(args, tools); status != 0 {
				return exitStatus(status)
			}
			return nil
		},
	}
}
