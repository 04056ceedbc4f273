package ask

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"muster/node/checkpoint"
	"muster/wire"
)

// Conversation is the asking side of a talk with the daemon about an order (orders.go).
type Conversation struct {
	Conn   *net.UnixConn
	Socket string
	rest   []byte // what the last packet held beyond the answer that was returned
}

// begin asks a daemon for an order that needs a file, and hands over the file when the
// daemon asks for it.
func begin(socket string, r OrderRequest, file *os.File) (*Conversation, error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return nil, notReached(socket, err)
	}
	c := &Conversation{Conn: conn.(*net.UnixConn), Socket: socket}
	reply, _, err := c.ask(r)
	if err == nil && reply.Send != "file" {
		err = fmt.Errorf("the node at %s does not answer as a node does: it may be of another version", socket)
	}
	if err == nil {
		err = wire.SendFiles(c.Conn, []byte("f"), file)
	}
	if err != nil {
		c.Conn.Close()
		return nil, err
	}
	return c, nil
}

// ask sends a request, and returns the answer with the descriptors that came along.
func (c *Conversation) ask(r OrderRequest) (*OrderReply, []*os.File, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	_, _ = c.Conn.Write(append(line, '\n')) // ignored: a daemon that refuses may have closed the connection already, and answer reads why
	return c.Answer()
}

// Answer waits for the daemon's next answer. Answers come one in a packet, except that
// the daemon may say two things at once: that the client is held, and that it has ended.
func (c *Conversation) Answer() (*OrderReply, []*os.File, error) {
	var files []*os.File
	if len(c.rest) == 0 {
		c.rest = make([]byte, 64<<10)
		n, received, err := wire.ReceiveFiles(c.Conn, c.rest)
		if err != nil {
			return nil, nil, fmt.Errorf("the node at %s closed the connection without an answer: it may just be ending, or have no room; try again", c.Socket)
		}
		c.rest, files = c.rest[:n], received
	}
	text := c.rest
	if end := bytes.IndexByte(text, '\n'); end >= 0 && text[0] == '{' {
		text = text[:end+1]
	}
	c.rest = c.rest[len(text):]
	reply, err := readReply(text)
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	return reply, files, nil
}

func readReply(text []byte) (*OrderReply, error) {
	var refused *wire.Refused
	if _, err := readRefusal(bufio.NewReader(bytes.NewReader(text))); errors.As(err, &refused) {
		return nil, refused
	}
	var reply OrderReply
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, fmt.Errorf("what the node answers is not understood: %w", err)
	}
	if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	return &reply, nil
}

// Checkpoint has a client of the daemon at a socket written to a file, and returns the
// file's length. The program goes on. If the context ends first, the checkpoint is given up.
func Checkpoint(ctx context.Context, socket string, client uint64, to *os.File) (uint64, error) {
	return orderOnce(ctx, socket, OrderRequest{Request: CheckpointRequest, Client: client}, to)
}

// Restore has a client's state replaced by what a file holds.
func Restore(socket string, client uint64, from *os.File) (uint64, error) {
	return orderOnce(context.Background(), socket, OrderRequest{Request: RestoreRequest, Client: client}, from)
}

// orderOnce gives an order that has one answer.
func orderOnce(ctx context.Context, socket string, r OrderRequest, file *os.File) (uint64, error) {
	c, err := begin(socket, r, file)
	if err != nil {
		return 0, err
	}
	defer c.Conn.Close()
	defer context.AfterFunc(ctx, func() { c.Conn.Close() })()
	reply, _, err := c.Answer()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	return reply.Bytes, nil
}

// Held is a client that is stopped for as long as this is open.
type Held struct {
	talk *Conversation
	// Socket is the inode of the daemon's end of the program's connection; Ring and Arena
	// are the names of the memory that the program shares with its worker.
	Socket      uint64
	Ring, Arena string
	// Shown are the attributes of devices that the program counts on.
	Shown map[int]int
}

// Hold has a client written to a file and held, until Save or Close. The file is
// complete after Save.
func Hold(socket string, client uint64, to *os.File) (*Held, error) {
	c, err := begin(socket, OrderRequest{Request: CheckpointRequest, Client: client, Hold: true}, to)
	if err != nil {
		return nil, err
	}
	reply, _, err := c.Answer()
	if err != nil {
		c.Conn.Close()
		return nil, err
	}
	return &Held{c, reply.Socket, reply.Ring, reply.Arena, reply.Shown}, nil
}

// Save has the rest of the file written, and lets the client go on. The program must be
// stopped meanwhile, since its ring and data arena are written as they are.
func (h *Held) Save() (uint64, error) {
	reply, _, err := h.talk.ask(OrderRequest{Request: SaveRequest})
	if err != nil {
		return 0, err
	}
	return reply.Bytes, nil
}

// Close lets the client go on.
func (h *Held) Close() { h.talk.Conn.Close() }

// Revived is a client whose program is not restored yet. Closed without Go, the client
// ends.
type Revived struct {
	talk *Conversation
	// Client is its number on the node.
	Client uint64
	// What the program must have: its end of the connection, and the shared memory.
	Socket, Ring, Arena *os.File
}

// Under is the grant under which a client is revived; the zero value is none.
type Under struct {
	Credential string
	Share      int // the place of the client's device among those that the grant has on the node
}

// Revive makes a client from a file, for a program that the caller is about to restore.
func Revive(socket string, was checkpoint.Client, arenaSize uint64, under Under, from *os.File) (*Revived, error) {
	c, err := begin(socket, OrderRequest{
		Request: ReviveRequest, UID: was.UID, Pid: int32(was.Pid), Program: was.Name, Virtual: was.Virtual, Memory: was.Memory, ArenaSize: arenaSize, Shown: was.Shown,
		Grant: under.Credential, Share: under.Share,
	}, from)
	if err != nil {
		return nil, err
	}
	reply, files, err := c.Answer()
	if err == nil && len(files) != 3 {
		err = fmt.Errorf("%d descriptors came", len(files))
		for _, f := range files {
			f.Close()
		}
	}
	if err != nil {
		c.Conn.Close()
		return nil, err
	}
	return &Revived{c, reply.Client, files[0], files[1], files[2]}, nil
}

// Go lets the client go on: its program was restored. The descriptors are not needed any
// more.
func (r *Revived) Go() error {
	_, _, err := r.talk.ask(OrderRequest{Request: GoRequest})
	return err
}

// Close closes what this process has of the client. Without Go, the client ends.
func (r *Revived) Close() {
	r.talk.Conn.Close()
	for _, f := range []*os.File{r.Socket, r.Ring, r.Arena} {
		f.Close()
	}
}
