package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"muster/agent"
	"muster/cmd/muster/cli"
	"muster/node/ask"
	"muster/node/launch"
	"muster/node/programs"
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
			tools := agent.Tools{Log: slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)), ServeGrant: serveTask, Save: saveTask, Restore: restoreTask}
			if status := agent.Main(args, tools); status != 0 {
				return cli.ExitStatus(status)
			}
			return nil
		},
	}
}

// serveTask serves a grant to the programs of a task.
func serveTask(g *grant.Grant, local, at string, uid int, log *slog.Logger) (*agent.Served, error) {
	libraries, err := launch.Libraries()
	if err != nil {
		return nil, err
	}
	if local == "" {
		local = settings.DefaultSocket
	}
	// A unique name, which programs keep that are restored. The peer's user is checked besides.
	socket := cmp.Or(at, "@muster-task-"+rand.Text())
	job, err := client.NewJob(g, local, uid)
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := job.Serve(ctx, listener, log); err != nil {
			log.Error("the task's GPUs are not served any more", "error", err)
		}
	}()
	links := func() (passed map[uint64]uint64, borrowed map[uint64]bool) {
		l := job.Links()
		return l.Passed, l.Borrowed
	}
	return &agent.Served{Socket: socket, Libraries: libraries, Links: links, Close: func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(5 * time.Second): // of programs that were killed
		}
	}}, nil
}

// saveTask saves the processes of a task.
func saveTask(ctx context.Context, s agent.Saving) (uint64, error) {
	criu, err := programs.Find(s.CRIU)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	criu.Run = s.Run
	saving := programs.Saving{
		Socket: cmp.Or(s.Node, settings.DefaultSocket), CRIU: criu, Hook: []string{self, "checkpoint-hook"}, Pid: s.Pid, Dir: s.Dir, Holding: time.Minute,
		Options: []string{"--manage-cgroups=ignore"}, // the processes are made again in the control group of the new task
	}
	if s.Served != nil {
		saving.Between = os.Getpid()
		saving.Links = func() client.Links {
			passed, borrowed := s.Served.Links()
			return client.Links{Passed: passed, Borrowed: borrowed}
		}
	}
	saved, err := programs.Save(ctx, saving)
	if err != nil {
		return 0, err
	}
	return saved.Bytes, nil
}

// restoreTask makes the processes of a task again. Each of their clients gets the device of the new grant
// that has the same place as its device had in the old one.
func restoreTask(ctx context.Context, r agent.Restoring) error {
	criu, err := programs.Find(r.CRIU)
	if err != nil {
		return err
	}
	criu.Run = r.Run
	_, err = programs.Restore(ctx, programs.Restoring{
		Socket: cmp.Or(r.Node, settings.DefaultSocket), CRIU: criu, Dir: r.Dir, Sibling: true,
		Under: func(virtual int) (ask.Under, error) { return underOf(r.Grant, virtual) },
	})
	return err
}

// underOf is what a node is told of a grant, for a program's device.
func underOf(g *grant.Grant, virtual int) (ask.Under, error) {
	switch {
	case g == nil || virtual < 0 || virtual >= len(g.Devices):
		return ask.Under{}, fmt.Errorf("it has device %d, which the job was not granted here", virtual)
	case g.Devices[virtual].IsBorrowed():
		return ask.Under{}, fmt.Errorf("its device %d is borrowed from node %s here, and a program goes on only on devices of its own node", virtual, g.Devices[virtual].Node)
	}
	return ask.Under{Credential: string(g.Secret), Share: g.Place(virtual)}, nil
}
