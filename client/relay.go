package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"muster/wire"
)

// Remote is a node on another machine.
type Remote struct {
	// Dial makes a connection; each virtual device that a program uses gets one.
	Dial func(context.Context) (net.Conn, error)
	// Token is what the node wants to hear, "" if nothing.
	Token string
}

// resultNotReady is the CUresult of programs whose node cannot be reached.
const resultNotReady = 802

// Relay lets programs that connect to a socket use a node on another machine: it
// plays the daemon to them and sends their messages there. Only programs of the
// same user are served. It returns when ctx is over and all programs were told.
func Relay(ctx context.Context, listener *net.UnixListener, remote Remote, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			cancel()
			return fmt.Errorf("waiting for programs: %w", err)
		}
		clients.Go(func() {
			defer conn.Close()
			if err := serveProgram(ctx, conn, remote); err != nil {
				log.Info("a program's client ended", "reason", err)
			}
		})
	}
}

// serveProgram serves one connection of a program to its end.
func serveProgram(ctx context.Context, near *net.UnixConn, remote Remote) error {
	if err := sameUser(near); err != nil {
		return err
	}
	_ = near.SetDeadline(time.Now().Add(setUpTime))
	var hello wire.Hello
	if err := wire.ReadAs(near, &hello); err != nil {
		return fmt.Errorf("a program's greeting: %w", err)
	}
	dialling, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	far, err := remote.Dial(dialling)
	if err != nil {
		_ = wire.WriteRecord(near, &wire.Refused{Result: resultNotReady, Reason: err.Error()})
		return err
	}
	defer far.Close()
	r := &relay{near: near, far: far, in: bufio.NewReaderSize(far, bufferSize), out: bufio.NewWriterSize(far, bufferSize)}
	hello.Token = remote.Token
	// Whoever waits is ended by the end of the connections.
	defer context.AfterFunc(ctx, func() { r.finish("muster run is ending") })()
	return r.serve(hello)
}

func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("a program of user %d was turned away: this socket is user %d's", peer.Uid, os.Getuid())
	}
	return nil
}

// bufferSize is several records of TLS.
const bufferSize = 64 << 10

// relay is one program's client of a node elsewhere. One goroutine reads the
// ring and writes to the connection, one reads from the connection, and one
// watches the program.
type relay struct {
	near *net.UnixConn
	far  net.Conn
	in   *bufio.Reader
	out  *bufio.Writer

	shared   *wire.Shared
	consumer *wire.Consumer
	promised promised

	mu       sync.Mutex
	finished bool
	reason   string
}

func (r *relay) serve(hello wire.Hello) error {
	attached, err := r.setUp(hello)
	if err != nil {
		return err
	}
	if err := r.share(attached); err != nil {
		return err
	}
	defer r.shared.Unmap()
	var all sync.WaitGroup
	all.Go(func() { r.finish(r.send()) })
	all.Go(func() { r.finish(r.receive()) })
	all.Go(func() {
		_, err := r.near.Read(make([]byte, 1))
		if err == nil {
			r.finish("the program sent what it must not, on its socket")
		}
		r.finish("")
	})
	all.Wait()
	if r.reason == "" {
		return nil
	}
	return errors.New(r.reason)
}

// finish ends everything, with a reason for the program unless it is the
// program that ended. Only the first reason counts.
func (r *relay) finish(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return
	}
	r.finished, r.reason = true, reason
	if r.shared != nil {
		r.shared.Close(reason)
		r.consumer.Stop()
	}
	_ = r.far.Close()
	_ = r.near.Close()
}

// setUp passes records on until the node has attached the program, or one side
// has had enough.
func (r *relay) setUp(hello wire.Hello) (*wire.Attached, error) {
	_ = r.far.SetDeadline(time.Now().Add(setUpTime))
	if err := wire.WriteRecord(r.far, &hello); err != nil {
		return nil, r.lost(err)
	}
	var welcome wire.Welcome
	if err := r.pass(&welcome); err != nil {
		return nil, err
	}
	for range welcome.Devices {
		if err := r.pass(&wire.Device{}); err != nil {
			return nil, err
		}
	}
	// A program may do much else before it uses a device.
	_ = r.near.SetDeadline(time.Time{})
	_ = r.far.SetDeadline(time.Time{})
	var attach wire.Attach
	if err := wire.ReadAs(r.near, &attach); err != nil {
		return nil, fmt.Errorf("a program that used no device: %w", err)
	}
	_ = r.far.SetDeadline(time.Now().Add(setUpTime))
	if err := wire.WriteRecord(r.far, &attach); err != nil {
		return nil, r.lost(err)
	}
	attached := &wire.Attached{}
	if err := wire.ReadAs(r.in, attached); err != nil {
		return nil, r.lost(err)
	}
	return attached, r.far.SetDeadline(time.Time{})
}

// pass passes one record from the node to the program.
func (r *relay) pass(m wire.Message) error {
	if err := wire.ReadAs(r.in, m); err != nil {
		return r.lost(err)
	}
	return wire.WriteRecord(r.near, m)
}

