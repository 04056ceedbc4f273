package jobs

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/internal/screen"
	"muster/model/slurmopt"
)

const submitHelp = `Submit a job to the cluster, as sbatch does. A script is read now and run once, on the
first of the job's nodes, with its arguments; its lines that start with #MUSTER or
#SBATCH have options, too. Where the same option is given more than once, the command
line wins, then #MUSTER, then #SBATCH. Without a script, or with -, the script is read
from standard input. Behind -- stands a command instead: all of the job's processes run
it.

What the job asks for:
  -N, --nodes=4                 nodes
  -n, --ntasks=16               processes, anywhere unless -N says on how many nodes
      --ntasks-per-node=8       processes on each node
  -c, --cpus-per-task=6         cores for each process
      --mem=4G, --mem-per-cpu=2G   memory on each node, or for each core
      --gres=gpu:2              GPUs of each node, in the node itself
      --gres=gpu:k20:2          of a type
      --gres=gpu:2:4G           4 GiB of each of them, which others share
      --gres=rgpu:4             GPUs for the job, of any node: the others are borrowed
      --gres=rgpu:4:1G          1 GiB of each of four GPUs, which others share
  -G, --gpus, --gpus-per-node, --gpus-per-task   GPUs in other words
      --gpu-reach=node          how far from its GPUs its programs may go while that is better: device, node, cluster
      --gpu-beyond=4G|all       memory beyond its shares that they may use while it is free
      --gpu-class=latency|batch, --gpu-weight=2   how they take turns with others, as with muster run
      --mapping=ag              a mapper decides which of its GPUs runs each kernel, as with muster run
      --or='-n 64 -t 2:00:00'   another request that would do; may be repeated
  -t, --time=1:30:00            time limit: minutes, hours:minutes:seconds, days-hours
  -C, --constraint='a100&(ib|eth)'   on nodes with these features
  -L, --licenses=matlab:2       licences that the head counts
  -w, --nodelist=n[1-4]; -x, --exclude=n3; --exclusive; --contiguous

When and how it runs:
  -J, --job-name; -p, --partition; -A, --account; -q, --qos; --comment
  -o, --output=out-%j.txt; -e, --error; -i, --input; --open-mode=append|truncate
  -D, --chdir=DIR               where it runs (default: here)
      --export=ALL|NONE|A,B=c   which variables it gets (default: all of yours)
  -a, --array=1-10:2%4          many tasks of one script, at most 4 at a time
  -d, --dependency=afterok:17   also after, afterany, afternotok, aftercorr, singleton; all of a,b or any of a?b
  -b, --begin=now+1hour         not before: 16:00, tomorrow, 2026-11-30T16:00
      --deadline=2026-11-30     it must have ended by then
      --reservation=NAME        on the nodes of a window of the head's, while it lasts
  -H, --hold                    it waits for muster release
      --nice=100                taken off its priority: others may go first; below 0 for administrators
      --priority=N              for administrators: from 1 to 4294967293, larger goes first; 0: the head computes it
      --requeue                 it may be started anew when its node fails
      --signal=B:USR1@60        a signal so many seconds before the time limit

How it is submitted:
      --parsable                print the number alone
      --json                    print the head's answer
  -W, --wait                    wait for its end, and exit as it did
      --pty                     run the command on this terminal, as srun --pty; the job ends with it
      --test-only               check the options and submit nothing
      --wrap='COMMAND LINE'     make a script of this
  -Q, --quiet

Options of sbatch without effect here are named in a note; those that would change what
a job gets and are not supported are refused.`

func NewSubmit() *cobra.Command {
	return &cobra.Command{
		Use:   "submit [OPTION...] [SCRIPT [ARGUMENT...] | -- COMMAND [ARGUMENT...]]",
		Short: "Submit a job to the cluster",
		Long:  submitHelp + cli.AskHelp,
		Example: `  muster submit -n 4 --gres=rgpu:4:2G -t 30 train.sh
  muster submit -N 2 --gpus-per-node=1 -- ./simulate --steps 1000
  muster submit -a 1-100%10 -o out-%A_%a.txt task.sh
  muster submit -d afterok:$(muster submit --parsable prepare.sh) train.sh
  muster submit --wait --wrap 'make -j8'
  muster submit --pty -c 4 --gres=gpu:1 bash`,
		// The options are Slurm's, with its rules of writing them.
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE:               func(c *cobra.Command, args []string) error { return submit(c, args) },
	}
}

func submit(c *cobra.Command, args []string) error {
	argv := append([]string{slurmopt.Submit}, args...)
	o, words, err := slurmopt.ParseCommand(argv)
	if err != nil {
		return cli.UsageErrorf("%v", err)
	}
	if o.Client.Help {
		return c.Help()
	}
	if o.Client.PTY {
		return onTerminal(c, argv, o, words)
	}
	from := headclient.Submitter{Stdin: c.InOrStdin(), Environment: os.Environ(), Now: time.Now()}
	if f, isFile := from.Stdin.(*os.File); isFile && screen.IsTerminal(f) {
		from.Stdin = nil
	}
	s, o, err := from.Submission(argv, o, words)
	switch {
	case err == headclient.ErrNoScript: // itself: of a script that is no file the error says more, and it is no wrong usage
		return cli.UsageErrorf("%v", err)
	case err != nil:
		return err
	}
	if !o.Client.Quiet {
		printNotes(c, o.Notes)
	}
	if o.Client.TestOnly {
		if !o.Client.Quiet {
			fmt.Fprintln(c.ErrOrStderr(), "The options can be read. Whether the cluster takes the job, and when it would start, is known when it is submitted.")
		}
		return nil
	}
	flags := cli.AskFlags{Head: o.Client.Head, TlsDir: o.Client.TLSDir}
	h, err := flags.Open()
	if err != nil {
		return err
	}
	answer, err := h.Submit(c.Context(), s)
	if err != nil {
		return err
	}
	if !o.Client.Quiet {
		printNotes(c, slices.DeleteFunc(answer.Notes, func(n string) bool { return slices.Contains(o.Notes, n) }))
	}
	switch {
	case o.Client.JSON:
		if err := cli.PrintJSON(c, answer); err != nil {
			return err
		}
	case o.Client.Parsable:
		fmt.Fprintln(c.OutOrStdout(), answer.Job)
	case !o.Client.Quiet:
		fmt.Fprintln(c.OutOrStdout(), "Submitted batch job", answer.Job)
	}
	if !o.Client.Wait {
		return nil
	}
	return waitForEnd(c, h, answer.Job)
}

func printNotes(c *cobra.Command, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(c.ErrOrStderr(), "muster: note: %s\n", n)
	}
}

// waitForEnd waits for a job, or for all tasks of an array, and exits as it did: of
// several with the highest status.
func waitForEnd(c *cobra.Command, h *headclient.Head, job uint64) error {
	jobs, err := h.AwaitEnd(c.Context(), strconv.FormatUint(job, 10))
	if err != nil {
		return err
	}
	worst := 0
	for i := range jobs {
		status := jobs[i].ExitStatus()
		worst = max(worst, status)
		if status != 0 && jobs[i].Why != "" {
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: %s: %s\n", jobtable.Name(&jobs[i]), jobs[i].State, jobs[i].Why)
		}
	}
	if worst > 0 {
		return cli.ExitStatus(worst)
	}
	return nil
}
