package node

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"muster/wire"
	"muster/wire/status"
)

// ErrNoNode says that no daemon answers at a socket.
var ErrNoNode = errors.New("no node answers")

// Ask asks the daemon at a socket how it is. If the daemon refuses, the error has its
// reason.
func Ask(socket string) (*status.Node, error) { return ask(socket, 10*time.Second) }

// ask is Ask of a daemon that has so long to answer.
func ask(socket string, patience time.Duration) (*status.Node, error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, fmt.Errorf("%w at %s: start one with muster node, or say --socket", ErrNoNode, socket)
		}
		return nil, fmt.Errorf("asking the node: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	// One who refuses may do so before it was asked: what it said is read below.
	_, _ = conn.Write([]byte("{\"request\":\"status\"}\n"))
	answer, err := readStatus(bufio.NewReader(conn))
	var refused *wire.Refused
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &refused):
		return nil, fmt.Errorf("the node at %s refuses: %w", socket, refused)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, fmt.Errorf("the node at %s closed the connection without an answer: it may just be ending, or have no room; try again", socket)
	}
	return nil, fmt.Errorf("the node at %s does not answer as a node does: %w", socket, err)
}

// readStatus reads the answer to a request: a document, or a record with a
// refusal.
func readStatus(in *bufio.Reader) (*status.Node, error) {
	head, err := in.Peek(8)
	if err != nil {
		return nil, err
	}
	// A document has text where a record has the number of its kind.
	if binary.LittleEndian.Uint16(head[6:]) == 0 {
		refused := &wire.Refused{}
		if err := wire.ReadAs(in, refused); err != nil {
			return nil, err
		}
		return nil, refused
	}
	var reply struct {
		status.Node
		Error string `json:"error"`
	}
	if err := json.NewDecoder(in).Decode(&reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, &wire.Refused{Reason: reply.Error}
	}
	return &reply.Node, nil
}
