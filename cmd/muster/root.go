package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/cmd/muster/jobs"
	"muster/cmd/muster/lab"
	"muster/cmd/muster/programs"
	"muster/internal/misuse"
	"muster/model"
)

// groups are the parts of the help, in its order, with the makers of their commands. Commands write data
// to OutOrStdout and everything else to ErrOrStderr.
var groups = []struct {
	id, title string
	commands  []func() *cobra.Command
}{
	{"programs", "Programs and the GPUs of this machine:", []func() *cobra.Command{
		programs.NewRun, programs.NewTrace, programs.NewCheck, programs.NewNode, programs.NewPs, programs.NewDevices, programs.NewPeers,
		programs.NewDevice, programs.NewGrant, programs.NewMove, programs.NewKill, programs.NewTop, programs.NewCheckpoint, programs.NewRestore,
		programs.NewCert, programs.NewDemo}},
	{"cluster", "Jobs on a cluster:", []func() *cobra.Command{
		jobs.NewHead, jobs.NewSubmit, jobs.NewQueue, jobs.NewJob, jobs.NewLogs, jobs.NewAttach, jobs.NewAlloc, jobs.NewExec, jobs.NewCancel, jobs.NewHold,
		jobs.NewRelease, jobs.NewPriority, jobs.NewPriorities, jobs.NewHistory, jobs.NewUsage, jobs.NewWhatIf, jobs.NewPartitions, jobs.NewNodes, jobs.NewDrain,
		jobs.NewResume, jobs.NewPage, jobs.NewSlurm}},
	{"whatif", "What if, simulated:", []func() *cobra.Command{newCluster, lab.NewWorkload, lab.NewSim, lab.NewPolicyCommand}},
	{"papers", "Papers:", []func() *cobra.Command{lab.NewReproduce}},
	{"kernels", "Kernels:", []func() *cobra.Command{lab.NewPtx}},
	{"other", "Other:", []func() *cobra.Command{cli.NewVersion, newCompletion}},
}

// hidden are commands that muster calls, and one for those who package it.
var hidden = []func() *cobra.Command{newMan, programs.NewWorker, jobs.NewTask, newDelay, jobs.NewHeadSimulator, programs.NewCheckpointHook}

// newCluster is what is done to a cluster as a whole: to descriptions, and to hosts.
func newCluster() *cobra.Command {
	c := lab.NewCluster()
	c.AddCommand(jobs.NewClusterUp(), jobs.NewClusterDown())
	return c
}

// addCommands adds all commands in their groups.
func addCommands(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, add := range g.commands {
			c := add()
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
	for _, add := range hidden {
		root.AddCommand(add())
	}
}

const rootHelp = `Muster turns the GPUs of a cluster into one pool.

Data goes to standard output, everything else to standard error. The exit status
is 0 when done, 1 when something failed (a file that is not there, too), 2 when the
command was used wrongly, and 130 when Ctrl-C ended it.

Every flag can be set in the environment: MUSTER_, the command and the flag in
capitals, joined by underscores. MUSTER_CLUSTER_SHOW_JSON=true stands for
"muster cluster show --json". A flag on the command line wins.`

// newRoot makes the command tree.
func newRoot(stdout, stderr io.Writer, env func(string) string) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "muster",
		Short: "One pool of all the GPUs of a cluster",
		Long:  rootHelp,
		Example: "  muster run -- ./program\n  muster submit -n 4 --gres=rgpu:4 train.sh\n  muster queue\n  muster sim --cluster small --workload small --policy g-queue,r-queue --html report.html\n" +
			"  muster workload describe sacct.txt.gz\n  muster reproduce tsubame\n  muster help sim",
		Version: cli.ReadVersion().String(),
		// Errors are printed by run, once, without the whole usage.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommand(newHelp(root))
	addCommands(root)
	cli.EachCommand(root, func(c *cobra.Command) { prepare(c, env) })
	return root
}

// prepare gives a command what all have in common.
func prepare(c *cobra.Command, env func(string) string) {
	c.DisableFlagsInUseLine = true
	c.Flags().SortFlags = false
	if c.HasSubCommands() && c.RunE == nil {
		return
	}
	if c.Args == nil {
		c.Args = cli.NoArguments
	}
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := cli.FlagsFromEnvironment(c, env); err != nil {
			return err
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// fail prints what went wrong and returns the exit status.
func fail(stderr io.Writer, c *cobra.Command, err error, wrongUsage bool) int {
	fmt.Fprintf(stderr, "%s: %s\n", c.CommandPath(), cli.Plainly(err))
	var stopped *cli.InterruptedError
	if errors.As(err, &stopped) {
		return cli.ExitInterrupted
	}
	if !wrongUsage && !misuse.Is(err) {
		return cli.ExitFailed
	}
	fmt.Fprintf(stderr, "%s --help says how it is used\n", c.CommandPath())
	return cli.ExitUsage
}

// checkCommand reports a word where only a command can stand, and a command
// that is missing.
func checkCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	c := root
	for _, arg := range args {
		isHelp := c == root && arg == "help" // it finds the command by itself
		if !c.HasSubCommands() || isHelp || strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, cobra.ShellCompRequestCmd) {
			return c, nil
		}
		sub, known := cli.SubCommand(c, arg)
		if sub == nil && c.RunE != nil && model.Nearest(arg, known) == "" {
			return c, nil // it has work of its own, and says what it takes
		}
		if sub == nil {
			return c, unknownWord(c, arg, known)
		}
		c = sub
	}
	if c.HasSubCommands() && c.RunE == nil {
		_, known := cli.SubCommand(c, "")
		return c, cli.UsageErrorf("say what to do: %s", strings.Join(known, ", "))
	}
	return c, nil
}

// slurmCommands are what users of Slurm type first, and what does that here.
var slurmCommands = map[string]string{
	"sbatch": "muster submit", "squeue": "muster queue", "scancel": "muster cancel", "sacct": "muster history",
	"sinfo": "muster nodes", "sprio": "muster priorities", "sshare": "muster usage", "sreport": "muster usage", "sattach": "muster attach",
	"srun":     "muster submit --wait or --pty, or muster exec inside a job",
	"salloc":   "muster alloc",
	"scontrol": "muster job, muster hold, muster release, muster drain or muster nodes",
	"sstat":    "muster job",
}

func unknownWord(c *cobra.Command, word string, known []string) error {
	if here := slurmCommands[word]; here != "" && !c.HasParent() {
		return cli.UsageErrorf("there is no command %q: what it does in Slurm is done by %s", word, here)
	}
	if near := model.Nearest(word, known); near != "" {
		return cli.UsageErrorf("there is no command %q: did you mean %s?", word, strings.TrimSpace(c.CommandPath()+" "+near))
	}
	return cli.UsageErrorf("there is no command %q: it is one of %s", word, strings.Join(known, ", "))
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Tell about a command",
		Long:    "Tell about a command, as its --help does.",
		Example: "  muster help\n  muster help cluster show\n  muster help reproduce noderuntime",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			c := root
			for _, word := range args {
				sub, known := cli.SubCommand(c, word)
				switch {
				case sub == nil && c.Name() == "reproduce":
					return lab.HelpExperiment(c, word)
				case sub == nil && len(known) == 0:
					return cli.UsageErrorf("%s has no commands of its own", c.CommandPath())
				case sub == nil:
					return unknownWord(c, word, known)
				}
				c = sub
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}
