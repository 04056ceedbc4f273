package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/node/statefolder"
)

// ErrDraining says that a node takes no programs any more.
var ErrDraining = errors.New("is shutting down")

// restartWait is how long AwaitServing waits for a node that is being started again.
const restartWait = 10 * time.Second

// AwaitServing makes sure that a node takes programs at a socket, and waits for that as long as the
// caller says, and at least for a node that was killed or hands over to the next: it will be back in
// a moment. It tells w that it waits, and for what.
func AwaitServing(ctx context.Context, w io.Writer, socket string, wait time.Duration) error {
	err := serves(socket)
	if wait == 0 {
		return awaitRestart(ctx, w, socket, err)
	}
	if err == nil {
		return nil
	}
	fmt.Fprintf(w, "muster: waiting for a node: %v\n", err)
	late := time.After(wait)
	for err != nil {
		select {
		case <-late:
			return fmt.Errorf("after a wait of %v, %w", wait, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
			err = serves(socket)
		}
	}
	return nil
}

// awaitRestart waits for the node that has left err, if it is being started again.
func awaitRestart(ctx context.Context, w io.Writer, socket string, err error) error {
	late := time.After(restartWait)
	for said := false; errors.Is(err, ErrNoNode) && statefolder.Restarting(socket); err = serves(socket) {
		if !said {
			said = true
			fmt.Fprintf(w, "muster: the node at %s is being started again: waiting for it\n", socket)
		}
		select {
		case <-late:
			return fmt.Errorf("the node at %s was killed, or has handed over, and no other came within %v: %w", socket, restartWait, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
	return err
}

// serves says why no node takes programs at a socket, or nil.
func serves(socket string) error {
	status, err := Status(socket)
	if err == nil && status.Draining {
		err = fmt.Errorf("the node at %s %w", socket, ErrDraining)
	}
	return err
}
