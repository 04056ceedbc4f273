// Package assembly puts a node together and runs it: the daemon, the devices that its configuration
// names or its machine has, the gateway for programs on other machines, the part of programs with
// elements, what it borrows from its peers, and the agent of a cluster's head.
//
// Each of these parts knows its own task only. What they are to each other is said here and nowhere
// else: who is told where the gateway listens, who shows which certificate to whom, what ends with
// what. The package knows no command line.
package assembly

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"muster/device"
	"muster/internal/machine"
	"muster/ivm/proto"
	"muster/node"
	"muster/node/devices"
	"muster/node/requests"
	"muster/node/settings"
	"muster/wire/control"
	"muster/wire/status"
	"muster/wire/trust"
)

// Complete puts into a configuration what only the machine knows: its name, how much memory programs
// may be swapped to, and its devices. note says which devices were chosen without being asked for.
func Complete(cfg *settings.Config) (note string, err error) {
	if cfg.Name == "" {
		if cfg.Name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("asking for the host's name (give --name): %w", err)
		}
	}
	if cfg.Swap.Size == 0 {
		memory, err := machine.Memory()
		if err != nil {
			return "", err
		}
		cfg.Swap.Size = memory / 2
	}
	cfg.Devices, note, err = devices.Complete(cfg.Devices, inCluster(cfg))
	return note, err
}

// inCluster says whether programs of this node find GPUs on others.
func inCluster(cfg *settings.Config) bool {
	return cfg.Head.Address != "" || len(cfg.Offload.Peers) > 0 || cfg.Offload.Head
}

// Options are what the process that is a node hands it.
type Options struct {
	Log *slog.Logger
	// WorkerCommand starts a worker, which finds its connection at descriptor 3.
	WorkerCommand []string
	// ConfigFile is what the configuration was read from; "" if that was no file.
	ConfigFile string
	// Version is the program's, for recordings.
	Version string
	// Kill, Handover, Reload and Load are those of node.Options.
	Kill, Handover, Reload <-chan struct{}
	Load                   func() (settings.Config, error)
	// Ready is called when programs can connect; may be nil.
	Ready func()
}

// Run runs a node until the context is done. The configuration must be complete (see Complete).
func Run(ctx context.Context, cfg settings.Config, o Options) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready := make(chan struct{})
	tokens := &tokens{log: o.Log}
	if cfg.Remote.Token != "" {
		tokens.look(o.ConfigFile)
	}
	opts := node.Options{
		Open: func(d control.DeviceConfig) (device.Device, error) {
			tokens.look(d.Lender.Token)
			return devices.Open(d, nil)
		},
		Needs:         devices.Needs,
		WorkerCommand: o.WorkerCommand,
		Log:           o.Log, Now: time.Now, Version: o.Version,
		Kill: o.Kill, Handover: o.Handover, Reload: o.Reload, Load: o.Load,
		Ready: func() {
			close(ready)
			if o.Ready != nil {
				o.Ready()
			}
		},
	}
	elements, err := newElements(cfg, o.Log)
	if err != nil {
		return err
	}
	opts.Services = map[string]requests.Service{proto.Request: elements.service()}
	known := newPeerBook(cfg.Offload.Peers)
	var served *tls.Config // the gateway's
	if cfg.Remote.Listen != "" {
		// The gateway lives as long as the daemon, which ends its clients as it ends others.
		g, err := openGateway(cfg, elements, known, o.Log)
		if err != nil {
			return fmt.Errorf("programs on other machines cannot be served: %w", err)
		}
		opts.Gateway, opts.Checks = os.Getpid(), []node.Check{{Part: "gateway", Trouble: g.Trouble}}
		opts.Parcels = func() (p status.Parcels) {
			p.Given, p.Fetched = g.Parcels()
			return p
		}
		opts.Sessions = func() (s status.Sessions) {
			s.Cut, s.Resumed, s.Kept = g.Sessions()
			return s
		}
		opts.Cut = g.Cut
		defer serveGateway(g)()
		served = g.TLS
	}
	list, err := listCheck(cfg, served)
	if err != nil {
		return err
	}
	opts.Checks = append(opts.Checks, list)
	if opts.DialPeer, opts.Authority, err = peerDialler(cfg); err != nil {
		return fmt.Errorf("the node's peers cannot be asked: %w", err)
	}
	if opts.DialPeer != nil {
		if opts.Revoked, err = filepath.Abs(trust.ListBeside(cfg.Remote.CA)); err != nil {
			return err
		}
	}
	if cfg.Head.Address != "" {
		opts.Agent = true
		var peers func([]string)
		if cfg.Offload.Head {
			latest, daemon := latestPeers()
			opts.Peers, peers = latest, func(gateways []string) {
				known.tell(gateways)
				daemon(gateways)
			}
		}
		end, wrong := serveAgent(cfg, peers, o.Log, ready, stop)
		if wrong != nil {
			return wrong
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	return node.Run(ctx, cfg, opts)
}

// listCheck asks whether the list of revoked certificates can be used: the one of the gateway's TLS,
// or else, in a node that has no gateway, the one beside the authority.
func listCheck(cfg settings.Config, own *tls.Config) (node.Check, error) {
	if own == nil && cfg.Remote.CA != "" {
		var err error
		if own, err = trust.Believe(cfg.Remote.CA); err != nil {
			return node.Check{}, fmt.Errorf("the authority of certificates (tls.ca): %w", err)
		}
	}
	return node.Check{Part: "certificates", Trouble: func() error {
		if broken := trust.ListTrouble(own); broken != nil {
			return broken
		}
		return nil
	}}, nil
}
