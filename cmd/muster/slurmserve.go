package main

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
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/client"
	"muster/node"
	"muster/slurm"
	"muster/wire/grant"
)

// serveFlags are those of muster slurm serve.
type serveFlags struct {
	grant, node, socket string
	wait                time.Duration
}

// newSlurmServe is what the plug-in of Slurm starts for each step of a job on each of its nodes.
func newSlurmServe() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve --grant PATH [--node NAME] [--socket ADDRESS]",
		Short: "Serve the GPUs of a job's step (started by Muster's plug-in of Slurm)",
		Long: `Serve the GPUs of a grant to the programs of a step. Muster's plug-in of Slurm starts it; it
is of no use to people. What belongs into the programs' environment is printed as lines that
the plug-in reads, then "ready". It ends when its standard input does.`,
		Example: "  sbatch --rgpu=1 job.sh",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.grant == "" {
				return usageErrorf("--grant is missing")
			}
			if err := f.serve(c); err != nil {
				fmt.Fprintf(c.OutOrStdout(), "error %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
				return exitStatus(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.grant, "grant", "", "the `file` with the job's grant, or a folder with one for each node")
	c.Flags().StringVar(&f.node, "node", "", "the `name` of this node in Slurm")
	c.Flags().StringVar(&f.socket, "socket", node.DefaultSocket, "the `address` of this node's daemon; %n is the node's name")
	c.Flags().DurationVar(&f.wait, "wait", 10*time.Second, "how long to wait for a grant that is not there yet, and for its nodes, a `time`")
	return c
}

func (f *serveFlags) serve(c *cobra.Command) error {
	// Slurm's signals are for the programs: this process ends after them, with slurmstepd.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, c.InOrStdin())
		cancel(errors.New("the step has ended"))
	}()
	libraries, err := libraryFolder()
	if err != nil {
		return err
	}
	f.socket = strings.ReplaceAll(f.socket, "%n", f.node)
	g, err := f.find(ctx)
	if err != nil {
		return err
	}
	if g == nil {
		fmt.Fprint(c.OutOrStdout(), "set RCUDA_DEVICE_COUNT 0\nready\n")
		return nil
	}
	if err := f.check(ctx, g); err != nil {
		return fmt.Errorf("the job's GPUs: %w", err)
	}
	// A unique name. The peer's user is checked besides.
	socket := "@muster-slurm-" + rand.Text()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "set MUSTER_SOCKET %s\nprepend LD_LIBRARY_PATH %s\n", socket, libraries)
	for _, variable := range g.Environment() {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(out, "set %s %s\n", name, value)
	}
	fmt.Fprintln(out, "ready")
	return client.Serve(ctx, listener, g, f.socket, slog.New(slog.DiscardHandler))
}

// lookForGrant is how often a grant is looked for, or its nodes are asked.
const lookForGrant = 100 * time.Millisecond

// find reads the grant of this node; nil if it was lent nothing. The driver has written it, but a shared file system may show
// it late.
func (f *serveFlags) find(ctx context.Context) (g *grant.Grant, err error) {
	err = f.patiently(ctx, func() (again bool, err error) {
		path := f.path()
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			return false, nil // the job was lent something, and this node nothing of it
		}
		g, err = readGrant(path)
		return errors.Is(err, fs.ErrNotExist), err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the job's grant is not on this node: is its folder shared by all nodes? %w", err)
	}
	return g, err
}

// path is where the grant of this node is: the file, or in a folder the one of the node's name, or
// else the one for all nodes.
func (f *serveFlags) path() string {
	if info, err := os.Stat(f.grant); err != nil || !info.IsDir() {
		return f.grant
	}
	if own := filepath.Join(f.grant, f.node); f.node != "" && filepath.Base(own) == f.node {
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	return filepath.Join(f.grant, "grant")
}

// check asks the grant's nodes what they show. One that does not know the grant yet may just be
// hearing of it.
func (f *serveFlags) check(ctx context.Context, g *grant.Grant) error {
	return f.patiently(ctx, func() (bool, error) {
		err := client.CheckGrant(ctx, g, f.socket)
		return err != nil, err
	})
}

// patiently tries until it is done, or there is no use or time to try again.
func (f *serveFlags) patiently(ctx context.Context, try func() (again bool, err error)) error {
	for end := time.Now().Add(f.wait); ; {
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

// newSlurmCheckOr is what the plug-in asks where a job is submitted.
func newSlurmCheckOr() *cobra.Command {
	return &cobra.Command{
		Use:     "check-or -- OPTIONS...",
		Short:   "Say whether alternatives make sense (started by Muster's plug-in of Slurm)",
		Long:    "Say what is wrong with the values of --muster-or. Muster's plug-in of Slurm starts it; it is of no use to people.",
		Example: "  sbatch --rgpu=4 --muster-or='-n 64 -t 2:00:00' job.sh",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			for _, options := range args {
				if _, err := slurm.ParseAlternative(options); err != nil {
					fmt.Fprintln(c.OutOrStdout(), err)
					return exitStatus(1)
				}
			}
			return nil
		},
	}
}
