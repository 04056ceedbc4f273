// Package dial connects to a cluster's head: over TLS with a certificate, or at its Unix socket.
// Agents use it for the connections of their sessions and of streams, commands for a client of the
// HTTP interface.
//
// A head proves by its certificate that it is one (wire/identity): a node of the same authority
// cannot pose as the head, whatever its names are. At a socket without a path, only root and the
// user who dials are trusted to be the head.
//
// The package knows neither messages nor documents.
package dial

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"muster/internal/whois"
	"muster/wire/identity"
	"muster/wire/trust"
)

// Where a head listens by default.
const (
	DefaultPort   = "9422"
	DefaultSocket = "@muster-head"
)

// Config says where the head is, and as whom to dial.
type Config struct {
	// Head is HOST or HOST:PORT, or unix:PATH or unix:@NAME for its socket. Several heads of a cluster are
	// HOST,HOST,HOST: requests go to the one that leads.
	Head string
	// TLS has the caller's certificate and, in RootCAs, the authority that vouches for the head. At
	// a socket it is not needed.
	TLS *tls.Config
	// Led remembers which head led last; nil for what dials only once.
	Led *Led

	within time.Duration // how long the head may take to accept the connection; 0 is greetTime
}

// greetTime is how long a head may take to accept a connection.
const greetTime = 20 * time.Second

// Address splits the name of a head into a network and an address. Those of several heads are a list, too.
func Address(name string) (network, address string, err error) {
	if isList(name) {
		all, err := addresses(name)
		if err != nil {
			return "", "", err
		}
		return "tcp", strings.Join(all, ","), nil
	}
	if path, ok := strings.CutPrefix(name, "unix:"); ok {
		if path == "" || path == "@" {
			return "", "", fmt.Errorf("%q names no socket: write unix:%s, or unix:/PATH", name, DefaultSocket)
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		host, port = strings.Trim(name, "[]"), DefaultPort
	}
	if host == "" || port == "" || strings.ContainsAny(host+port, " /@") {
		return "", "", fmt.Errorf("%q names no head: write HOST, HOST:PORT, or unix:%s", name, DefaultSocket)
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// Dial opens a connection for requests.
func Dial(ctx context.Context, c Config) (net.Conn, error) {
	network, address, err := Address(c.Head)
	if err != nil {
		return nil, err
	}
	if isList(c.Head) {
		return dialAny(ctx, c)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.within, greetTime))
	defer cancel()
	if network == "unix" {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, fmt.Errorf("no head answers at %s: start muster head there, or name another (%w)", address, err)
		}
		if err != nil || !strings.HasPrefix(address, "@") {
			return conn, err // at a path, the folder's permissions decide who may create a socket
		}
		if err := trusted(conn.(*net.UnixConn), os.Getuid()); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("what answers at %s cannot be trusted: %w", address, err)
		}
		return conn, nil
	}
	if c.TLS == nil {
		return nil, fmt.Errorf("the head at %s wants a certificate: muster cert makes one", address)
	}
	config := secure(c.TLS)
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record):
		return nil, fmt.Errorf("what listens there does not speak TLS: is that the port of a head? (%w)", err)
	case err != nil:
		host, _, _ := net.SplitHostPort(address)
		return nil, notDialled{trust.Explain(host, config, err)} // the caller adds which head it was
	}
	return conn, nil
}

// trusted says whether the process at the other end of a socket without a path runs as root or as
// the user who dials. Any process on this machine can take such a name while no head has it. It
// would be sent the scripts and environments of jobs, and an agent that runs as root would execute
// its commands as any user.
func trusted(conn *net.UnixConn, self int) error {
	peer, err := whois.Of(conn)
	if err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != self {
		return fmt.Errorf("it runs as user %d, who is neither root nor you: a head of another user must have a socket with a path (muster head --socket /PATH), in a folder where only that user can make one", peer.Uid)
	}
	return nil
}

