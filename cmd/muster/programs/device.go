package programs

import (
	"fmt"
	"io"
	"strconv"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/internal/units"
	"muster/node/ask"
	"muster/node/devices"
	"muster/node/nodefile"
	"muster/node/nodetable"
	"muster/wire/status"

	"github.com/spf13/cobra"
)

const deviceHelp = `Say which devices a node has, while programs run on it. Only root and the user whose
node it is may do that; everybody may list them.

A device is named by its name or by its number, as #0. A device that is drained takes
no programs any more, and those on it go on elsewhere, or wait: none of them fails. One
that is removed is drained first; its number is kept, and it may come back. A device
that is added is used at once, by programs that run already too.

What is said here holds until the node ends. Its configuration says what it has when it
starts; SIGHUP has it read again.`

// deviceFlags are the flags of the commands about devices.
type deviceFlags struct {
	socket        string
	json          bool
	noWait, force bool
	reserve       string
}

func NewDevice() *cobra.Command {
	c := &cobra.Command{
		Use:     "device",
		Short:   "Add, drain and remove devices of a node",
		Long:    deviceHelp,
		Example: "  muster device list\n  muster device drain '#0'\n  muster device add soft:memory=1GiB,name=fast1",
	}
	c.AddCommand(newDeviceList(), newDeviceDrain(), newDeviceResume(), newDeviceRemove(), newDeviceAdd())
	return c
}

func newDeviceList() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "list [--socket ADDRESS] [--json]",
		Short: "List the devices of a node, and those that were removed",
		Long: `List the devices of a node as muster devices does, and those that were removed too:
their numbers are kept, and muster device resume brings them back.`,
		Example: "  muster device list\n  muster device list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := ask.Status(socketOf(f.socket))
			if err != nil {
				return err
			}
			if f.json {
				return cli.PrintJSON(c, status.DevicesOf(s, true))
			}
			printProblems(c.ErrOrStderr(), s)
			return nodetable.WriteDevices(c.OutOrStdout(), s, true, screen.Columns(c.OutOrStdout()))
		},
	}
	f.common(c)
	return c
}

// common are the flags that all have.
func (f *deviceFlags) common(c *cobra.Command) {
	nodeFlag(c, &f.socket)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
}

func newDeviceDrain() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "drain DEVICE [--no-wait] [--socket ADDRESS] [--json]",
		Short: "Let a device take no programs any more",
		Long: `Let a device take no programs any more. Those on it let their kernels end, leave with
all their memory, and go on on another device; if there is none, they wait. None of them
fails. The command returns when nobody is there any more; interrupted before, it leaves
the device as it is: it empties all the same.`,
		Example:           "  muster device drain 'Muster software GPU'\n  muster device drain '#0' --no-wait",
		Args:              cli.OneArgument("a device, by its name or as #0"),
		ValidArgsFunction: completeDevice(&f.socket),
		RunE: func(c *cobra.Command, args []string) error {
			changed, err := ask.DrainDevice(socketOf(f.socket), args[0])
			return f.finish(c, changed, err, "drained")
		},
	}
	f.common(c)
	c.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait until nobody is there any more")
	return c
}

func newDeviceResume() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "resume DEVICE [--socket ADDRESS] [--json]",
		Short: "Let a device take programs again",
		Long: `Let a device take programs again: one that was drained, one that is about to be
removed, or one that was lost or removed and is back. Programs that wait for it go on.`,
		Example:           "  muster device resume '#0'",
		Args:              cli.OneArgument("a device, by its name or as #0"),
		ValidArgsFunction: completeDevice(&f.socket),
		RunE: func(c *cobra.Command, args []string) error {
			changed, err := ask.ResumeDevice(socketOf(f.socket), args[0])
			return f.finish(c, changed, err, "")
		},
	}
	f.common(c)
	return c
}

func newDeviceRemove() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "remove DEVICE [--force] [--no-wait] [--socket ADDRESS] [--json]",
		Short: "Remove a device when nobody needs it any more",
		Long: `Remove a device from the node. It is drained first. Then it is removed as soon as no
program waits for it that can use no other: one whose memory fits nowhere else, or whose
variables have their addresses there only. With --force it is removed although some do;
those are told that there is no device for them. The command returns when the device is
removed.

The number is kept. muster device resume brings the device back, and muster device add
another one in its place.`,
		Example:           "  muster device remove '#1'",
		Args:              cli.OneArgument("a device, by its name or as #0"),
		ValidArgsFunction: completeDevice(&f.socket),
		RunE: func(c *cobra.Command, args []string) error {
			changed, err := ask.RemoveDevice(socketOf(f.socket), args[0], f.force)
			return f.finish(c, changed, err, "removed")
		},
	}
	f.common(c)
	c.Flags().BoolVar(&f.force, "force", false, "remove it although programs wait for it that can use no other")
	c.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait until it is removed")
	return c
}

func newDeviceAdd() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "add DEVICES [--reserve SIZE] [--socket ADDRESS] [--json]",
		Short: "Add devices to a node",
		Long: `Add devices to a node, described as muster node --devices describes them. They are
opened and checked; then programs use them at once, those that run already too. A device
must be able to do what programs that run now were told; if it is of an older kind, it
can be added when they have ended.

A device has the number of one of its name that was removed or lost, if there is one. A
node has at most 16 devices at a time.`,
		Example: "  muster device add soft:memory=1GiB,name=fast1\n  muster device add cuda:1 --reserve 1GiB",
		Args:    cli.OneArgument("devices, as soft:memory=256M,name=fast1 or cuda:0"),
		RunE:    func(c *cobra.Command, args []string) error { return f.add(c, args[0]) },
	}
	f.common(c)
	c.Flags().StringVar(&f.reserve, "reserve", "", "memory of each that Muster leaves alone, as 1GiB")
	return c
}

