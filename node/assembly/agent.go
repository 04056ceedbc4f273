package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"muster/agent"
	"muster/model"
	"muster/node/ask"
	"muster/node/programs"
	"muster/node/settings"
	"muster/wire"
	"muster/wire/dial"
	"muster/wire/grant"
	"muster/wire/status"
	"muster/wire/trust"
)

// serveAgent runs the agent of a node beside its daemon, from when that is ready. When
// the agent cannot go on it calls failed, and end says why. What it has started goes on
// without it.
func serveAgent(cfg settings.Config, peers func([]string), log *slog.Logger, ready <-chan struct{}, failed func()) (end func() error, err error) {
	to, err := headOf(cfg)
	if err != nil {
		return nil, fmt.Errorf("the head (--head): %w", err)
	}
	socket, gateway := cfg.Socket.Address, gatewayOf(cfg)
	if grant.CheckAddress(gateway) != nil {
		gateway = "" // nobody reaches it, as with port 0
	}
	checkpoints := agent.Checkpoints{Dir: cfg.Head.CheckpointDir}
	if checkpoints.Dir != "" {
		criu, err := programs.Find(cmp.Or(cfg.Head.CRIU, os.Getenv("MUSTER_CRIU")))
		if err != nil {
			checkpoints.Trouble = err.Error()
		} else {
			checkpoints.CRIU = criu.Path
		}
	}
	a := agent.Config{
		Checkpoints: checkpoints,
		Node:        cfg.Name, Spool: cfg.Head.Spool, Cores: cfg.Head.Cores, Memory: cfg.Head.Memory,
		Socket: socket, Gateway: gateway, Grants: grantBook{socket}, Peers: peers, Log: log,
		Dial:       func(ctx context.Context) (net.Conn, error) { return dial.DialAgent(ctx, to) },
		DialStream: func(ctx context.Context, stream string) (net.Conn, error) { return dial.DialStream(ctx, to, stream) },
		Configure:  configureAt(socket),
		Status:     func(context.Context) (*status.Node, error) { return ask.Status(socket) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		select {
		case <-ready:
		case <-ctx.Done():
			ended <- nil
			return
		}
		err := agent.Run(ctx, a)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // it was told to end while it waited for something
		}
		if err != nil {
			log.Error("the agent cannot go on, and the node ends with it", "error", err)
			failed()
		}
		ended <- err
	}()
	return func() error { cancel(); return <-ended }, nil
}

// latestPeers hands what the head tells of other nodes to the daemon, which may come to it later: only
// the last word counts.
func latestPeers() (<-chan []string, func([]string)) {
	latest := make(chan []string, 1)
	return latest, func(gateways []string) { // one goroutine calls it
		select {
		case <-latest:
		default:
		}
		latest <- gateways
	}
}

// headOf is where a node's head is, and what the node shows it.
func headOf(cfg settings.Config) (dial.Config, error) {
	to := dial.Config{Head: cfg.Head.Address, Led: &dial.Led{}}
	network, _, err := dial.Address(to.Head)
	if err != nil || network == "unix" {
		return to, err
	}
	r := cfg.Remote
	if r.Cert == "" || r.Key == "" || r.CA == "" {
		return to, errors.New("it wants to see the node's certificate: give --tls-dir with the folder that muster cert made for the node")
	}
	to.TLS, err = trust.Load(r.Cert, r.Key, r.CA) // dial asks for a head
	return to, err
}

// gatewayOf is where other nodes reach this one; "" if they do not.
func gatewayOf(cfg settings.Config) string {
	if cfg.Head.Gateway != "" || cfg.Remote.Listen == "" {
		return cfg.Head.Gateway
	}
	host, port, err := net.SplitHostPort(cfg.Remote.Listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = cfg.Name
	}
	return net.JoinHostPort(host, port)
}

// configureAt has the daemon at a socket serve programs as the head says, for its node's agent.
func configureAt(socket string) func(model.NodeSettings) (model.NodeSettings, error) {
	return func(s model.NodeSettings) (model.NodeSettings, error) {
		is, err := ask.Configure(socket, s)
		var refused *wire.Refused
		switch {
		case errors.Is(err, ask.ErrNoNode):
			err = fmt.Errorf("%w: %w", agent.ErrAway, err)
		case errors.As(err, &refused): // the head says of which node
			err = refused
		}
		return is, err
	}
}

// grantBook is the book of grants of the daemon at a socket, for its node's agent.
type grantBook struct{ socket string }

var _ agent.Grants = grantBook{}

func (n grantBook) Admit(loan grant.Loan) error {
	_, err := ask.AdmitLoan(n.socket, loan, time.Time{})
	if errors.Is(err, ask.ErrNoNode) {
		return fmt.Errorf("%w: %w", agent.ErrAway, err)
	}
	return err
}

func (n grantBook) Revoke(id string) error {
	_, err := ask.RevokeGrant(n.socket, id, "the job has ended")
	if err == nil {
		return nil
	}
	known, asked := ask.Grants(n.socket)
	if asked != nil || slices.ContainsFunc(known.Grants, func(g status.Grant) bool { return g.ID == id }) {
		return err
	}
	return nil // it was revoked before
}

func (n grantBook) Limit(id string, limit int) error {
	_, err := ask.LimitGrant(n.socket, id, limit)
	return err
}