// secure allows only a head at the other end.
func secure(given *tls.Config) *tls.Config {
	return trust.Dial(given, identity.IsHead, "http/1.1")
}

// Client returns an HTTP client for the head, and the beginning of its URLs.
func Client(c Config) (*http.Client, string, error) {
	network, address, err := Address(c.Head)
	if err != nil {
		return nil, "", err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	if network == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return Dial(ctx, c) }
		return &http.Client{Transport: transport}, "http://head", nil
	}
	one := c
	if isList(c.Head) {
		one.within = listTime
	}
	transport.DialTLSContext = func(ctx context.Context, _, head string) (net.Conn, error) {
		one := one
		one.Head = head
		return Dial(ctx, one)
	}
	if c.Led == nil {
		c.Led = &Led{}
	}
	base, _, _ := strings.Cut(address, ",") // for whoever shows it: the finder says which head it is
	return &http.Client{Transport: &finder{c, transport}}, "https://" + base, nil
}

// DialAgent opens an agent's session with the head.
func DialAgent(ctx context.Context, c Config) (net.Conn, error) {
	return Upgrade(ctx, c, http.MethodGet, "/v1/agent", ProtocolAgent)
}

// DialStream opens the connection with this name, for which the head has asked the agent.
func DialStream(ctx context.Context, c Config, name string) (net.Conn, error) {
	return Upgrade(ctx, c, http.MethodGet, "/v1/agent/streams/"+url.PathEscape(name), ProtocolStream)
}

// Upgrade sends a request that switches its connection to another protocol.
func Upgrade(ctx context.Context, c Config, method, path, protocol string) (conn net.Conn, err error) {
	if network, _, err := Address(c.Head); err != nil || network == "unix" {
		return upgradeOne(ctx, c, method, path, protocol)
	}
	several := isList(c.Head)
	err = find(ctx, c, func(one Config) (err error) {
		if !several {
			one.within = 0
		}
		conn, err = upgradeOne(ctx, one, method, path, protocol)
		var refused *Refusal
		if err != nil && several && !errors.As(err, &refused) && !errors.As(err, new(*Elsewhere)) {
			return notDialled{err} // what is asked for has not begun: the next head may do it
		}
		return err
	})
	return conn, err
}

func upgradeOne(ctx context.Context, c Config, method, path, protocol string) (net.Conn, error) {
	conn, err := Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(greetTime * 2)) // the head may have to ask an agent first
	upgraded, err := upgrade(conn, method, path, protocol)
	if err != nil {
		_ = conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	if !stop() {
		_ = conn.Close()
		return nil, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	return upgraded, nil
}

// maxRefusal is how many bytes of a refusal are read.
const maxRefusal = 64 << 10

func upgrade(conn net.Conn, method, path, protocol string) (net.Conn, error) {
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: head\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", method, path, protocol); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, &http.Request{Method: method})
	if refused := identity.Refused(err); refused != err {
		return nil, refused
	}
	if err != nil {
		return nil, fmt.Errorf("what answered is no head: %w", err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		defer answer.Body.Close()
		if err := elsewhere(answer); err != nil {
			return nil, err
		}
		return nil, refusal(answer)
	}
	if !strings.EqualFold(answer.Header.Get("Upgrade"), protocol) {
		return nil, fmt.Errorf("the head speaks %q, not %s: use the same version of muster on both", answer.Header.Get("Upgrade"), protocol)
	}
	return Rest(conn, in), nil
}

// Refusal is a head's answer that refuses a request.
type Refusal struct {
	Status int
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// refusal reads why a head refuses.
func refusal(answer *http.Response) error {
	var said struct {
		Error string `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil || json.Unmarshal(text, &said) != nil || said.Error == "" {
		return &Refusal{answer.StatusCode, "the head answered " + answer.Status}
	}
	return &Refusal{answer.StatusCode, said.Error}
}