func (f *deviceFlags) add(c *cobra.Command, text string) error {
	named, err := nodefile.Devices(text)
	if err != nil {
		return cli.UsageErrorf("%v", err)
	}
	if f.reserve != "" {
		size, err := units.ParseSize(f.reserve)
		if err != nil {
			return cli.UsageErrorf("--reserve: %v", err)
		}
		for i := range named {
			named[i].Reserve = uint64(size)
		}
	}
	all, _, err := devices.Complete(named, false)
	if err != nil {
		return err
	}
	changed := []status.Changed{}
	for _, d := range all {
		one, err := ask.AddDevice(socketOf(f.socket), d)
		if err != nil {
			return err
		}
		changed = append(changed, *one)
		if !f.json {
			printChanged(c.OutOrStdout(), one)
		}
	}
	if f.json {
		return cli.PrintJSON(c, struct {
			Added []status.Changed `json:"added"`
		}{changed})
	}
	return nil
}

// finish waits until a device is in a state, if one is given, and says how it is.
func (f *deviceFlags) finish(c *cobra.Command, changed *status.Changed, err error, state string) error {
	if err == nil && state != "" && !f.noWait {
		err = ask.AwaitDevice(c.ErrOrStderr(), socketOf(f.socket), changed, state)
	}
	if err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(c, changed)
	}
	printChanged(c.OutOrStdout(), changed)
	return nil
}

// printChanged says how a device is now.
func printChanged(w io.Writer, c *status.Changed) {
	fmt.Fprintf(w, "device #%d (%s) is %s\n", *c.Number, c.Device.Name, nodetable.State(c.Device))
}

func NewMove() *cobra.Command {
	var f deviceFlags
	c := &cobra.Command{
		Use:   "move CLIENT DEVICE [--socket ADDRESS] [--json]",
		Short: "Have a program go on on another device",
		Long: `Have a client of a node, as muster ps lists them, go on on another device. It lets its
kernels end, leaves with all its memory, and runs there from its next kernel on; it
waits if there is no room. It stays there until it has to make room for others. The
client's user, the user whose node it is and root may do that.`,
		Example: "  muster move 3 fast0\n  muster move 3 '#1'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("give a client, as muster ps lists them, and a device")
			}
			return nil
		},
		ValidArgsFunction: completeMove(&f.socket),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := clientNumber(args[0])
			if err != nil {
				return err
			}
			changed, err := ask.MoveClient(socketOf(f.socket), id, args[1])
			if err != nil {
				return err
			}
			if f.json {
				return cli.PrintJSON(c, changed)
			}
			fmt.Fprintf(c.OutOrStdout(), "client %d is to run on device #%d (%s)\n", id, *changed.Number, changed.Device.Name)
			return nil
		},
	}
	f.common(c)
	return c
}

// clientNumber reads the number of a client.
func clientNumber(arg string) (uint64, error) {
	id, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0, cli.UsageErrorf("%q is no client: give its number, as muster ps lists it", arg)
	}
	return id, nil
}

func NewKill() *cobra.Command {
	var f deviceFlags
	var reason string
	c := &cobra.Command{
		Use:   "kill CLIENT... [--reason TEXT] [--socket ADDRESS] [--json]",
		Short: "End what a program has on a node",
		Long: `End clients of a node, as muster ps lists them: their kernels are stopped, and their
memory is given back. Their programs are told why, and their next CUDA call fails; the
processes themselves are their users'. The client's user, the user whose node it is and
root may do that. To end a job, use muster cancel.`,
		Example: "  muster kill 3\n  muster kill 3 7 --reason 'the GPU is needed for the demo'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageErrorf("give a client, as muster ps lists them")
			}
			return nil
		},
		ValidArgsFunction: completeMove(&f.socket),
		RunE: func(c *cobra.Command, args []string) error {
			var ended []*status.Changed
			var ids []uint64
			for _, arg := range args {
				id, err := clientNumber(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			for _, id := range ids {
				changed, err := ask.EndClient(socketOf(f.socket), id, reason)
				if err != nil {
					return err
				}
				ended = append(ended, changed)
				if !f.json {
					fmt.Fprintf(c.OutOrStdout(), "client %d (%s of user %s) is ended\n", id, changed.Client.Program, changed.Client.User)
				}
			}
			if f.json {
				return cli.PrintJSON(c, ended)
			}
			return nil
		},
	}
	f.common(c)
	c.Flags().StringVar(&reason, "reason", "", "a `text` for the program's user")
	return c
}

// --- completion ----------------------------------------------------------------

// completeDevice completes the one device that a command takes.
func completeDevice(socket *string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return deviceNames(*socket), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMove completes a client, then a device.
func completeMove(socket *string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var words []string
		switch len(args) {
		case 0:
			if s, err := ask.Status(socketOf(*socket)); err == nil {
				for _, c := range s.Clients {
					words = append(words, fmt.Sprintf("%d\t%s of %s", c.ID, c.Program, c.User))
				}
			}
		case 1:
			words = deviceNames(*socket)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// deviceNames are the words for devices: names, and numbers where a name stands for
// several.
func deviceNames(socket string) []string {
	s, err := ask.Status(socketOf(socket))
	if err != nil {
		return nil
	}
	count := map[string]int{}
	for _, d := range s.Devices {
		count[d.Name]++
	}
	var words []string
	for i, d := range s.Devices {
		word := d.Name
		if count[d.Name] > 1 {
			word = fmt.Sprintf("#%d", i)
		}
		words = append(words, fmt.Sprintf("%s\t%s, %s of memory, %s", word, d.Name, units.BriefSize(d.Memory), d.State))
	}
	return words
}
