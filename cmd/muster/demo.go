package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

type demoFlags struct {
	programs    string
	plain, stay bool
	inside      string
}

func newDemo() *cobra.Command {
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
		RunE: func(c *cobra.Command, _ []string) error {
			if f.inside != "" {
				return f.play(c)
			}
			return f.guard(c)
		},
	}
	c.Flags().StringVar(&f.programs, "programs", "", "the `folder` of the programs (default: examples/ beside this program)")
	c.Flags().BoolVar(&f.plain, "plain", false, "no live view, even on a terminal")
	c.Flags().BoolVar(&f.stay, "stay", false, "leave the cluster up until Ctrl-C")
	c.Flags().StringVar(&f.inside, "inside", "", "play in this `folder`, watched by another process")
	_ = c.Flags().MarkHidden("inside")
	c.AddCommand(newDemoNode())
	return c
}

// demoFolder is where the programs of the demonstrations are: what the flag says, or
// the folder beside this program.
func demoFolder(flag string) (string, error) {
	if flag == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding this program: %w", err)
		}
		flag = filepath.Join(filepath.Dir(self), "examples")
	}
	folder, err := filepath.Abs(flag)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "mm")); err != nil {
		return "", fmt.Errorf("the programs are not in %s: make examples builds them", folder)
	}
	return folder, nil
}
