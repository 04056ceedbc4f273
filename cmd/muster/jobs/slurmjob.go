package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/slurm/driver"
	"muster/slurm/view"
)

func newSlurmJob() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "job JOB... [--json]",
		Short: "Tell of a job of Slurm why it waits, or got what it has",
		Long: `Tell of jobs of a Slurm that Muster's driver places why they wait, or why they got what they
have, and which GPUs they borrow. It asks squeue, so everybody may use it who may see the job.
Where no head of Muster runs, muster job does the same.`,
		Example: "  muster slurm job 17\n  muster slurm job 17_3 --json",
		Args:    cli.SomeJobs,
		RunE:    func(c *cobra.Command, args []string) error { return tellSlurmJobs(c, args, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// isSlurmHere says whether jobs are to be looked for in a Slurm: no head was named, none answers, and
// Slurm's commands are there.
func isSlurmHere(head string, err error) bool {
	if head != "" || os.Getenv("MUSTER_HEAD") != "" || !errors.Is(err, headclient.ErrUnreachable) {
		return false
	}
	_, missing := exec.LookPath("squeue")
	return missing == nil
}

func tellSlurmJobs(c *cobra.Command, args []string, asJSON bool) error {
	ids, err := headclient.JobIDs(args)
	if err != nil {
		return err
	}
	var jobs []view.Job
	for _, id := range ids {
		j, err := view.AskJob(c.Context(), id)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if asJSON && len(jobs) == 1 {
		return cli.PrintJSON(c, &jobs[0])
	}
	if asJSON {
		return cli.PrintJSON(c, map[string][]view.Job{"jobs": jobs})
	}
	for i := range jobs {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := jobs[i].WriteText(c.OutOrStdout()); err != nil {
			return err
		}
	}
	return nil
}

// overSlurm says how things stand here, and what can be done.
func overSlurm(c *cobra.Command) error {
	out := c.OutOrStdout()
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	if version, err := exec.CommandContext(ctx, "scontrol", "--version").Output(); err != nil {
		fmt.Fprintln(out, "There is no Slurm on this machine: muster slurm emulate starts a private one to try things on.")
	} else {
		fmt.Fprintf(out, "This machine has %s.\n", strings.TrimSpace(string(version)))
		if said, err := exec.CommandContext(ctx, "scontrol", "ping").Output(); err != nil || !strings.Contains(string(said), "UP") {
			fmt.Fprintln(out, "slurmctld does not answer: start it; its log says what it does not like.")
		}
		fmt.Fprintln(out, view.InWords(driver.AskStatus(ctx, driver.DefaultSocket())))
	}
	fmt.Fprintln(out)
	return c.Help()
}
