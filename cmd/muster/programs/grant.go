package programs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/cmd/muster/cli"
	"muster/internal/passthrough"
	"muster/model"
	"muster/node/ask"
	"muster/node/launch"
	"muster/node/nodetable"
	"muster/wire/client"
	"muster/wire/grant"
	"muster/wire/status"
	"muster/wire/trust"

	"github.com/spf13/cobra"
)

const grantHelp = `Give a job GPUs, wherever they are. A grant is a file that names devices of nodes, each
whole or with a share of its memory, and has a secret by which nodes recognise the job's
programs. A head or a batch system makes grants for its jobs; these commands are for
doing so by hand, and for the prologs and epilogs of batch systems.

  make      writes the file
  admit     tells a node of the grant, so that it serves the job's programs
  limit     says how many of its devices on a node the job may use: 0 suspends it
  revoke    ends the grant on a node, with the job's programs there
  list      shows the grants of a node

A device that is granted whole is the job's alone. A share is kept for the job; all its
programs together take no more than that of the device, contexts included, and with
--beyond what is free besides. Programs of the job are started with muster run --grant FILE, and see the devices as 0, 1 and so on,
in the order in which they were given. Whoever has the file can use the devices: keep it
as a key. All but make is for root and the user whose node it is.`

func NewGrant() *cobra.Command {
	c := &cobra.Command{
		Use:     "grant",
		Short:   "Give a job GPUs of this and other nodes",
		Long:    grantHelp,
		Example: "  muster grant make --device gpu1:0 --device gpu2:1:4GiB --address gpu2=gpu2:9421 --authority ca.pem job.grant\n  muster grant admit job.grant",
	}
	c.AddCommand(newGrantMake(), newGrantAdmit(), newGrantLimit(), newGrantRevoke(), newGrantList())
	return c
}

// makeFlags are those of muster grant make.
type makeFlags struct {
	devices, addresses  []string
	user, id, authority string
	limit               int
	reach, beyond       string
	turns               model.Turns
}

func newGrantMake() *cobra.Command {
	var f makeFlags
	c := &cobra.Command{
		Use:   "make --device NODE:NUMBER[:MEMORY]... [--address NODE=HOST:PORT]... [--authority FILE] [--user NAME] [--id ID] [--limit N] [--reach device|node|cluster] [--beyond SIZE] [--class latency|batch] [--weight N] FILE",
		Short: "Write a grant",
		Long: `Write a grant to a file that only you can read. Nodes must be told of it (muster grant
admit) before programs can use it.

Devices of nodes for which --address gives the address of a gateway are borrowed: the
job's programs reach them over the network, and need no certificate of their user. The
node must show one of the authority's, whose ca.pem becomes part of the grant. Devices of
all other nodes are those of the machine where the programs run.

The grant also says how firmly its programs are bound to the devices: how far from them
they may go while that is better (--reach), how much they may use beyond their shares while
it is free (--beyond), and how they take turns with others (--class, --weight).`,
		Example: "  muster grant make --device gpu1:0 job.grant\n  muster grant make --device gpu1:0 --device gpu2:1:4GiB --address gpu2=gpu2.example.org:9421 --authority certs/ca.pem job.grant",
		Args:    cli.OneArgument("the file to write"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.user == "" && c.Flags().Changed("user") {
				return cli.UsageErrorf("--user is empty: give a name, or leave --user out")
			}
			if err := f.turns.Validate(); err != nil {
				return cli.UsageErrorf("%v", err)
			}
			if f.turns.Weight == 0 && c.Flags().Changed("weight") {
				return cli.UsageErrorf("--weight 0: give a number from 1 to 1000, or leave --weight out")
			}
			g, err := f.grant()
			if err != nil {
				return err
			}
			text, err := g.Encode()
			if err != nil {
				return err
			}
			out, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already: remove it to make a new one", args[0])
			}
			if err != nil {
				return err
			}
			_, err = out.Write(text)
			return errors.Join(err, out.Close())
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.devices, "device", nil, "a `device` as NODE:NUMBER, or a share of it as NODE:NUMBER:MEMORY; once for each, in the order in which programs see them")
	flags.StringArrayVar(&f.addresses, "address", nil, "where the gateway of a node of borrowed devices is, as `NODE=HOST:PORT`")
	flags.StringVar(&f.authority, "authority", "", "the `file` ca.pem of the authority that vouches for those nodes")
	flags.StringVar(&f.user, "user", "", "the user whose programs may use it (default: you)")
	flags.StringVar(&f.id, "id", "", "the grant's name on all nodes (default: a new one)")
	flags.IntVar(&f.limit, "limit", grant.AllDevices, "how many of the devices may be used at a time; -1: all")
	flags.StringVar(&f.reach, "reach", model.ReachDevice.String(), "how far from a device its node may bind the programs: `device`, node or cluster")
	flags.StringVar(&f.beyond, "beyond", "", "`memory` that programs may use beyond each share while it is free, or all")
	flags.StringVar(&f.turns.Class, "class", "", "the `class` of the programs, as of muster run: latency or batch (default: as each asks)")
	flags.IntVar(&f.turns.Weight, "weight", 0, "the `weight` of the programs, as of muster run: 1 to 1000 (default: as each asks)")
	return c
}

