package jobs

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// jobFlags are the flags of muster job and what is below it.
type jobFlags struct {
	cli.AskFlags
	json bool
}

func NewJob() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use:   "job JOB [--json]",
		Short: "Tell all about a job: why it waits, what it has, how it ended",
		Long: `Tell all that is known about a job, also one that has ended: what it asks for, why it
waits, which nodes, cores, memory and GPUs it has, where its output is, how it ended and
what it used. A device that is lent by another node is called borrowed. Of an array it
says how many tasks are in which state; name tasks, as 17_3 or 17_[1-4], to read all
about each. With --json an array is the list of its jobs. Where no head of Muster runs,
and Slurm does, the job is Slurm's (muster slurm job).` + cli.AskHelp,
		Example:           "  muster job 17\n  muster job 17_3 --json\n  muster job suspend 17",
		Args:              cli.OneJob,
		ValidArgsFunction: cli.CompleteJobs(&f.AskFlags),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := headclient.JobIDs(args)
			if err != nil {
				return err
			}
			h, err := f.Open()
			if err != nil {
				return err
			}
			var jobs []api.Job
			var blocks []func(io.Writer) error
			for _, id := range ids {
				some, err := h.Job(c.Context(), id)
				if err != nil && isSlurmHere(f.Head, err) {
					return tellSlurmJobs(c, args, f.json)
				}
				if err != nil {
					return err
				}
				jobs = append(jobs, some...)
				if strconv.FormatUint(some[0].ArrayJob, 10) == id {
					blocks = append(blocks, func(w io.Writer) error { return jobtable.WriteArray(w, some) })
					continue
				}
				for i := range some {
					blocks = append(blocks, func(w io.Writer) error { return jobtable.WriteJob(w, &some[i]) })
				}
			}
			if f.json {
				return printJobs(c, jobs)
			}
			for i, write := range blocks {
				if i > 0 {
					fmt.Fprintln(c.OutOrStdout())
				}
				if err := write(c.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	c.AddCommand(
		newJobAction("suspend", "Stop a job where it is, and leave its cores and GPUs to others",
			`Stop the processes of running jobs where they are. Their cores and GPUs are left to
others; their memory is kept. muster job resume lets them go on, on the same nodes and
devices.`),
		newJobAction("resume", "Let a suspended job go on", `Let suspended jobs go on, as soon as what they had is free again. (muster resume is for nodes.)`),
		newJobAction("move", "Have a job go on elsewhere, with what it has done so far",
			`Suspend jobs, save their processes and their GPUs' memory, and let them wait in the queue:
they go on from there where there is room, on any node that has the same folder
(checkpoint_dir). Nothing that they have done is lost. A job that is held waits until it is
released, with its place free. A job on several nodes, with a GPU of another node, or on a
node without such a folder is refused, and runs on. What its node cannot save stays
suspended where it was, and muster job says why; muster job resume lets it go on.`),
		newJobAction("requeue", "End a job and let it wait again", `End running jobs and let them wait again, with the same numbers. Their output files are
written anew unless they were submitted with --open-mode=append.`),
		newJobLimit(),
	)
	return c
}

// printJobs prints one job as itself, and several as a list.
func printJobs(c *cobra.Command, jobs []api.Job) error {
	if len(jobs) == 1 {
		return cli.PrintJSON(c, &jobs[0])
	}
	return cli.PrintJSON(c, api.Jobs{Jobs: jobs})
}

// newJobAction makes a command that does something to jobs.
func newJobAction(action, short, long string) *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:               action + " JOB...",
		Short:             short,
		Long:              long + cli.AskHelp,
		Example:           "  muster job " + action + " 17\n  muster job " + action + " 17_[1-4] 20",
		Args:              cli.SomeJobs,
		ValidArgsFunction: cli.CompleteJobs(&f),
		RunE:              func(c *cobra.Command, args []string) error { return change(c, &f, args, action, nil) },
	}
	f.Add(c)
	return c
}

