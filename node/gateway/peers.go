package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"muster/internal/door"
	"muster/wire/borrow"
	"muster/wire/identity"
)

const (
	peersEach = 16                   // connections of one node that asks; several nodes may share an address
	peerPace  = 5 * time.Millisecond // least time between two questions on one connection
	peerTime  = 5 * time.Second      // for the daemon's answer
)

// servePeer answers the questions of another node until it hangs up or is silent for too long.
func (g *Gateway) servePeer(ctx context.Context, conn *tls.Conn, unknown *door.Place, log *slog.Logger) {
	cert, err := nodeOf(conn)
	if err != nil {
		refusePeer(conn, err)
		g.refusals.Info(log, "a node was refused", "reason", err)
		return
	}
	names := strings.Join(identity.NodeNames(cert), " ")
	place, err := g.peers.Take(names, false, func() { _ = conn.NetConn().Close() })
	if err != nil {
		refusePeer(conn, errors.New("too many nodes ask this one: try again later"))
		return
	}
	defer place.Leave()
	unknown.Leave()
	in := bufio.NewReaderSize(conn, borrow.MaxLine)
	for {
		_ = conn.SetDeadline(time.Now().Add(g.Limits.Idle))
		if ctx.Err() != nil { // its end had set a deadline, which was just replaced
			return
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		answer, err := g.askDaemon(line, cert)
		if err != nil {
			refusePeer(conn, err)
			g.refusals.Info(log, "what a node asked was refused", "node", names, "reason", err)
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
		time.Sleep(peerPace)
	}
}

// refusePeer sends the reason for a refusal.
func refusePeer(conn net.Conn, why error) {
	if line, err := borrow.Encode(borrow.Answer{Version: borrow.Version, Error: why.Error()}); err == nil {
		_, _ = conn.Write(line)
	}
}

// nodeOf returns the certificate of the node at the other end.
func nodeOf(conn *tls.Conn) (*x509.Certificate, error) {
	state := conn.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return nil, errors.New("only nodes of the same authority may ask this one for virtual GPUs: show the node's certificate")
	}
	cert := state.PeerCertificates[0]
	if identity.KindOf(cert) != identity.Node {
		return nil, fmt.Errorf("the certificate of %q is not that of a node: make one with muster cert --host", cert.Subject.CommonName)
	}
	return cert, nil
}

// askDaemon passes a question to the daemon and returns its answer. The node in the question must
// be the one that the certificate names.
func (g *Gateway) askDaemon(line []byte, from *x509.Certificate) ([]byte, error) {
	q, err := borrow.ReadQuestion(line)
	if err != nil {
		return nil, err
	}
	if err := identity.IsNode(from, q.Node); err != nil {
		return nil, err
	}
	request, err := json.Marshal(map[string]any{"request": "peer", "question": q})
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", g.Socket, peerTime)
	if err != nil {
		return nil, errors.New("the node's daemon does not answer: it may just be starting; try again")
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(peerTime))
	if _, err := conn.Write(append(request, '\n')); err != nil {
		return nil, errors.New("the node's daemon does not answer: try again")
	}
	answer, err := bufio.NewReaderSize(conn, borrow.MaxLine).ReadSlice('\n')
	if err != nil {
		return nil, errors.New("the node's daemon does not answer: try again")
	}
	return whyNot(answer)
}

// whyNot returns a line of the daemon, or an error if the line is one.
func whyNot(line []byte) ([]byte, error) {
	var refused struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(line, &refused); err != nil {
		return nil, err
	}
	if refused.Error != "" {
		return nil, errors.New(refused.Error)
	}
	return line, nil
}
