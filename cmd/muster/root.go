package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/internal/misuse"
	"muster/model"
)

// commands makes the sub-commands, in the order in which the help lists them.
// They write data to OutOrStdout and everything else to ErrOrStderr.
var commands = []func() *cobra.Command{
	newRun, newTrace,
	newCheck,
	newNode,
	newHead,
	newPs,
	newDevices,
	newPeers,
	newDevice,
	newGrant,
	newMove,
	newKill,
	newTop,
	newCheckpoint,
	newRestore,
	newSubmit,
	newQueue,
	newJob,
	newLogs,
	newAttach,
	newExec,
	newCancel,
	newHold,
	newRelease,
	newPriority,
	newPriorities,
	newHistory,
	newUsage,
	newWhatIf,
	newNodes,
	newDrain,
	newResume,
	newPage,
	newCert,
	newSlurm,
	newDemo,
	newCluster,
	newWorkload,
	newSim,
	newPolicyCommand,
	newReproduce,
	newPtx,
	newVersion,
	newCompletion,
	newMan,
	newWorker,
	newTask,
	newDelay,
	newHeadSimulator,
	newCheckpointHook,
}

// groups are the parts of the help, in its order, with the commands of each.
var groups = []struct {
	id, title string
	commands  []string
}{
	{"programs", "Programs and the GPUs of this machine:", []string{
		"run", "trace", "check", "node", "ps", "devices", "peers", "device", "move", "kill", "top", "checkpoint", "restore", "grant", "cert", "demo"}},
	{"cluster", "Jobs on a cluster:", []string{
		"head", "submit", "queue", "job", "logs", "attach", "exec", "cancel", "hold", "release", "priority", "priorities", "history", "usage", "whatif",
		"nodes", "drain", "resume", "page", "slurm"}},
	{"whatif", "What if, simulated:", []string{"cluster", "workload", "sim", "policy"}},
	{"papers", "Papers:", []string{"reproduce"}},
	{"kernels", "Kernels:", []string{"ptx"}},
	{"other", "Other:", []string{"help", "version", "completion"}},
}

// group puts the commands into groups.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	root.SetHelpCommandGroupID("other")
	for _, c := range root.Commands() {
		for _, g := range groups {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.id
			}
		}
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
		Version: readVersion().String(),
		// Errors are printed by run, once, without the whole usage.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	for _, add := range commands {
		root.AddCommand(add())
	}
	group(root)
	eachCommand(root, func(c *cobra.Command) { prepare(c, env) })
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
		c.Args = noArguments
	}
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := flagsFromEnvironment(c, env); err != nil {
			return err
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%q is one argument too many: it takes flags only", args[0])
	}
	return nil
}

// usageErrorf is wrong usage: the exit status is 2, and the help is pointed to.
func usageErrorf(format string, args ...any) error { return misuse.Errorf(format, args...) }

// fail prints what went wrong and returns the exit status.
func fail(stderr io.Writer, c *cobra.Command, err error, wrongUsage bool) int {
	fmt.Fprintf(stderr, "%s: %s\n", c.CommandPath(), plainly(err))
	var stopped *interruptedError
	if errors.As(err, &stopped) {
		return exitInterrupted
	}
	if !wrongUsage && !misuse.Is(err) {
		return exitFailed
	}
	fmt.Fprintf(stderr, "%s --help says how it is used\n", c.CommandPath())
	return exitUsage
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
		sub, known := subCommand(c, arg)
		if sub == nil && c.RunE != nil && model.Nearest(arg, known) == "" {
			return c, nil // it has work of its own, and says what it takes
		}
		if sub == nil {
			return c, unknownWord(c, arg, known)
		}
		c = sub
	}
	if c.HasSubCommands() && c.RunE == nil {
		_, known := subCommand(c, "")
		return c, usageErrorf("say what to do: %s", strings.Join(known, ", "))
	}
	return c, nil
}

// subCommand finds a command by name, and lists the names there are.
func subCommand(c *cobra.Command, name string) (found *cobra.Command, known []string) {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub, nil
		}
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return nil, known
}