// change does something to jobs, and says nothing where that went well.
func change(c *cobra.Command, f *cli.AskFlags, args []string, action string, document any) error {
	h, err := f.Open()
	if err != nil {
		return err
	}
	return cli.EachJob(c, args, func(id string) error {
		_, err := h.Change(c.Context(), id, action, document)
		return err
	})
}

func newJobLimit() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "limit JOB DEVICES",
		Short: "Change how many of its GPUs a running job may use at a time",
		Long: `Change how many of its GPUs a running job may use at a time: programs that want more
wait for one another. all lifts the limit.` + cli.AskHelp,
		Example: "  muster job limit 17 1\n  muster job limit 17 all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("name a job, and how many devices it may use at a time, or all")
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteJobs(&f),
		RunE: func(c *cobra.Command, args []string) error {
			n := -1
			if args[1] != "all" {
				var err error
				if n, err = strconv.Atoi(args[1]); err != nil || n < 0 {
					return cli.UsageErrorf("%q is no number of devices: give 0 or more, or all", args[1])
				}
			}
			return change(c, &f, args[:1], "limit", api.Limit{Devices: n})
		},
	}
	f.Add(c)
	return c
}

func NewHold() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:   "hold JOB...",
		Short: "Keep a waiting job from being started",
		Long: `Keep waiting jobs from being started, until muster release. Jobs that run already go on.
As with Slurm, what an administrator holds only an administrator releases.` + cli.AskHelp,
		Example:           "  muster hold 17 18_[1-4]",
		Args:              cli.SomeJobs,
		ValidArgsFunction: cli.CompleteJobs(&f),
		RunE:              func(c *cobra.Command, args []string) error { return change(c, &f, args, "hold", nil) },
	}
	f.Add(c)
	return c
}

func NewRelease() *cobra.Command {
	var f cli.AskFlags
	c := &cobra.Command{
		Use:               "release JOB...",
		Short:             "Let a held job be started again",
		Long:              `Let jobs be started again that were held, by muster hold or when they were submitted (--hold).` + cli.AskHelp,
		Example:           "  muster release 17",
		Args:              cli.SomeJobs,
		ValidArgsFunction: cli.CompleteJobs(&f),
		RunE:              func(c *cobra.Command, args []string) error { return change(c, &f, args, "release", nil) },
	}
	f.Add(c)
	return c
}

// newPriorityOf reads a priority, or a nice value, as muster submit does.
func newPriorityOf(text string, nice bool) (*api.Priority, error) {
	var p api.Priority
	to, parse := &p.Priority, slurmopt.ParsePriority
	if nice {
		to, parse = &p.Nice, slurmopt.ParseNice
	}
	n, err := parse(text)
	if err != nil {
		return nil, cli.UsageErrorf("%v", err)
	}
	*to = &n
	return &p, nil
}

func NewPriority() *cobra.Command {
	var f cli.AskFlags
	var nice bool
	c := &cobra.Command{
		Use:   "priority JOB NUMBER [--nice]",
		Short: "Set the priority of a waiting job",
		Long: `Set the priority of a waiting job outright, which only administrators may: a number from
1 to 4294967293, larger goes first. 0 takes that back: the head computes the priority
again. muster priorities shows those of the others. With --nice the number is the job's
nice value, from -2147483645 to 2147483645, which is taken off the priority that the
head computes: users may raise it for their own jobs, and lower it down to 0. muster
submit --priority and --nice mean the same.` + cli.AskHelp,
		Example: "  muster priority 17 100000\n  muster priority 17 50 --nice\n  muster priority --nice 17 -- -50",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("name a job and its priority, as muster priority 17 1000")
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteJobs(&f),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPriorityOf(args[1], nice)
			if err != nil {
				return err
			}
			return change(c, &f, args[:1], "priority", *p)
		},
	}
	f.Add(c)
	c.Flags().BoolVar(&nice, "nice", false, "the number is the nice value")
	return c
}