func (f *makeFlags) grant() (*grant.Grant, error) {
	g := &grant.Grant{ID: f.id, User: f.user, Secret: grant.NewCredential(), Limit: f.limit, Turns: f.turns}
	if g.ID == "" {
		g.ID = "hand-" + strings.ToLower(rand.Text()[:8])
	}
	if g.User == "" {
		who, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("asking for the user's name (give --user): %w", err)
		}
		g.User = who.Username
	}
	addresses := map[string]string{}
	for _, text := range f.addresses {
		name, address, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.UsageErrorf("--address %q: write NODE=HOST:PORT", text)
		}
		addresses[name] = address
	}
	var err error
	if g.Devices, err = f.listed(addresses); err != nil {
		return nil, err
	}
	if f.authority != "" {
		if g.Authority, err = trust.ReadAuthority(f.authority); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// listed are the devices, each with its node's address and the terms of all.
func (f *makeFlags) listed(addresses map[string]string) (devices []grant.Device, err error) {
	reach, err := model.ParseReach(f.reach)
	if err != nil {
		return nil, cli.UsageErrorf("--reach: %v", err)
	}
	beyond := uint64(0)
	if f.beyond != "" {
		if beyond, err = model.ParseBeyond(f.beyond); err != nil {
			return nil, cli.UsageErrorf("--beyond: %v", err)
		}
	}
	shares := 0
	for _, text := range f.devices {
		d, err := grant.ParseDevice(text)
		if err != nil {
			return nil, cli.UsageErrorf("--device: %v", err)
		}
		d.Address, d.Reach = addresses[d.Node], reach
		if d.Memory > 0 {
			d.Beyond = beyond
			shares++
		}
		devices = append(devices, d)
	}
	switch {
	case len(devices) == 0:
		return nil, cli.UsageErrorf("give at least one --device")
	case beyond > 0 && shares == 0:
		return nil, cli.UsageErrorf("--beyond is for shares: give a --device with its memory, as gpu1:0:4GiB, or leave --beyond out")
	}
	return devices, nil
}

// grantFlags are those of commands that ask a node.
type grantFlags struct {
	socket, name string
	json         bool
	limit        int
	expires      time.Duration
	reason       string
}

func (f *grantFlags) common(c *cobra.Command) {
	nodeFlag(c, &f.socket)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
}

func newGrantAdmit() *cobra.Command {
	var f grantFlags
	c := &cobra.Command{
		Use:   "admit FILE [--name NODE] [--limit N] [--expires TIME] [--socket ADDRESS] [--json]",
		Short: "Tell a node of a grant",
		Long: `Tell a node of a grant, as far as it is for devices of that node: it serves the job's
programs from then on, and keeps for them what was granted. Programs that are in the way
go on elsewhere, or wait. A grant that is known already is only given its limit.

A node where the programs run is also told of devices of other nodes, if the grant lets
programs go elsewhere (--reach node or cluster): it has these devices for the job as its
own, and replaces one that is lost. Tell those other nodes first.`,
		Example: "  muster grant admit job.grant\n  muster grant admit job.grant --expires 24h",
		Args:    cli.OneArgument("the file that muster grant make wrote"),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := client.ReadGrant(args[0])
			if err != nil {
				return err
			}
			return f.admit(c, g)
		},
	}
	f.common(c)
	c.Flags().StringVar(&f.name, "name", "", "the `node`'s name in the grant (default: as the node calls itself)")
	c.Flags().IntVar(&f.limit, "limit", grant.AllDevices, "how many of the devices on this node may be used at a time; -1: all, or as the grant says if they are all there")
	c.Flags().DurationVar(&f.expires, "expires", 0, "the grant ends by itself after this `time`; 0: never")
	return c
}

func (f *grantFlags) admit(c *cobra.Command, g *grant.Grant) error {
	name := f.name
	if name == "" {
		s, err := ask.Status(socketOf(f.socket))
		if err != nil {
			return err
		}
		name = s.Node
	}
	devices, home, err := devicesFor(g, name)
	if err != nil {
		return err
	}
	limit := f.limit
	if !c.Flags().Changed("limit") && len(devices) == len(g.Devices) {
		limit = g.Limit
	}
	var expires time.Time
	if f.expires > 0 {
		expires = time.Now().Add(f.expires)
	}
	admit := func() (*status.Grants, error) { return ask.Admit(socketOf(f.socket), g, devices, limit, expires) }
	if home {
		admit = func() (*status.Grants, error) { return ask.AdmitAtHome(socketOf(f.socket), g, limit, expires) }
	}
	answer, err := admit()
	return f.print(c, answer, err)
}