// slurmCommands are what users of Slurm type first, and what does that here.
var slurmCommands = map[string]string{
	"sbatch": "muster submit", "squeue": "muster queue", "scancel": "muster cancel", "sacct": "muster history",
	"sinfo": "muster nodes", "sprio": "muster priorities", "sshare": "muster usage", "sreport": "muster usage", "sattach": "muster attach",
	"srun":     "muster submit --wait, or muster exec inside a job",
	"salloc":   "muster submit --wait",
	"scontrol": "muster job, muster hold, muster release, muster drain or muster nodes",
	"sstat":    "muster job",
}

func unknownWord(c *cobra.Command, word string, known []string) error {
	if here := slurmCommands[word]; here != "" && !c.HasParent() {
		return usageErrorf("there is no command %q: what it does in Slurm is done by %s", word, here)
	}
	if near := model.Nearest(word, known); near != "" {
		return usageErrorf("there is no command %q: did you mean %s?", word, strings.TrimSpace(c.CommandPath()+" "+near))
	}
	return usageErrorf("there is no command %q: it is one of %s", word, strings.Join(known, ", "))
}

// flagError turns what the flag library says into a usage error with the nearest right spelling.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		name := unknown.GetSpecifiedName()
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if near := model.Nearest(name, known); near != "" {
			return usageErrorf("there is no flag --%s: did you mean --%s?", name, near)
		}
		return usageErrorf("there is no flag --%s", name)
	}
	if unknown != nil {
		return usageErrorf("there is no flag -%s", unknown.GetSpecifiedName())
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		return usageErrorf("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), expected(wrong.GetFlag(), wrong.Unwrap()))
	}
	return usageErrorf("%v", err)
}

// expected says what a flag takes; cause is what was wrong.
func expected(f *pflag.Flag, cause error) string {
	switch f.Value.Type() {
	case "int":
		return "give a whole number"
	case "uint64":
		return "give a whole number, not below 0"
	case "float64":
		return "give a number"
	case "bool":
		return "give true or false"
	case "duration":
		return "give a time with its unit, as 10ms, 2s or 1m"
	}
	return cause.Error()
}

// flagsFromEnvironment sets each flag that the command line left alone from its variable.
func flagsFromEnvironment(c *cobra.Command, env func(string) string) error {
	var first error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if first != nil || f.Changed || f.Name == "help" {
			return
		}
		name := variable(c, f.Name)
		value := env(name)
		if value == "" {
			return
		}
		err := c.Flags().Set(f.Name, value)
		var wrong *pflag.InvalidValueError
		switch {
		case errors.As(err, &wrong):
			first = usageErrorf("the environment variable %s is %q: %s", name, value, expected(f, wrong.Unwrap()))
		case err != nil:
			first = usageErrorf("the environment variable %s: %v", name, err)
		}
	})
	return first
}

// unknownVariables returns those of a command's variables that stand for no flag of it
// or of its sub-commands, with the name that may have been meant. The environment is
// a list of NAME=VALUE.
func unknownVariables(c *cobra.Command, environment []string) (unknown []string) {
	prefix := variable(c, "")
	var known []string // without the prefix, so that it makes nothing alike
	eachCommand(c, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, strings.TrimPrefix(variable(c, f.Name), prefix)) })
	})
	for _, setting := range environment {
		name, value, _ := strings.Cut(setting, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || value == "" || slices.Contains(known, rest) {
			continue
		}
		if near := model.Nearest(rest, known); near != "" {
			name += " (did you mean " + prefix + near + "?)"
		}
		unknown = append(unknown, name)
	}
	return unknown
}

// variable is the environment variable that stands for a flag of a command.
func variable(c *cobra.Command, flag string) string {
	words := c.CommandPath() + " " + flag
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(words))
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
				sub, known := subCommand(c, word)
				switch {
				case sub == nil && c.Name() == "reproduce":
					return helpExperiment(c, word)
				case sub == nil && len(known) == 0:
					return usageErrorf("%s has no commands of its own", c.CommandPath())
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
