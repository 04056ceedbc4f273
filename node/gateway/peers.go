package gateway

import (
	"bufio"
	"crypto/tls"
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
	peersEach = 16                   // connections of one node that asks: there may be several nodes at one address
	peerPace  = 5 * time.Millisecond // between two questions of one connection, at least
	peerTime  = 5 * time.Second      // for the daemon's answer
)

// servePeer answers the questions of another node until it hangs up, or is silent for too long.
func (g *Gateway) servePeer(conn link, unknown *door.Place, log *slog.Logger) {
	may, err := nodeOf(conn)
	if err != nil {
		refusePeer(conn, err)
		log.Info("a node was refused", "reason", err)
		return
	}
	place, err := g.peers.Take("node "+may.key, false, func() { _ = conn.NetConn().Close() })
	if err != nil {
		refusePeer(conn, errors.New("too many nodes ask this one: try again later"))
		return
	}
	defer place.Leave()
	unknown.Leave()
	in := bufio.NewReaderSize(conn, borrow.MaxLine)
	for {
		_ = conn.SetDeadline(time.Now().Add(g.Limits.Idle))
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		answer, err := g.askDaemon(line, may)
		if err != nil {
			refusePeer(conn, err)
			log.Info("what a node asked was refused", "node", may.key, "reason", err)
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
		time.Sleep(peerPace)
	}
}

// refusePeer says why there is no answer.
func refusePeer(conn net.Conn, why error) {
	if line, err := borrow.Encode(borrow.Answer{Version: borrow.Version, Error: why.Error()}); err == nil {
		_, _ = conn.Write(line)
	}
}

// names are those by which a node may call itself.
type names struct {
	key  string               // tells nodes apart
	cert *tls.ConnectionState // nil: it may have any name, since it has shown that it knows the token
}

// nodeOf says which node a connection comes from.
func nodeOf(conn link) (names, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return names{key: door.Origin(conn.RemoteAddr())}, nil
	}
	state := secure.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return names{}, errors.New("only nodes of the same authority may ask this one for virtual GPUs: show the node's certificate")
	}
	cert := state.PeerCertificates[0]
	if identity.KindOf(cert) != identity.Node {
		return names{}, fmt.Errorf("the certificate of %q is not that of a node: make one with muster cert --host", cert.Subject.CommonName)
	}
	return names{key: strings.Join(identity.NodeNames(cert), " "), cert: &state}, nil
}

// is refuses a name that is not the node's.
func (n names) is(name string) error {
	if n.cert == nil {
		return nil
	}
	return identity.IsNode(n.cert.PeerCertificates[0], name)
}

// askDaemon has the daemon answer a question.
func (g *Gateway) askDaemon(line []byte, from names) ([]byte, error) {
	q, err := borrow.ReadQuestion(line)
	if err != nil {
		return nil, err
	}
	if err := from.is(q.Node); err != nil {
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

// whyNot returns a line of the daemon's, or the error that it is.
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