// devicesFor are the devices of a grant that a node is told of: its own, or those for the home, if programs run
// there that borrow devices of others.
func devicesFor(g *grant.Grant, name string) (devices []grant.Device, home bool, err error) {
	devices = g.On(name)
	own := slices.ContainsFunc(g.Devices, func(d grant.Device) bool { return !d.IsBorrowed() })
	switch {
	case len(devices) == 0 && (own || len(g.ForHome()) == 0):
		return nil, false, fmt.Errorf("grant %s has no device of node %s: give the name that the grant has for it (--name)", g.ID, name)
	case len(devices) == len(g.Devices), len(devices) > 0 && devices[0].IsBorrowed():
		return devices, false, nil
	}
	return g.ForHome(), true, nil
}

func newGrantLimit() *cobra.Command {
	var f grantFlags
	c := &cobra.Command{
		Use:   "limit ID N|all [--socket ADDRESS] [--json]",
		Short: "Say how many devices of a node a job may use",
		Long: `Say how many of its devices on a node a job may use at a time, or all (-1). With 0 the
job is suspended there: its programs let their kernels end, leave the devices with all
their memory, and wait. What was granted is free for others meanwhile.`,
		Example: "  muster grant limit 17.1.0 0\n  muster grant limit 17.1.0 all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("give the grant's id, and how many devices it may use")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			limit, err := strconv.Atoi(args[1])
			switch {
			case args[1] == "all":
				limit = grant.AllDevices
			case err != nil:
				return cli.UsageErrorf("%q is no number of devices: give 0 or more, or all", args[1])
			}
			answer, err := ask.LimitGrant(socketOf(f.socket), args[0], limit)
			return f.print(c, answer, err)
		},
	}
	f.common(c)
	return c
}

func newGrantRevoke() *cobra.Command {
	var f grantFlags
	c := &cobra.Command{
		Use:   "revoke ID [--reason TEXT] [--socket ADDRESS]",
		Short: "End a grant on a node",
		Long: `End a grant on a node. The job's programs that use devices there are ended, and are told
why; the grant's secret is refused from then on.`,
		Example: "  muster grant revoke 17.1.0 --reason 'the job has ended'",
		Args:    cli.OneArgument("the grant's id"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := ask.RevokeGrant(socketOf(f.socket), args[0], f.reason)
			return err
		},
	}
	nodeFlag(c, &f.socket)
	c.Flags().StringVar(&f.reason, "reason", "", "what the job's programs are told")
	return c
}

func newGrantList() *cobra.Command {
	var f grantFlags
	c := &cobra.Command{
		Use:     "list [--socket ADDRESS] [--json]",
		Short:   "List the grants of a node",
		Long:    `List the grants that a node knows, with the programs that use them. Secrets are not shown: the node does not have them.`,
		Example: "  muster grant list\n  muster grant list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			answer, err := ask.Grants(socketOf(f.socket))
			return f.print(c, answer, err)
		},
	}
	f.common(c)
	return c
}

// print shows what a node says of grants.
func (f *grantFlags) print(c *cobra.Command, answer *status.Grants, err error) error {
	if err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(c, answer)
	}
	return cli.WriteTable(c.OutOrStdout(), nodetable.Grants(answer))
}

// runGranted runs the program on the devices of a grant.
func (f *runFlags) runGranted(c *cobra.Command, path string, args, environment []string) error {
	if f.elsewhere.Node != "" || f.private {
		return cli.UsageErrorf("--grant is instead of --node and --private: the grant says where the devices are")
	}
	g, err := client.ReadGrant(f.grant)
	if err != nil {
		return err
	}
	local := socketOf(f.socket)
	if f.wait > 0 && slices.ContainsFunc(g.Devices, func(d grant.Device) bool { return !d.IsBorrowed() }) {
		if err := f.findNode(c, local); err != nil {
			return err
		}
	}
	if err := client.CheckGrant(c.Context(), g, local); err != nil {
		return err
	}
	for _, variable := range g.Environment() {
		name, value, _ := strings.Cut(variable, "=")
		environment = passthrough.Set(environment, name, value)
	}
	return runServed(c, path, args, environment, launch.Granted, func(ctx context.Context, listener *net.UnixListener) error {
		return client.Serve(ctx, listener, g, local, slog.New(slog.DiscardHandler))
	})
}
