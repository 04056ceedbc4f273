package node

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strings"
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
		return nil, notReached(socket, err)
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

// notReached says why nobody can be reached at a socket, as far as it can be seen.
func notReached(socket string, err error) error {
	info, lost := os.Stat(socket)
	isFile := lost == nil && !strings.HasPrefix(socket, "@")
	switch {
	case isFile && info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is no socket: name the one that the node was started with (--socket), or leave it out for %s", socket, DefaultSocket)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w at %s: start one with muster node, or say --socket", ErrNoNode, socket)
	case errors.Is(err, syscall.EACCES) && isFile:
		return fmt.Errorf("you may not use the socket %s: %s", socket, accessTo(info))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("you may not use the socket %s: a folder on the way to it is closed to you; ask the administrator to open it", socket)
	}
	return fmt.Errorf("asking the node: %w", err)
}

// accessTo says how one gets to use a socket that is closed to him: by its group, if
// that may use it.
func accessTo(info fs.FileInfo) string {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm()&0o020 == 0 {
		return "only its owner may (mode " + fmt.Sprintf("%04o", info.Mode().Perm()) + "); run a node of your own (muster run --private), or ask the administrator to open it"
	}
	group := fmt.Sprint(owner.Gid)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return "group " + group + " may; ask the administrator to make you a member of it, and log in again"
}

// readRefusal looks whether an answer is a record with a refusal, and not a document.
// The refusal is the error then.
func readRefusal(in *bufio.Reader) (document bool, err error) {
	head, err := in.Peek(8)
	if err != nil {
		return false, err
	}
	// A document has text where a record has the number of its kind.
	if binary.LittleEndian.Uint16(head[6:]) != 0 {
		return true, nil
	}
	refused := &wire.Refused{}
	if err := wire.ReadAs(in, refused); err != nil {
		return false, err
	}
	return false, refused
}

// readStatus reads the answer to a request.
func readStatus(in *bufio.Reader) (*status.Node, error) {
	if document, err := readRefusal(in); !document {
		return nil, err
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
