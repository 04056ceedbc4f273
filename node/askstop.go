package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"muster/wire/status"
)

// stopAskEvery is how often a node that is to end is looked at.
const stopAskEvery = 50 * time.Millisecond

// Stop asks the daemon at a socket to end, how being grace, now or handover, and waits
// until it does not answer any more.
func Stop(ctx context.Context, socket, how string) error {
	var reply struct {
		status.Stopping
		Error string `json:"error"`
	}
	if err := request(ctx, socket, stopRequest{"stop", how}, &reply); err != nil {
		return err
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
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

// request asks the daemon at a socket for something, and reads its answer.
func request(ctx context.Context, socket string, line, into any) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return notReached(socket, err)
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until)
	}
	_ = json.NewEncoder(conn).Encode(line) // one who refuses may do so before it was asked
	in := bufio.NewReader(conn)
	refused, err := readRefusal(in)
	switch {
	case err != nil:
		return fmt.Errorf("the node at %s closed the connection without an answer: %w", socket, err)
	case refused != nil:
		return fmt.Errorf("the node at %s refuses: %w", socket, refused)
	}
	return json.NewDecoder(in).Decode(into)
}
