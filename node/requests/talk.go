package requests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"muster/node/ask"
	"muster/node/socket"
	"muster/wire"
)

// Order is a request that begins a conversation about a client's checkpoint, and answers when it is over.
type Order func(t *Talk, r ask.OrderRequest) (bytes uint64, err error)

// take performs an order. It answers only when the order is over, so that the next
// one can be given at once.
func take(t *Talk, order Order, text []byte) {
	var r ask.OrderRequest
	var reply ask.OrderReply
	err := Strictly(text, &r)
	if err == nil {
		reply.Bytes, err = order(t, r)
	}
	if err != nil {
		reply = ask.OrderReply{Error: err.Error()}
	}
	_ = t.Say(reply) // a requester that has gone needs no answer
}

// Talk is the daemon's side of a conversation about an order.
type Talk struct {
	Conn *net.UnixConn
	Who  socket.Peer
	in   io.Reader
}

// Say sends an answer. A nil error means that it was sent, not that it was read.
func (t *Talk) Say(r ask.OrderReply, files ...*os.File) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return wire.SendFiles(t.Conn, append(b, '\n'), files...)
}

// Hear waits for the next line.
func (t *Talk) Hear() (request string, err error) {
	var line ask.OrderRequest
	d := json.NewDecoder(io.LimitReader(t.in, ask.MaxRequest))
	if err := d.Decode(&line); err != nil {
		return "", err
	}
	t.in = io.MultiReader(d.Buffered(), t.in)
	return line.Request, nil
}

// File asks for the file. It must be a regular one, since reading or writing anything
// else could make the worker wait.
func (t *Talk) File(within time.Time) (*os.File, error) {
	if err := t.Say(ask.OrderReply{Send: "file"}); err != nil {
		return nil, err
	}
	_ = t.Conn.SetReadDeadline(within)
	_, files, err := wire.ReceiveFiles(t.Conn, make([]byte, 1))
	if err != nil {
		return nil, fmt.Errorf("no file came: %w", err)
	}
	if len(files) == 1 {
		var info os.FileInfo
		if info, err = files[0].Stat(); err == nil && info.Mode().IsRegular() {
			return files[0], nil
		}
	}
	for _, f := range files {
		f.Close()
	}
	return nil, errors.New("a checkpoint goes to a file and comes from one: no other kind will do")
}

// OnHangUp calls f if the requester hangs up before the caller calls stop, with the time by which the
// requester must then say something. Nothing is read of what it says.
func (t *Talk) OnHangUp(f func()) (stop func(within time.Time)) {
	_ = t.Conn.SetReadDeadline(time.Time{})
	raw, err := t.Conn.SyscallConn()
	if err != nil {
		return func(time.Time) {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		gone := false
		_ = raw.Read(func(fd uintptr) bool {
			n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if err == syscall.EAGAIN || err == syscall.EINTR {
				return false
			}
			gone = n == 0
			return true
		})
		if gone {
			f()
		}
	}()
	return func(within time.Time) {
		_ = t.Conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = t.Conn.SetReadDeadline(within)
	}
}
