// Package gateway lets programs on other machines use a node: it accepts
// connections over TLS, checks who is there, and is a client of the local daemon
// in their name. What a program's relay takes from a ring there, it puts on a
// ring here.
//
// It knows no device and nothing of the daemon but its socket.
package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
	"unicode"

	"muster/client"
	"muster/wire"
)

// Config says who may come, and where to.
type Config struct {
	// Socket is the daemon's.
	Socket string
	// TLS has the node's certificate and, unless a token suffices, the authority
	// that vouches for users: see LoadTLS.
	TLS *tls.Config
	// Token is what programs must know; "" for nothing.
	Token string
	// MaxConnections at a time; 0 for DefaultConnections.
	MaxConnections int
	Log            *slog.Logger
}

// DefaultConnections is how many connections are served at a time.
const DefaultConnections = 256

// tokenUser is the name of users who have no certificate, only the token.
const tokenUser = "remote"

// setUpTime is how long a connection may take to say who it is and what it wants.
const setUpTime = 10 * time.Second

// CUresults of refusals.
const (
	resultNotPermitted = 800
	resultNotReady     = 802
	resultMismatch     = 803
)

// Serve accepts connections until ctx is over, and then ends those there are.
func Serve(ctx context.Context, listener net.Listener, c Config) error {
	if c.TLS == nil || len(c.TLS.Certificates) == 0 {
		return errors.New("a node that others can reach needs a certificate: muster cert makes one")
	}
	if c.TLS.ClientCAs == nil && c.Token == "" {
		return errors.New("anybody could come: give the authority that vouches for users, or a token")
	}
	c.TLS = strict(c.TLS)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	most := c.MaxConnections
	if most == 0 {
		most = DefaultConnections
	}
	places := make(chan struct{}, most)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			cancel()
			return fmt.Errorf("waiting for programs of other machines: %w", err)
		}
		select {
		case places <- struct{}{}:
			all.Go(func() {
				defer func() { <-places }()
				c.serve(ctx, conn)
			})
		default:
			c.Log.Warn("a connection was turned away: there are too many", "from", conn.RemoteAddr(), "most", most)
			_ = conn.Close()
		}
	}
}

// strict allows nothing old, and nobody unknown.
func strict(given *tls.Config) *tls.Config {
	t := given.Clone()
	t.MinVersion = tls.VersionTLS13
	t.NextProtos = []string{wire.StreamProtocol}
	t.SessionTicketsDisabled = true
	t.DynamicRecordSizingDisabled = true
	t.ClientAuth = tls.NoClientCert
	if t.ClientCAs != nil {
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return t
}

// serve serves one connection to its end.
func (c *Config) serve(ctx context.Context, plain net.Conn) {
	defer plain.Close()
	log := c.Log.With("from", plain.RemoteAddr())
	if tcp, ok := plain.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = client.GiveUpAfterAMinute("", "", raw)
		}
	}
	_ = plain.SetDeadline(time.Now().Add(setUpTime))
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := tls.Server(plain, c.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		log.Info("a connection was refused", "error", err)
		return
	}
	in := bufio.NewReaderSize(conn, bufferSize)
	session, user, err := c.setUp(ctx, conn, in)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		log.Info("a program was refused", "reason", refused.Reason)
		_ = wire.WriteRecord(conn, refused)
		_ = conn.Close()
		return
	case err != nil:
		log.Debug("a connection ended", "error", err)
		return
	}
	stop() // from here on it ends with a word
	_ = plain.SetDeadline(time.Time{})
	log.Debug("a program is served", "user", user, "client", session.Attached.Client)
	reason := newBridge(conn, in, session).run(ctx)
	log.Debug("a program is no more served", "user", user, "client", session.Attached.Client, "reason", reason)
}

// setUp makes a connection a client of the daemon. Nothing is taken from the
// daemon before the connection has shown that it may come.
func (c *Config) setUp(ctx context.Context, conn *tls.Conn, in *bufio.Reader) (*client.Session, string, error) {
	var hello wire.Hello
	if err := wire.ReadAs(in, &hello); err != nil {
		return nil, "", spoken(err)
	}
	user, err := c.admit(conn.ConnectionState(), hello.Token)
	if err != nil {
		return nil, "", err
	}
	hello.Token = wire.SpeaksFor + user
	session, err := client.Dial(c.Socket, hello)
	if err != nil {
		return nil, "", notReady(err)
	}
	if err := attach(ctx, conn, in, session); err != nil {
		session.Close()
		return nil, "", err
	}
	return session, user, nil
}

func attach(ctx context.Context, conn *tls.Conn, in *bufio.Reader, session *client.Session) error {
	if err := wire.WriteRecord(conn, &session.Welcome); err != nil {
		return err
	}
	for i := range session.Devices {
		if err := wire.WriteRecord(conn, &session.Devices[i]); err != nil {
			return err
		}
	}
	// A program may do much else before it uses a device.
	_ = conn.SetDeadline(time.Time{})
	if err := ctx.Err(); err != nil {
		return err // the deadline that this ended may have been its own
	}
	var wanted wire.Attach
	if err := wire.ReadAs(in, &wanted); err != nil {
		return spoken(err)
	}
	err := session.Attach(wanted.Device)
	_ = conn.SetWriteDeadline(time.Now().Add(setUpTime)) // starting a worker may have taken longer
	if err != nil {
		return notReady(err)
	}
	if err := wire.WriteRecord(conn, &session.Attached); err != nil {
		return err
	}
	geometry := wire.Frame{Kind: wire.FrameGeometry, Geometry: session.Shared.Geometry()}
	_, err = conn.Write(geometry.Append(nil))
	return err
}

// admit says who is there, or refuses.
func (c *Config) admit(state tls.ConnectionState, token string) (string, error) {
	if c.Token != "" && !sameSecret(token, c.Token) {
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "the node wants a token, and this is not it"}
	}
	if len(state.PeerCertificates) == 0 {
		return tokenUser, nil
	}
	name := state.PeerCertificates[0].Subject.CommonName
	if name == "" || len(name) > 64 {
		return "", &wire.Refused{Result: resultNotPermitted, Reason: "the certificate names no user: its common name must, in at most 64 bytes"}
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return "", &wire.Refused{Result: resultNotPermitted, Reason: fmt.Sprintf("the certificate's name is %q, which cannot be a user's", name)}
		}
	}
	return name, nil
}

// sameSecret takes as long for any guess.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// spoken makes a refusal of what the other side said wrong; that it said nothing
// stays an error.
func spoken(err error) error {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return err
	}
	return &wire.Refused{Result: resultMismatch, Reason: "this is a Muster node, and what came is not what a program says: " + err.Error()}
}

// notReady makes a refusal of what went wrong between gateway and daemon.
func notReady(err error) error {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return refused
	}
	return &wire.Refused{Result: resultNotReady, Reason: "the node could not serve the program: " + err.Error()}
}
