package jobs

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"time"

	"muster/agent"
	"muster/cmd/muster/cli"
	"muster/node/launch"
	"muster/node/settings"
	"muster/wire/client"
	"muster/wire/grant"

	"github.com/spf13/cobra"
)

// NewTask is what the agent of a node starts for each task.
func NewTask() *cobra.Command {
	return &cobra.Command{
		Use:     "task",
		Short:   "Run the processes of one task of a job (started by muster node)",
		Long:    "Run the processes of one task of a job. The agent of a node starts it; it is of no use to people.",
		Example: "  muster node --head HOST",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			tools := agent.Tools{Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)), ServeGrant: serveTask}
			if status := agent.Main(args, tools); status != 0 {
				return cli.ExitStatus(status)
			}
			return nil
		},
	}
}

// serveTask serves a grant to the programs of a task.
func serveTask(g *grant.Grant, local string, uid int, log *slog.Logger) (*agent.Served, error) {
	libraries, err := launch.Libraries()
	if err != nil {
		return nil, err
	}
	if local == "" {
		local = settings.DefaultSocket
	}
	// A unique name. The peer's user is checked besides.
	socket := "@muster-task-" + rand.Text()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := client.ServeUser(ctx, listener, g, local, uid, log); err != nil {
			log.Error("the task's GPUs are not served any more", "error", err)
		}
	}()
	return &agent.Served{Socket: socket, Libraries: libraries, Close: func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(5 * time.Second): // of programs that were killed
		}
	}}, nil
}
