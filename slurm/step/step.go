// Package step serves the programs of one step of a Slurm job, on one node, the GPUs that the job was
// lent: it finds the node's part of the grant, waits until the nodes that lend know of it, tells
// Muster's plug-in of Slurm what belongs into the programs' environment, and passes the programs' calls
// on. It knows neither the plug-in's process nor Slurm's commands.
package step

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/wire/client"
	"muster/wire/grant"
)

// Step is a step of a job on one node.
type Step struct {
	// Grant is the file with the job's grant, or a folder with one for each node.
	Grant string
	// Node is this node's name in Slurm.
	Node string
	// Socket is that of this node's daemon.
	Socket string
	// Libraries is the folder of Muster's libcuda.so.1.
	Libraries string
	// Wait is how long to wait for a grant that is not there yet, and for its nodes.
	Wait time.Duration
}

// Serve tells the plug-in the programs' environment, as the lines "set NAME VALUE", "prepend NAME VALUE"
// and at last "ready", and then serves the programs until the context is done.
func (s *Step) Serve(ctx context.Context, plugin io.Writer) error {
	g, err := s.find(ctx)
	if err != nil {
		return err
	}
	if g == nil {
		_, err := fmt.Fprint(plugin, "set RCUDA_DEVICE_COUNT 0\nready\n")
		return err
	}
	if err := s.check(ctx, g); err != nil {
		return fmt.Errorf("the job's GPUs: %w", err)
	}
	// A unique name. The peer's user is checked besides.
	socket := "@muster-slurm-" + rand.Text()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "set MUSTER_SOCKET %s\nprepend LD_LIBRARY_PATH %s\n", socket, s.Libraries)
	for _, variable := range g.Environment() {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&lines, "set %s %s\n", name, value)
	}
	lines.WriteString("ready\n")
	if _, err := io.WriteString(plugin, lines.String()); err != nil {
		listener.Close()
		return err
	}
	return client.Serve(ctx, listener, g, s.Socket, slog.New(slog.DiscardHandler))
}

// lookForGrant is how often a grant is looked for, or its nodes are asked.
const lookForGrant = 100 * time.Millisecond

// find reads the grant of this node; nil if it was lent nothing. The driver has written it, but a
// shared file system may show it late.
func (s *Step) find(ctx context.Context) (g *grant.Grant, err error) {
	err = s.patiently(ctx, func() (again bool, err error) {
		path := s.path()
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return false, nil // the job was lent something, and this node nothing of it
		}
		g, err = client.ReadGrant(path)
		return errors.Is(err, fs.ErrNotExist), err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the job's grant is not on this node: is its folder shared by all nodes? %w", err)
	}
	return g, err
}

// path is where the grant of this node is: the file, or in a folder the one of the node's name, or
// else the one for all nodes.
func (s *Step) path() string {
	if info, err := os.Stat(s.Grant); err != nil || !info.IsDir() {
		return s.Grant
	}
	if own := filepath.Join(s.Grant, s.Node); s.Node != "" && filepath.Base(own) == s.Node {
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	return filepath.Join(s.Grant, "grant")
}

// check asks the grant's nodes what they show. One that does not know the grant yet may just be
// hearing of it.
func (s *Step) check(ctx context.Context, g *grant.Grant) error {
	return s.patiently(ctx, func() (bool, error) {
		err := client.CheckGrant(ctx, g, s.Socket)
		return err != nil, err
	})
}

// patiently tries until it is done, or there is no use or time to try again.
func (s *Step) patiently(ctx context.Context, try func() (again bool, err error)) error {
	for end := time.Now().Add(s.Wait); ; {
		again, err := try()
		if err == nil || !again || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookForGrant):
		}
	}
}
