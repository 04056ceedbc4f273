package assembly

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"muster/internal/door"
	"muster/internal/wholefile"
	"muster/node/gateway"
	"muster/node/settings"
	"muster/wire/borrow"
	"muster/wire/client"
	"muster/wire/trust"
)

// RemoteIn returns where the files are in a folder that muster cert made for the node.
func RemoteIn(dir string, r settings.Remote) settings.Remote {
	r.Cert, r.Key, r.CA = filepath.Join(dir, gateway.FileNode), filepath.Join(dir, gateway.FileNodeKey), filepath.Join(dir, client.FileCA)
	return r
}

// openGateway opens the port for programs on other machines, which come in through
// the daemon's socket once the gateway serves.
func openGateway(cfg settings.Config, elements *elements, peers *peerBook, log *slog.Logger) (*gateway.Gateway, error) {
	r, limits := cfg.Remote, cfg.Connections
	config, err := nodeTLS(r)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", r.Listen)
	if err != nil {
		return nil, door.PortTrouble(r.Listen, err)
	}
	elements.listening = listener.Addr()
	g, err := gateway.New(listener.(*net.TCPListener), gateway.Config{
		Socket: cfg.Socket.Address, TLS: config, Token: r.Token, Plain: r.Plain, Grants: cfg.Grants == settings.GrantsRequired, Log: log,
		Nodes: elements.peers(), Peer: peers.find,
		Limits: gateway.Limits{
			Unknown: limits.Unknown, All: limits.Remote, User: limits.User,
			Greet: limits.Greet, Idle: limits.Idle, Silence: limits.Silence, Keep: keepOf(limits.Resume),
		},
	})
	if err != nil {
		listener.Close()
		return nil, err
	}
	if r.Plain {
		log.Warn("programs may come without TLS (plain): who can listen on the network sees their data, and who can change packets can take them over", "address", listener.Addr().String())
	}
	log.Info("programs on other machines are served", "address", listener.Addr().String())
	return g, nil
}

// keepOf is how long the gateway keeps sessions, for which 0 stands for the default.
func keepOf(resume time.Duration) time.Duration {
	if resume == 0 {
		return -1
	}
	return resume
}

// peerBook has the gateways of other nodes that the configuration names, or the head: those, and no
// others, this node connects to when a guest says that its data are there.
type peerBook struct {
	named  []string
	lookup func(ctx context.Context, host string) ([]string, error) // the addresses of a machine

	mu     sync.Mutex
	told   []string // by the head
	looked map[string]lookedUp
}

// lookedUp is where a machine was when the book looked.
type lookedUp struct {
	at   time.Time
	here []string
}

// lookAgain is how long the book believes what it has looked up, and maxLooked how many machines it
// remembers: guests name them.
const lookAgain, maxLooked = time.Minute, 4096

func newPeerBook(named []string) *peerBook {
	return &peerBook{named: named, lookup: net.DefaultResolver.LookupHost}
}

// tell notes what the head says.
func (b *peerBook) tell(gateways []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = slices.Clone(gateways)
}

// find finds the peer that a guest means by an address, and returns how this node writes it. Another
// spelling counts if it is the same port of the same machine. This node connects to its own spelling
// only, so a guest cannot send it anywhere else.
func (b *peerBook) find(ctx context.Context, address string) (as string, is bool) {
	b.mu.Lock()
	all := slices.Concat(b.named, b.told)
	b.mu.Unlock()
	if slices.Contains(all, address) {
		return address, true
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", false
	}
	var meant []string
	for _, peer := range all {
		other, at, err := net.SplitHostPort(peer)
		if err != nil || at != port {
			continue
		}
		if meant == nil {
			if meant = b.placesOf(ctx, host); len(meant) == 0 {
				return "", false
			}
		}
		if slices.ContainsFunc(b.placesOf(ctx, other), func(place string) bool { return slices.Contains(meant, place) }) {
			return peer, true
		}
	}
	return "", false
}

// placesOf are the addresses of a machine; none if it is not known.
func (b *peerBook) placesOf(ctx context.Context, host string) []string {
	b.mu.Lock()
	known, ok := b.looked[host]
	b.mu.Unlock()
	if ok && time.Since(known.at) < lookAgain {
		return known.here
	}
	here, err := b.lookup(ctx, host)
	if err != nil {
		here = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looked == nil || len(b.looked) >= maxLooked {
		b.looked = map[string]lookedUp{}
	}
	b.looked[host] = lookedUp{time.Now(), here}
	return here
}

// nodeTLS is what a node has for TLS; nil if it has nothing, and needs nothing.
func nodeTLS(r settings.Remote) (*tls.Config, error) {
	if r.Cert == "" || r.Key == "" {
		if r.Plain && r.Cert+r.Key+r.CA == "" {
			return nil, nil
		}
		return nil, errors.New("the node has no certificate: give tls.cert and tls.key, or --tls-dir with the folder that muster cert made for it")
	}
	config, err := trust.Load(r.Cert, r.Key, r.CA)
	if err != nil {
		if wrong := wrongFolder(filepath.Dir(r.Cert)); wrong != nil && errors.Is(err, fs.ErrNotExist) {
			return nil, wrong
		}
		return nil, err
	}
	return config, nil
}

// peerDialler is how a node connects to the gateways of others, to which it shows its certificate;
// nil if it borrows from none.
func peerDialler(cfg settings.Config) (dial func(context.Context, string) (net.Conn, error), authority string, err error) {
	r := cfg.Remote
	if len(cfg.Offload.Peers) == 0 && !cfg.Offload.Head || cfg.Offload.Mode == settings.OffloadOff {
		return nil, "", nil
	}
	if r.Cert == "" || r.Key == "" || r.CA == "" {
		return nil, "", errors.New("nodes know each other by their certificates: give tls.cert, tls.key and tls.ca, or --tls-dir with the folder that muster cert made for this node")
	}
	if dial, err = nodeDialler(r, borrow.Protocol); err != nil {
		return nil, "", err
	}
	vouches, err := peerAuthority.ReadFile(r.CA)
	return dial, string(vouches), err
}

// nodeDialler is how a node connects to the gateways of other nodes, for what only nodes may have.
func nodeDialler(r settings.Remote, protocol string) (func(context.Context, string) (net.Conn, error), error) {
	own, err := nodeTLS(r)
	if err != nil {
		return nil, err
	}
	config := trust.Dial(own, trust.Node, protocol)
	return func(ctx context.Context, address string) (net.Conn, error) {
		return client.Dialler(address, config)(ctx)
	}, nil
}

// peerAuthority is small, since each worker is told: it is one authority, or a few.
var peerAuthority = wholefile.Limit{Bytes: 16 << 10, Remedy: "name a file with the authority of the nodes alone (tls.ca)"}

// wrongFolder says to whom the folder belongs that was given as a node's; nil if it is not known to
// be another's.
func wrongFolder(dir string) error {
	for _, f := range []struct{ file, whose string }{{client.FileUser, "a user's folder"}, {gateway.FileCAKey, "the authority's folder"}} {
		if _, err := os.Stat(filepath.Join(dir, f.file)); err == nil {
			return fmt.Errorf("%s is %s: give the node's, which muster cert made as node-HOST", dir, f.whose)
		}
	}
	return nil
}

// serveGateway lets programs on other machines in until stop is called.
func serveGateway(g *gateway.Gateway) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
