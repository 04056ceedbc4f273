package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/client"
	"muster/node"
	"muster/node/agent"
	"muster/wire/grant"
	"muster/wire/status"
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
			tools := agent.Tools{Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)), ServeGrant: serveTask}
			if status := agent.Main(args, tools); status != 0 {
				return exitStatus(status)
			}
			return nil
		},
	}
}

// serveTask serves a grant to the programs of a task.
func serveTask(g *grant.Grant, local string, uid int, log *slog.Logger) (*agent.Served, error) {
	libraries, err := libraryFolder()
	if err != nil {
		return nil, err
	}
	if local == "" {
		local = node.DefaultSocket
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

// nodeGrants is the book of grants of the daemon at a socket, for its node's agent.
type nodeGrants struct{ socket string }

var _ agent.Grants = nodeGrants{}

func (n nodeGrants) Admit(loan grant.Loan) error {
	_, err := node.AdmitLoan(n.socket, loan, time.Time{})
	return err
}

func (n nodeGrants) Revoke(id string) error {
	_, err := node.RevokeGrant(n.socket, id, "the job has ended")
	if err == nil {
		return nil
	}
	known, asked := node.Grants(n.socket)
	if asked != nil || slices.ContainsFunc(known.Grants, func(g status.Grant) bool { return g.ID == id }) {
		return err
	}
	return nil // it was revoked before
}

func (n nodeGrants) Limit(id string, limit int) error {
	_, err := node.LimitGrant(n.socket, id, limit)
	return err
}
