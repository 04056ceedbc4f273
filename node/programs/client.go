package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"muster/internal/passthrough"
	"muster/node/ask"
	"muster/node/checkpoint"
	"muster/wire/status"
)

// SavedClient is a client, without its program, that was saved or restored.
type SavedClient struct {
	Dir    string `json:"dir"`
	Client uint64 `json:"client"`
	Bytes  uint64 `json:"bytes"`
}

// SaveClient saves the GPU's side of a client of the node at a socket. Its program goes on meanwhile. If
// the context ends first, nothing is saved, and an earlier checkpoint in the folder stays.
func SaveClient(ctx context.Context, socket string, id uint64, dir string) (*SavedClient, error) {
	draft, err := checkpoint.Begin(dir, checkpoint.OfClient, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	bytes, err := saveInto(ctx, draft, socket, id)
	if err != nil {
		draft.Drop()
		return nil, err
	}
	if err := draft.Commit(); err != nil {
		return nil, err
	}
	return &SavedClient{dir, id, bytes}, nil
}

// saveInto has the node write a client into a folder.
func saveInto(ctx context.Context, draft *checkpoint.Draft, socket string, id uint64) (uint64, error) {
	s, err := ask.Status(socket)
	if err != nil {
		return 0, err
	}
	saved := checkpoint.Client{Client: id}
	for _, c := range s.Clients {
		if c.ID == id {
			saved.Pid, saved.Name, saved.Virtual, saved.Memory = int(c.Pid), c.Program, c.Virtual, c.Limit
		}
	}
	file, err := draft.Create(id)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	saved.File = filepath.Base(file.Name())
	draft.Manifest.Clients = []checkpoint.Client{saved}
	return ask.Checkpoint(ctx, socket, id, file)
}

// RestoreClient puts what a folder has of a client back into a client of the node, whose program must
// still run. id is its number now; 0 is the one that it had.
func RestoreClient(socket string, id uint64, dir string, was checkpoint.Client) (*SavedClient, error) {
	file, err := os.Open(filepath.Join(dir, was.File))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if id == 0 {
		id = was.Client
	}
	bytes, err := ask.Restore(socket, id, file)
	if err != nil {
		return nil, explain(socket, dir, id, err)
	}
	return &SavedClient{dir, id, bytes}, nil
}

// explain says what to do about a client's checkpoint that cannot be restored because its program is
// not there any more.
func explain(socket, dir string, id uint64, err error) error {
	s, unknown := ask.Status(socket)
	if unknown != nil || slices.ContainsFunc(s.Clients, func(c status.Client) bool { return c.ID == id }) {
		return err
	}
	return fmt.Errorf("%w. %s has the GPU's side of a client only, which goes back into the program while that runs (--client names it, if its number has changed). "+
		"If the program has ended, start it again and let it read its memory with musterRestore; a checkpoint that starts programs again is one of muster checkpoint --program", err, dir)
}

// ClientGone says whether a node no longer has the client, or is itself gone.
func ClientGone(socket string, id uint64) bool {
	s, err := ask.Status(socket)
	return errors.Is(err, ask.ErrNoNode) || err == nil && !slices.ContainsFunc(s.Clients, func(c status.Client) bool { return c.ID == id && c.State != "ending" })
}

// Await waits for the end of a process that was restored, passes signals on to it, and reaps other
// orphans meanwhile. The caller must have called AdoptOrphans before the restore.
func Await(pid int) (syscall.WaitStatus, error) {
	signals := make(chan os.Signal, 16)
	passthrough.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for process %d: %w", pid, err)
		case ended == pid && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}
