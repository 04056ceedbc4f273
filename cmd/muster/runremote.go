package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"muster/client"
	"muster/internal/passthrough"
	"muster/node/nodefile"
)

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
	return runServed(c, path, args, environment, "remote", func(s served) error { return client.Relay(s.ctx, s.listener, remote, s.log) })
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
		address = net.JoinHostPort(f.node, nodefile.GatewayPort)
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
	return client.Secure(address, config, token), nil
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
	return client.Plain(address, token), nil
}
