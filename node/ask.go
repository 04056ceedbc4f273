package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"muster/wire/status"
)

// ErrNoNode says that no daemon answers at a socket.
var ErrNoNode = errors.New("no node answers")

// Ask asks the daemon at a socket how it is.
func Ask(socket string) (*status.Node, error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, fmt.Errorf("%w at %s: start one with muster node, or say --socket", ErrNoNode, socket)
		}
		return nil, fmt.Errorf("asking the node: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("{\"request\":\"status\"}\n")); err != nil {
		return nil, fmt.Errorf("asking the node at %s: %w", socket, err)
	}
	var reply struct {
		status.Node
		Error string `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return nil, fmt.Errorf("the node at %s does not answer as a node does: %w", socket, err)
	}
	if reply.Error != "" {
		return nil, fmt.Errorf("the node at %s: %s", socket, reply.Error)
	}
	return &reply.Node, nil
}
