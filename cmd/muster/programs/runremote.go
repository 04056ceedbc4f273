package programs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/launch"
	"muster/wire/client"
)

// patience is how long a program that begins waits for its node if that is cut off, which was there just
// now: as long as nodes keep the sessions of others unless they say otherwise (connections.resume).
const patience = time.Minute

// runRemotely runs the program on a node elsewhere.
func (f *runFlags) runRemotely(c *cobra.Command, path string, args, environment []string) error {
	if f.socket != "" || f.private || f.wait != 0 {
		return cli.UsageErrorf("--node is instead of --socket, --private and --wait")
	}
	f.elsewhere.Token = os.Getenv("MUSTER_TOKEN") // not a flag: all users of the machine can read command lines
	remote, err := f.elsewhere.Remote()
	if err != nil {
		return err
	}
	if f.elsewhere.Plain {
		fmt.Fprintf(c.ErrOrStderr(), "%s: --plain: the program's data are not encrypted on their way to %s\n", c.CommandPath(), f.elsewhere.Node)
	}
	if err := client.Check(c.Context(), remote); err != nil {
		return err
	}
	remote.Patience = patience
	if f.trips {
		remote.Trips = &client.Trips{}
		defer func() {
			fmt.Fprintf(c.ErrOrStderr(), "%s: round trips to the node: %v\n", c.CommandPath(), remote.Trips)
		}()
	}
	return runServed(c, path, args, launch.FewerCopyThreads(environment, runtime.NumCPU()), launch.Remote, func(ctx context.Context, listener *net.UnixListener) error {
		return client.Relay(ctx, listener, remote, slog.New(slog.DiscardHandler))
	})
}
