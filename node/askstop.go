package node

import (
	"context"
	"errors"
	"time"

	"muster/wire/status"
)

// stopAskEvery is how often a node that is to end is looked at.
const stopAskEvery = 50 * time.Millisecond

// Stop asks the daemon at a socket to end, how being grace, now or handover, and waits
// until it does not answer any more.
func Stop(ctx context.Context, socket, how string) error {
	var reply status.Stopping
	if err := request(socket, stopRequest{"stop", how}, &reply, changeTime); err != nil {
		return err
	}
	for {
		s, err := Ask(socket)
		if errors.Is(err, ErrNoNode) || err == nil && s.Pid != reply.Pid { // another has come
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stopAskEvery):
		}
	}
}
