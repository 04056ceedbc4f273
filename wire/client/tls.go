package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/wire"
	"muster/wire/trust"
)

// The files that a user needs to reach nodes, as muster cert names them.
const (
	FileCA      = "ca.pem"
	FileUser    = "user.pem"
	FileUserKey = "user-key.pem"
)

// LoadTLS reads a user's folder: the authority that vouches for nodes, the list of revoked
// certificates if there is one, and the user's own certificate. Without the latter the user needs a
// token.
func LoadTLS(dir string) (*tls.Config, error) {
	own, err := trust.Believe(filepath.Join(dir, FileCA))
	if err != nil {
		return nil, err
	}
	pair, err := trust.LoadPair(filepath.Join(dir, FileUser), filepath.Join(dir, FileUserKey))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("the certificate in %s: %w", dir, err)
	default:
		own.Certificates = []tls.Certificate{pair}
	}
	return trust.Dial(own, trust.Anyone, wire.StreamProtocol), nil
}

// Dialler returns a function that connects to a node at HOST:PORT.
func Dialler(address string, config *tls.Config) func(context.Context) (net.Conn, error) {
	return dialler(address, func(ctx context.Context, plain net.Conn) (net.Conn, error) {
		config := config
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			config = config.Clone()
			config.ServerName = host
		}
		conn := tls.Client(plain, config)
		return conn, explain(config, conn.HandshakeContext(ctx))
	})
}

// explain puts into words why a handshake with a node has failed. A node that is busy or starts again
// hangs up, and so does one that takes no TLS.
func explain(config *tls.Config, err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("it hung up when it was greeted with TLS: try again, since it may be busy or just starting; "+
			"if its administrator says that it has plain: true, use --plain instead of --tls-dir, with its token in $MUSTER_TOKEN (%w)", err)
	case errors.As(err, &record):
		return fmt.Errorf("what listens there does not speak TLS: is that the port of a node? (%w)", err)
	}
	return trust.Explain(config.ServerName, config, err)
}

// PlainDialler returns a function that connects to a node at HOST:PORT without TLS, for messages or
// for lanes. Node and program prove to each other that they know the token.
func PlainDialler(address string, kind wire.PlainKind, token string) func(context.Context) (net.Conn, error) {
	return dialler(address, func(ctx context.Context, plain net.Conn) (net.Conn, error) {
		defer context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })()
		return plain, wire.GreetPlain(plain, kind, token)
	})
}

// dialler returns a function that connects to a node and then lets greet perform the handshake.
func dialler(address string, greet func(context.Context, net.Conn) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		system := net.Dialer{Control: door.GiveUpAfterAMinute}
		plain, err := system.DialContext(ctx, "tcp", address)
		if err == nil {
			var conn net.Conn
			if conn, err = greet(ctx, door.NewEager(plain)); err == nil {
				return conn, nil
			}
			plain.Close()
		}
		return nil, fmt.Errorf("the node at %s cannot be reached: %w", address, unreached(err))
	}
}

// unreached says what to do about an error of connecting, if that is known.
func unreached(err error) error {
	var lookup *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens there: does a node run, with listen in its configuration, and is this its port? (%w)", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it does not answer: is the machine up, does a firewall drop what comes, does its node hang? (%w)", err)
	case errors.As(err, &lookup):
		return fmt.Errorf("no address is known for this name: is it written right? (%w)", err)
	}
	return err
}

// LaneDialler returns a function that makes lanes to a node at HOST:PORT.
func LaneDialler(address string, config *tls.Config) func(context.Context) (net.Conn, error) {
	return Dialler(address, speaking(config, wire.LaneProtocol))
}

// ResumeDialler returns a function that connects to a node at HOST:PORT to resume a session.
func ResumeDialler(address string, config *tls.Config) func(context.Context) (net.Conn, error) {
	return Dialler(address, speaking(config, wire.ResumeProtocol))
}

func speaking(config *tls.Config, protocol string) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol}
	return config
}

// Secure is the node at HOST:PORT, over TLS. The token is "" if the node needs none.
func Secure(address string, config *tls.Config, token string) Remote {
	return Remote{Dial: Dialler(address, config), Lane: LaneDialler(address, config), Resume: ResumeDialler(address, config), Token: token}
}

// Plain is the node at HOST:PORT without TLS. The token itself does not travel.
func Plain(address, token string) Remote {
	return Remote{Dial: PlainDialler(address, wire.PlainStream, token), Lane: PlainDialler(address, wire.PlainLane, token), Resume: PlainDialler(address, wire.PlainResume, token)}
}
