package programs

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/demo"
	"muster/internal/screen"
	"muster/node/launch"
)

type demoFlags struct {
	programs    string
	plain, stay bool
	inside      string
}

func NewDemo() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo [--programs FOLDER] [--plain] [--stay]",
		Short: "Watch a cluster of three nodes, all on this machine",
		Long: `Start the head of a cluster and three unequal nodes on this machine, one without a GPU,
and submit real CUDA and MPI jobs as a user does: they borrow GPUs of other nodes, share
one GPU although their memory does not fit together, and are stopped for urgent ones. One
node is killed while it runs a job, which is run again elsewhere. Each job's output is
compared with what is known to be right; a table at the end tells what became of each.

Every command that is shown can be typed, in the folder that is named at the start. With
--stay the cluster stays up after the table, until Ctrl-C, to be looked at and used.

The programs are those of make examples. MPI's job needs MPICH and is left out without it.
Nothing is left when it ends, however it ends. The exit status is 1 if a result is wrong,
or if a process or a file had been left.`,
		Example: "  muster demo\n  muster demo --stay\n  muster demo node",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.programs, "programs", "", "the `folder` of the programs (default: examples/ beside this program)")
	c.Flags().BoolVar(&f.plain, "plain", false, "no live view, even on a terminal")
	c.Flags().BoolVar(&f.stay, "stay", false, "leave the cluster up until Ctrl-C")
	c.Flags().StringVar(&f.inside, "inside", "", "play in this `folder`, watched by another process")
	_ = c.Flags().MarkHidden("inside")
	c.AddCommand(newDemoNode())
	return c
}

// run plays the demonstration in a process of its own, or is that process.
func (f *demoFlags) run(c *cobra.Command) error {
	programs, err := demo.Folder(f.programs)
	if err != nil {
		return err
	}
	o := &demo.Options{Programs: programs, Stay: f.stay, Out: c.OutOrStdout(), Errors: c.ErrOrStderr(), Screen: liveView(c, f.plain), Interrupted: cli.ExitInterrupted}
	if f.inside != "" {
		err = demo.Play(o, f.inside)
	} else {
		err = demo.Guard(o, func(dir string) []string {
			return []string{"demo", "--inside", dir, "--programs", programs, fmt.Sprintf("--plain=%t", f.plain), fmt.Sprintf("--stay=%t", f.stay)}
		})
	}
	var ended demo.Status
	if errors.As(err, &ended) {
		return cli.ExitStatus(ended)
	}
	return err
}

// liveView is the terminal, unless there is none or a plain report is wanted.
func liveView(c *cobra.Command, plain bool) *os.File {
	if out, ok := c.OutOrStdout().(*os.File); ok && !plain && screen.IsTerminal(out) {
		return out
	}
	return nil
}

func newDemoNode() *cobra.Command {
	var programs string
	var plain bool
	c := &cobra.Command{
		Use:   "node [--programs FOLDER] [--plain]",
		Short: "Watch programs share two software GPUs",
		Long: `Start a node with two unequal software GPUs, run real CUDA programs there that need
more memory together than the devices have, watch them, check their results, and say
what sharing saved: before that, the same programs run with one on a device at a time.

The programs are those of make examples.`,
		Example: "  muster demo node",
		RunE:    func(c *cobra.Command, _ []string) error { return runDemoNode(c, programs, plain) },
	}
	c.Flags().StringVar(&programs, "programs", "", "the folder of the programs (default: examples/ beside this program)")
	c.Flags().BoolVar(&plain, "plain", false, "no live view, even on a terminal")
	return c
}

func runDemoNode(c *cobra.Command, programs string, plain bool) error {
	folder, err := demo.Folder(programs)
	if err != nil {
		return err
	}
	library, err := launch.Libraries()
	if err != nil {
		return err
	}
	table, summary, err := demo.Node(&demo.NodeOptions{
		Programs: folder, Library: library, Errors: c.ErrOrStderr(), Screen: liveView(c, plain),
		Start: func(args ...string) (func(), error) { return launch.Node(c.ErrOrStderr(), args...) },
	})
	if err != nil {
		return err
	}
	if err := cli.WriteTable(c.OutOrStdout(), table); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "\n%s", summary)
	return err
}
