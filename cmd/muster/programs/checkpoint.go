package programs

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/units"
	"muster/node/checkpoint"
	"muster/node/programs"
)

// checkpointFlags are the flags of muster checkpoint.
type checkpointFlags struct {
	socket, criu string
	program      int
	every        time.Duration
	stop, asJSON bool
	holding      time.Duration
}

const checkpointHelp = `Save a program, so that it can go on from there later.

With CLIENT, a number that muster ps shows, the GPU's side of that client is saved:
its device memory, modules, streams and events. The program goes on meanwhile.
muster restore DIR puts all of that back into the same program, also after a fault has
ended its work on the GPU.

With --program, a process and all that descend from it are saved as well, with CRIU,
and muster restore DIR starts the program again where it was: after everything was
killed, on a node that was started anew, or on another machine. That needs root, and
CRIU 4.2 or newer (--criu, $MUSTER_CRIU; scripts/get-criu gets one). What CRIU cannot
save it says, and the program goes on unharmed. Words behind -- are given to CRIU.

DIR is a folder of the checkpoint's own, made if it is not there. It has the last
checkpoint until the new one is complete. A checkpoint waits for kernels that run;
Ctrl-C gives it up, and the program goes on.`

func NewCheckpoint() *cobra.Command {
	var f checkpointFlags
	c := &cobra.Command{
		Use: `checkpoint [--socket ADDRESS] [--every TIME] [--json] CLIENT DIR
  muster checkpoint --program PID [--stop] [--criu FILE] [--every TIME] [--json] DIR [-- OPTION...]`,
		Short: "Save a program's state in a folder",
		Long:  checkpointHelp,
		Example: `  muster checkpoint 3 /scratch/run1
  muster checkpoint --program 4711 --every 10m /scratch/run1
  muster checkpoint --program 4711 /scratch/run1 -- --tcp-established`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	nodeFlag(c, &f.socket)
	flags := c.Flags()
	flags.IntVar(&f.program, "program", 0, "save this process and all that descend from it, too")
	flags.BoolVar(&f.stop, "stop", false, "end the program when it was saved")
	flags.DurationVar(&f.every, "every", 0, "save it again each time that this has passed, until it ends")
	flags.StringVar(&f.criu, "criu", "", "the CRIU to use (default: $MUSTER_CRIU, or criu)")
	flags.DurationVar(&f.holding, "patience", time.Minute, "how long to wait for functions of the program's that streams call")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON document for each checkpoint")
	return c
}

func (f *checkpointFlags) run(c *cobra.Command, args []string) error {
	words, options := atDash(c, args)
	var once func(context.Context) error
	gone := func() bool { return programs.ProcessGone(f.program) }
	switch {
	case c.Flags().Changed("program") && len(words) != 1:
		return cli.UsageErrorf("give --program and the folder, or a client's number and the folder")
	case c.Flags().Changed("program") && f.program <= 0:
		return cli.UsageErrorf("--program %d: give the number of a process", f.program)
	case c.Flags().Changed("program"):
		once = func(ctx context.Context) error { return f.saveProgram(ctx, c, words[0], options) }
	case len(words) != 2:
		return cli.UsageErrorf("give a client's number, which muster ps shows, and the folder for its checkpoint")
	case len(options) > 0 || f.stop || c.Flags().Changed("criu"):
		return cli.UsageErrorf("--stop, --criu and options of CRIU's are for --program")
	default:
		id, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			return cli.UsageErrorf("%q is no number of a client: muster ps shows them", words[0])
		}
		once = func(ctx context.Context) error { return f.saveClient(ctx, c, id, words[1]) }
		gone = func() bool { return programs.ClientGone(socketOf(f.socket), id) }
	}
	if c.Flags().Changed("every") && f.every <= 0 || f.every > 0 && f.stop {
		return cli.UsageErrorf("--every %v: give a time above 0, as 10m, and not with --stop", f.every)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := once(ctx)
	if err != nil && ctx.Err() != nil {
		return cli.Interruptedf("nothing was saved, and the program goes on")
	}
	if err != nil || f.every == 0 {
		return err
	}
	programs.Repeat(ctx, f.every, gone, once, func(err error) {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v; the last checkpoint stays, and the next is taken in %v\n", c.CommandPath(), err, f.every)
	})
	return nil
}

// atDash divides arguments into those before -- and those behind it.
func atDash(c *cobra.Command, args []string) (before, behind []string) {
	if at := c.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

func (f *checkpointFlags) saveClient(ctx context.Context, c *cobra.Command, id uint64, dir string) error {
	saved, err := programs.SaveClient(ctx, socketOf(f.socket), id, dir)
	if err != nil {
		return err
	}
	if f.asJSON {
		return cli.PrintJSON(c, saved)
	}
	fmt.Fprintf(c.OutOrStdout(), "client %d: %s in %s\n", id, units.BriefSize(saved.Bytes), dir)
	return nil
}

func (f *checkpointFlags) saveProgram(ctx context.Context, c *cobra.Command, dir string, options []string) error {
	criu, err := findCRIU(f.criu)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	saved, err := programs.Save(ctx, programs.Saving{
		Socket: socketOf(f.socket), CRIU: criu, Hook: []string{self, "checkpoint-hook"}, Pid: f.program, Dir: dir, Stop: f.stop, Options: options, Holding: f.holding,
	})
	if err != nil {
		return err
	}
	if f.asJSON {
		return cli.PrintJSON(c, saved)
	}
	fmt.Fprintf(c.OutOrStdout(), "process %d: %s with %s, %s in %s\n", f.program, units.Plural(saved.Processes, "process"), units.Plural(len(saved.Clients), "client"), units.BriefSize(saved.Bytes), dir)
	return nil
}

// findCRIU finds CRIU as the flag says, or the environment.
func findCRIU(flag string) (*programs.CRIU, error) {
	if flag == "" {
		flag = os.Getenv("MUSTER_CRIU")
	}
	return programs.Find(flag)
}

// NewCheckpointHook is what CRIU calls while a program is stopped.
func NewCheckpointHook() *cobra.Command {
	return &cobra.Command{
		Use:     "checkpoint-hook",
		Short:   "Have the GPU's side of a stopped program saved (called by CRIU)",
		Long:    "Have the GPU's side of a stopped program saved. CRIU calls it for muster checkpoint --program; it is of no use to people.",
		Example: "  muster checkpoint --program 4711 /scratch/run1",
		Hidden:  true,
		RunE:    func(*cobra.Command, []string) error { return programs.Hook() },
	}
}

const restoreHelp = `Put back what muster checkpoint saved in a folder.

If the folder has the GPU's side of a client, the program must still run: its device
memory, modules, streams and events become those of the checkpoint. What it has done
on the GPU since is gone, and so is a fault that ended its work there. The program is
not told: one that is computing comes to wrong results, so restore it when it waits, or
when all of its calls fail. --client names the client, if its number is another one now.

If the folder has a whole program, it is started again where it was, with CRIU, by the
node at the socket. Its processes get their old numbers, so these must be free. Words
behind -- are given to CRIU. muster restore waits for the program and ends as it does,
or prints its number and leaves it with --detach.`

// restoreFlags are the flags of muster restore.
type restoreFlags struct {
	socket, criu   string
	client         uint64
	detach, asJSON bool
}

func NewRestore() *cobra.Command {
	var f restoreFlags
	c := &cobra.Command{
		Use:   "restore [--socket ADDRESS] [--client CLIENT] [--criu FILE] [--detach] [--json] DIR [-- OPTION...]",
		Short: "Go on from what muster checkpoint saved",
		Long:  restoreHelp,
		Example: `  muster restore /scratch/run1
  muster restore --detach /scratch/run1`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	nodeFlag(c, &f.socket)
	flags := c.Flags()
	flags.Uint64Var(&f.client, "client", 0, "the client to restore, as muster ps shows it (default: the number that it had)")
	flags.StringVar(&f.criu, "criu", "", "the CRIU to use (default: $MUSTER_CRIU, or criu)")
	flags.BoolVar(&f.detach, "detach", false, "do not wait for the program")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON document")
	return c
}

func (f *restoreFlags) run(c *cobra.Command, args []string) error {
	words, options := atDash(c, args)
	if len(words) != 1 {
		return cli.UsageErrorf("give the folder of a checkpoint")
	}
	m, err := checkpoint.ReadManifest(words[0])
	if err != nil {
		return err
	}
	if m.Kind == checkpoint.OfProgram {
		if f.client != 0 {
			return cli.UsageErrorf("--client is for the checkpoint of a client, and %s has a program", words[0])
		}
		return f.restoreProgram(c, words[0], options)
	}
	if f.detach || len(options) > 0 || f.criu != "" {
		return cli.UsageErrorf("--detach, --criu and options of CRIU's are for programs, and %s has a client", words[0])
	}
	return f.restoreClient(c, words[0], m.Clients[0])
}

func (f *restoreFlags) restoreClient(c *cobra.Command, dir string, was checkpoint.Client) error {
	restored, err := programs.RestoreClient(socketOf(f.socket), f.client, dir, was)
	if err != nil {
		return err
	}
	if f.asJSON {
		return cli.PrintJSON(c, restored)
	}
	fmt.Fprintf(c.OutOrStdout(), "client %d: %s of memory from %s\n", restored.Client, units.BriefSize(restored.Bytes), dir)
	return nil
}

func (f *restoreFlags) restoreProgram(c *cobra.Command, dir string, options []string) error {
	criu, err := findCRIU(f.criu)
	if err != nil {
		return err
	}
	if !f.detach {
		if err := programs.AdoptOrphans(); err != nil {
			return err
		}
	}
	restored, err := programs.Restore(c.Context(), programs.Restoring{
		Socket: socketOf(f.socket), CRIU: criu, Dir: dir, Options: options, Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	switch {
	case f.asJSON:
		if err := cli.PrintJSON(c, restored); err != nil {
			return err
		}
	case f.detach:
		fmt.Fprintln(c.OutOrStdout(), restored.Pid)
	}
	if f.detach {
		return nil
	}
	status, err := programs.Await(restored.Pid)
	if err != nil {
		return err
	}
	return cli.ExitBy(status)
}
