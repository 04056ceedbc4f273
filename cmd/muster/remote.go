package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"muster/client"
	"muster/internal/door"
	"muster/internal/passthrough"
	"muster/internal/wholefile"
	"muster/node"
	"muster/node/gateway"
	"muster/node/nodefile"
	"muster/wire"
	"muster/wire/borrow"
)

// gatewayPort is where nodes listen for programs on other machines, unless they
// are told otherwise.
const gatewayPort = nodefile.GatewayPort

// remoteIn returns where the files are in a folder that muster cert made.
func remoteIn(dir string, r node.Remote) node.Remote {
	r.Cert, r.Key, r.CA = filepath.Join(dir, gateway.FileNode), filepath.Join(dir, gateway.FileNodeKey), filepath.Join(dir, client.FileCA)
	return r
}

// openGateway opens the port for programs on other machines, which come in through
// the daemon's socket once the gateway serves.
func openGateway(cfg node.Config, elements *elements, peers *peerBook, log *slog.Logger) (*gateway.Gateway, error) {
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
		Socket: cfg.Socket.Address, TLS: config, Token: r.Token, Plain: r.Plain, Grants: cfg.Grants == node.GrantsRequired, Log: log,
		Nodes: elements.peers(), Peer: peers.has,
		Limits: gateway.Limits{
			Unknown: limits.Unknown, All: limits.Remote, User: limits.User,
			Greet: limits.Greet, Idle: limits.Idle, Silence: limits.Silence,
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

// peerBook has the gateways of other nodes that the configuration names, or the head: those, and no
// others, this node connects to when a guest says that its data are there.
type peerBook struct {
	named []string

	mu   sync.Mutex
	told []string // by the head
}

// tell notes what the head says.
func (b *peerBook) tell(gateways []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = slices.Clone(gateways)
}

func (b *peerBook) has(address string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.named, address) || slices.Contains(b.told, address)
}

// nodeTLS is what a node has for TLS; nil if it has nothing, and needs nothing.
func nodeTLS(r node.Remote) (*tls.Config, error) {
	if r.Cert == "" || r.Key == "" {
		if r.Plain && r.Cert+r.Key+r.CA == "" {
			return nil, nil
		}
		return nil, errors.New("the node has no certificate: give tls.cert and tls.key, or --tls-dir with the folder that muster cert made for it")
	}
	config, err := gateway.LoadTLS(r.Cert, r.Key, r.CA)
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
func peerDialler(cfg node.Config) (dial func(context.Context, string) (net.Conn, error), authority string, err error) {
	r := cfg.Remote
	if len(cfg.Offload.Peers) == 0 && !cfg.Offload.Head || cfg.Offload.Mode == node.OffloadOff {
		return nil, "", nil
	}
	if r.Cert == "" || r.Key == "" || r.CA == "" {
		return nil, "", errors.New("nodes know each other by their certificates: give tls.cert, tls.key and tls.ca, or --tls-dir with the folder that muster cert made for this node")
	}
	own, err := nodeTLS(r)
	if err != nil {
		return nil, "", err
	}
	vouches, err := peerAuthority.ReadFile(r.CA)
	if err != nil {
		return nil, "", err
	}
	config := &tls.Config{Certificates: own.Certificates, RootCAs: own.ClientCAs, MinVersion: tls.VersionTLS13, NextProtos: []string{borrow.Protocol}}
	dial = func(ctx context.Context, address string) (net.Conn, error) {
		return client.Dialler(address, config)(ctx)
	}
	return dial, string(vouches), nil
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

// runRemotely runs the program on a node elsewhere.
func (f *runFlags) runRemotely(c *cobra.Command, path string, args, environment []string) error {
	if f.socket != "" || f.private || f.wait != 0 {
		return usageErrorf("--node is instead of --socket, --private and --wait")
	}
	remote, err := f.remote()
	if err != nil {
		return err
	}
	if f.plain {
		fmt.Fprintf(c.ErrOrStderr(), "%s: --plain: the program's data are not encrypted on their way to %s\n", c.CommandPath(), f.node)
	}
	if err := client.Check(c.Context(), remote); err != nil {
		return err
	}
	if f.trips {
		remote.Trips = &client.Trips{}
		defer func() {
			fmt.Fprintf(c.ErrOrStderr(), "%s: round trips to the node: %v\n", c.CommandPath(), remote.Trips)
		}()
	}
	return runServed(c, path, args, fewerCopyThreads(environment), "remote", func(s served) error { return client.Relay(s.ctx, s.listener, remote, s.log) })
}

// copyThreads is how many threads help a program with copies if its node is another machine: more
// would copy faster than the network carries, and take the processors on which the relay encrypts.
const copyThreads = 2

// fewerCopyThreads limits these threads, unless the user says how many there are to be.
func fewerCopyThreads(environment []string) []string {
	const name = "MUSTER_COPY_THREADS"
	if os.Getenv(name) != "" || runtime.NumCPU()/2-1 <= copyThreads {
		return environment
	}
	return passthrough.Set(environment, name, strconv.Itoa(copyThreads))
}

// served is what a program is served with by this process.
type served struct {
	ctx      context.Context
	listener *net.UnixListener
	log      *slog.Logger
}

// runServed runs a program that finds, at a socket of its own, what serve makes of it.
func runServed(c *cobra.Command, path string, args, environment []string, kind string, serve func(served) error) error {
	socket := fmt.Sprintf("@muster-%s-%d-%s", kind, os.Getpid(), rand.Text()[:8])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listening for the program: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(served{ctx, listener, slog.New(slog.DiscardHandler)}) }()
	state, err := passthrough.Run(path, args, passthrough.Set(environment, "MUSTER_SOCKET", socket))
	cancel()
	<-done
	return exitAs(c, state, err)
}

// remote is the node that the flags name. The token must not be on command lines, which all users
// of the machine can read.
func (f *runFlags) remote() (client.Remote, error) {
	address := f.node
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(f.node, gatewayPort)
	}
	if f.plain {
		return f.plainRemote(address)
	}
	if f.tlsDir == "" {
		return client.Remote{}, usageErrorf("--node needs --tls-dir, the folder that muster cert made for you; or --plain, if the node takes programs without TLS")
	}
	config, err := client.LoadTLS(f.tlsDir)
	if err != nil {
		return client.Remote{}, err
	}
	token := os.Getenv("MUSTER_TOKEN")
	if len(config.Certificates) == 0 && token == "" {
		return client.Remote{}, errors.New("there is no certificate in " + f.tlsDir + " and no token in $MUSTER_TOKEN: one of them must say who you are")
	}
	return client.Remote{Dial: client.Dialler(address, config), Lane: client.LaneDialler(address, config), Token: token}, nil
}

// plainRemote is the node without TLS. The token itself does not travel.
func (f *runFlags) plainRemote(address string) (client.Remote, error) {
	token := os.Getenv("MUSTER_TOKEN")
	switch {
	case f.tlsDir != "":
		return client.Remote{}, usageErrorf("--plain is instead of --tls-dir")
	case token == "":
		return client.Remote{}, errors.New("--plain needs the node's token in $MUSTER_TOKEN: it says who you are")
	}
	return client.Remote{Dial: client.PlainDialler(address, wire.PlainStream, token), Lane: client.PlainDialler(address, wire.PlainLane, token)}, nil
}