// lost tells a program that is being set up why that failed.
func (r *relay) lost(err error) error {
	var refused *wire.Refused
	if !errors.As(err, &refused) {
		err = fmt.Errorf("the node does not answer as a node does: %w", err)
		refused = &wire.Refused{Result: resultNotReady, Reason: err.Error()}
	}
	_ = wire.WriteRecord(r.near, refused)
	return err
}

// share makes the program's ring and arena, as large as those of the node.
func (r *relay) share(attached *wire.Attached) error {
	frame, err := wire.NewFrameReader(r.in).Next()
	if err == nil && frame.Kind != wire.FrameGeometry {
		err = fmt.Errorf("%v where geometry was due", frame.Kind)
	}
	if err != nil {
		return r.lost(err)
	}
	ring, arena, err := wire.Create(frame.Geometry)
	if err != nil {
		return r.lost(err)
	}
	defer ring.Close()
	defer arena.Close()
	shared, err := wire.Map(ring, arena)
	if err != nil {
		return r.lost(err)
	}
	r.mu.Lock()
	r.shared, r.consumer = shared, wire.NewConsumer(shared)
	finished := r.finished
	r.mu.Unlock()
	var record bytes.Buffer
	if err = wire.WriteRecord(&record, attached); err == nil {
		err = wire.SendFiles(r.near, record.Bytes(), ring, arena)
	}
	if err == nil && finished {
		err = errors.New("it was ended while it was set up")
	}
	if err != nil {
		r.mu.Lock()
		r.shared = nil
		r.mu.Unlock()
		shared.Unmap()
		return fmt.Errorf("attaching a program: %w", err)
	}
	return nil
}

// send sends the program's messages until something ends, and says why.
func (r *relay) send() string {
	for {
		if !r.consumer.Pending() {
			if err := r.out.Flush(); err != nil {
				return broke(err)
			}
		}
		h, body, err := r.consumer.Next(time.Hour)
		switch {
		case errors.Is(err, wire.ErrStopped):
			return ""
		case errors.Is(err, wire.ErrTimeout):
			continue
		case err != nil:
			return "the program sent what it must not: " + err.Error()
		}
		data, err := r.shared.Data(h.Data, h.Length)
		if err != nil {
			return fmt.Sprintf("the program sent what it must not: %v with %v", h.Op, err)
		}
		if err := r.forward(h, body, data); err != nil {
			return broke(err)
		}
	}
}

func broke(err error) string { return "the connection to the node broke: " + err.Error() }

// forward writes one message and the bytes that it takes. Staging memory is free
// again as soon as its bytes are on their way.
func (r *relay) forward(h wire.Header, body, data []byte) error {
	frame := wire.Frame{Kind: wire.FrameMessage, Header: h, Body: body}
	staged := h.Op.TakesData() && h.Data < r.shared.Geometry().Staging
	switch {
	case staged:
		frame.Bytes = h.Length
	case h.Op.TakesData() && h.Length > 0:
		for _, part := range r.promised.without(piece{h.Data, h.Length}) {
			if err := r.sendData(part); err != nil {
				return err
			}
		}
	case h.Op.GivesData() && h.Length > 0:
		r.promised.add(h.Seq, piece{h.Data, h.Length})
	}
	if _, err := r.out.Write(frame.Append(r.out.AvailableBuffer())); err != nil {
		return err
	}
	if !staged {
		return nil
	}
	for len(data) > 0 {
		n := min(len(data), wire.MaxPiece)
		if _, err := r.out.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	r.consumer.Release(h.Release)
	return nil
}

// sendData sends a part of the arena.
func (r *relay) sendData(part piece) error {
	for part.length > 0 {
		n := min(part.length, wire.MaxPiece)
		data, err := r.shared.Data(part.offset, n)
		if err != nil {
			return err
		}
		frame := wire.Frame{Kind: wire.FrameData, Offset: part.offset, Bytes: n}
		if _, err := r.out.Write(frame.Append(r.out.AvailableBuffer())); err != nil {
			return err
		}
		if _, err := r.out.Write(data); err != nil {
			return err
		}
		part.offset += n
		part.length -= n
	}
	return nil
}

// receive does what the node says until something ends, and says why.
func (r *relay) receive() string {
	frames := wire.NewFrameReader(r.in)
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			err = errors.New("the node closed it")
		}
		if err != nil {
			return broke(err)
		}
		switch f.Kind {
		case wire.FrameData:
			data, err := r.shared.Data(f.Offset, f.Bytes)
			if err == nil && f.Offset < r.shared.Geometry().Staging {
				err = errors.New("data for staging memory")
			}
			if err == nil {
				err = frames.ReadBytes(data)
			}
			if err != nil {
				return broke(err)
			}
		case wire.FrameReply:
			r.promised.kept(f.Seq)
			r.shared.SetStatus(f.Status)
			r.shared.SetPrint(f.Print)
			r.shared.Reply(f.Slot, f.Result, f.Body)
		case wire.FrameState:
			r.shared.SetStatus(f.Status)
			r.shared.SetPrint(f.Print)
		case wire.FrameNotice:
			r.shared.Notify(f.Reason) // if there is no room, the program does not read them
		case wire.FrameClosed:
			return f.Reason
		default:
			return broke(fmt.Errorf("%v where none is due", f.Kind))
		}
	}
}
