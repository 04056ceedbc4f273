// Package client is the Go side of the protocol: it attaches to a node's daemon as a program does,
// lets programs on this machine use a node elsewhere, by taking the daemon's part towards them, and
// lets this process itself be a client of a node here or elsewhere (Direct). It also reads and
// checks the files that such programs need: certificates and grants.
//
// It knows no device, and of daemons only what they say.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"
	"time"

	"muster/wire"
	"muster/wire/identity"
)

// setUpTime is how long the other side may take to answer while a client is set up.
const setUpTime = 10 * time.Second

// attachTime is how long a node may take to attach a program: it waits for the worker, a minute at
// most, and the worker first opens the node's devices.
const attachTime = 75 * time.Second

// Session is one client of a daemon: a virtual device with its ring.
type Session struct {
	Welcome  wire.Welcome
	Devices  []wire.Device
	Attached wire.Attached
	Shared   *wire.Shared
	Producer *wire.Producer

	conn *net.UnixConn
}

// Hello is the greeting of a program of this build.
func Hello(program string, memory uint64) wire.Hello {
	return wire.Hello{Magic: wire.Magic, Version: wire.Version, Schema: wire.Schema, Pid: uint32(os.Getpid()), Memory: memory, Program: program}
}

// Dial greets the daemon at a socket and reads its devices. If the daemon refuses, the error is a
// *wire.Refused.
func Dial(socket string, hello wire.Hello) (*Session, error) {
	conn, err := net.DialTimeout("unix", socket, setUpTime)
	if err != nil {
		return nil, fmt.Errorf("no node answers at %s (start one with muster node): %w", socket, err)
	}
	return Over(conn.(*net.UnixConn), hello)
}

// Over greets the daemon at the other end of a connection, and takes the connection over.
func Over(conn *net.UnixConn, hello wire.Hello) (*Session, error) {
	s := &Session{conn: conn}
	if err := s.greet(hello); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) greet(hello wire.Hello) error {
	_ = s.conn.SetDeadline(time.Now().Add(setUpTime))
	// A daemon that refuses may do so before it reads the greeting. So its reason is read first,
	// and the error of this write counts only if there is none.
	unsaid := wire.WriteRecord(s.conn, &hello)
	err := wire.ReadAs(s.conn, &s.Welcome)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		return err
	case unsaid != nil:
		return fmt.Errorf("greeting the node: %w", unsaid)
	case err != nil:
		return err
	}
	if s.Welcome.Devices > maxDevices {
		return fmt.Errorf("the node says that it has %d devices", s.Welcome.Devices)
	}
	s.Devices = make([]wire.Device, s.Welcome.Devices)
	for i := range s.Devices {
		if err := wire.ReadAs(s.conn, &s.Devices[i]); err != nil {
			return err
		}
	}
	return nil
}

// Shows says whether the daemon has announced the same as another session did.
func (s *Session) Shows(welcome wire.Welcome, devices []wire.Device) bool {
	return s.Welcome == welcome && reflect.DeepEqual(s.Devices, devices)
}

// Check greets a node on another machine, so that errors are known before a program is started.
func Check(ctx context.Context, remote Remote) error {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	conn, err := remote.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(setUpTime))
	hello := Hello("", 0)
	hello.Token, hello.Grant = remote.Token, remote.Grant
	if err := wire.WriteRecord(conn, &hello); err != nil {
		return fmt.Errorf("greeting the node: %w", identity.Refused(err))
	}
	if err := wire.ReadAs(conn, &wire.Welcome{}); err != nil {
		return fmt.Errorf("the node does not let us in: %w", identity.Refused(err))
	}
	return nil
}

// maxDevices is far more than any node has.
const maxDevices = 1024

// Attach makes the session the client of a device.
func (s *Session) Attach(device uint32) error {
	return s.AttachAs(wire.Attach{Device: device, Place: device})
}

// AttachAs makes the session the client of a device that its program knows by another number.
func (s *Session) AttachAs(wanted wire.Attach) error {
	_ = s.conn.SetDeadline(time.Now().Add(attachTime))
	if err := wire.WriteRecord(s.conn, &wanted); err != nil {
		return fmt.Errorf("attaching to device %d: %w", wanted.Device, err)
	}
	in := &fileReader{conn: s.conn}
	defer in.close()
	if err := wire.ReadAs(in, &s.Attached); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("the node has closed the connection, perhaps to make room for newer ones: connect again: %w", err)
		}
		return err
	}
	if len(in.files) != 2 {
		return fmt.Errorf("the node sent %d descriptors, not those of the ring and the arena", len(in.files))
	}
	shared, err := wire.Map(in.files[0], in.files[1])
	if err != nil {
		return err
	}
	s.Shared, s.Producer = shared, wire.NewProducer(shared)
	return s.conn.SetDeadline(time.Time{})
}

// Attach greets a daemon and becomes the client of one of its devices.
func Attach(socket string, hello wire.Hello, device uint32) (*Session, error) {
	s, err := Dial(socket, hello)
	if err != nil {
		return nil, err
	}
	if err := s.Attach(device); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Wait returns when the daemon has ended the client, with the reason, or after Close. It discards
// what else the daemon sends: if a worker dies at once, the daemon may send ring and arena again.
func (s *Session) Wait() string {
	_, _ = io.Copy(io.Discard, reading{s.conn})
	if reason, closed := s.Shared.Closed(); closed {
		return reason
	}
	return "the node ended the client without a word"
}

// reading hides all methods of a connection but Read, so that io.Copy does not use splice.
type reading struct{ conn *net.UnixConn }

func (r reading) Read(p []byte) (int, error) { return r.conn.Read(p) }

// HangUp ends the client; its shared memory stays mapped.
func (s *Session) HangUp() { _ = s.conn.Close() }

// Close ends the client. The caller must not use it any more.
func (s *Session) Close() {
	s.HangUp()
	if s.Shared != nil {
		s.Shared.Unmap()
	}
}

// fileReader reads from a socket and collects the descriptors that come along.
type fileReader struct {
	conn  *net.UnixConn
	files []*os.File
}

func (r *fileReader) Read(b []byte) (int, error) {
	n, files, err := wire.ReceiveFiles(r.conn, b)
	r.files = append(r.files, files...)
	if err == net.ErrClosed {
		err = io.EOF
	}
	return n, err
}

func (r *fileReader) close() {
	for _, f := range r.files {
		f.Close()
	}
}
