package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
	"muster/model"
	"muster/report"
	slurmwords "muster/slurm/words"
)

// slurmJob is a job of a Slurm, as Slurm's own commands tell of it.
type slurmJob struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	User  string `json:"user"`
	State string `json:"state"`
	// Reason is Slurm's.
	Reason string `json:"reason,omitempty"`
	Nodes  string `json:"nodes,omitempty"`
	// Muster says that the job is Muster's; Why is the driver's sentence.
	Muster bool   `json:"muster"`
	Why    string `json:"why,omitempty"`
	// GPUs is how many it asks for anywhere, Memory what it needs of each, Borrowed those that it has.
	GPUs     int      `json:"gpus,omitempty"`
	Memory   int64    `json:"memory_bytes,omitempty"`
	Mode     string   `json:"mode,omitempty"`
	Borrowed []string `json:"borrowed,omitempty"`
	// Alternatives are those of --muster-or, and Chosen the number of the one that it got, from 1.
	Alternatives []string `json:"alternatives,omitempty"`
	Chosen       int      `json:"chosen,omitempty"`
	Held         bool     `json:"held,omitempty"`
}

// squeueTime is how long Slurm may take to answer.
const squeueTime = 20 * time.Second

func newSlurmJob() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "job JOB... [--json]",
		Short: "Tell of a job of Slurm why it waits, or got what it has",
		Long: `Tell of jobs of a Slurm that Muster's driver places why they wait, or why they got what they
have, and which GPUs they borrow. It asks squeue, so everybody may use it who may see the job.
Where no head of Muster runs, muster job does the same.`,
		Example: "  muster slurm job 17\n  muster slurm job 17_3 --json",
		Args:    someJobs,
		RunE:    func(c *cobra.Command, args []string) error { return tellSlurmJobs(c, args, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// isSlurmHere says whether jobs are to be looked for in a Slurm: no head was named, none answers, and
// Slurm's commands are there.
func (f *askFlags) isSlurmHere(err error) bool {
	if f.head != "" || os.Getenv("MUSTER_HEAD") != "" || !errors.Is(err, headclient.ErrUnreachable) {
		return false
	}
	_, missing := exec.LookPath("squeue")
	return missing == nil
}

func tellSlurmJobs(c *cobra.Command, args []string, asJSON bool) error {
	ids, err := jobIDs(args)
	if err != nil {
		return err
	}
	var jobs []slurmJob
	for _, id := range ids {
		j, err := askSqueue(c.Context(), id)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if asJSON && len(jobs) == 1 {
		return printJSON(c, &jobs[0])
	}
	if asJSON {
		return printJSON(c, map[string][]slurmJob{"jobs": jobs})
	}
	for i := range jobs {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := writeSlurmJob(c.OutOrStdout(), &jobs[i]); err != nil {
			return err
		}
	}
	return nil
}

// squeueFields are what is asked for; each has a line of its own, since names may have any sign.
var squeueFields = []string{"JobID", "Name", "UserName", "State", "Reason", "NodeList", "admin_comment", "Comment"}

// askSqueue asks Slurm for a job.
func askSqueue(ctx context.Context, id string) (slurmJob, error) {
	ctx, cancel := context.WithTimeout(ctx, squeueTime)
	defer cancel()
	values := map[string]string{}
	for _, field := range squeueFields {
		out, err := exec.CommandContext(ctx, "squeue", "-h", "-t", "all", "-j", id, "-O", fmt.Sprintf("%s:%d", field, slurmwords.MaxComment)).CombinedOutput()
		text := strings.TrimSpace(string(out))
		switch {
		case err != nil && strings.Contains(text, "Invalid job id"), err == nil && field == "JobID" && text == "":
			return slurmJob{}, fmt.Errorf("Slurm knows no job %s: it forgets those that have ended after some minutes (MinJobAge)", id)
		case errors.Is(err, exec.ErrNotFound):
			return slurmJob{}, errors.New("squeue is not in PATH: run this on a machine that has the commands of the Slurm")
		case err != nil:
			return slurmJob{}, fmt.Errorf("squeue: %w: %s", err, text)
		}
		line, _, _ := strings.Cut(text, "\n")
		if values[field] = strings.TrimSpace(line); values[field] == "(null)" {
			values[field] = ""
		}
	}
	j := slurmJob{ID: id, Name: values["Name"], User: values["UserName"], State: values["State"], Reason: values["Reason"], Nodes: values["NodeList"]}
	said, err := slurmwords.ParseBoth(values["admin_comment"], values["Comment"])
	if err != nil || said.Request == nil {
		return j, err
	}
	j.Muster, j.Why, j.Held = true, said.Why, said.Request.Held
	j.GPUs, j.Memory, j.Mode = said.Request.GPUs, said.Request.MemoryMB<<20, string(said.Request.Mode)
	j.Alternatives, j.Chosen = said.Request.Or, said.Request.As
	if said.Answer != nil {
		j.Why = said.Answer.Why
		for _, d := range said.Answer.Devices {
			j.Borrowed = append(j.Borrowed, d.String())
		}
	}
	return j, nil
}

func writeSlurmJob(w io.Writer, j *slurmJob) error {
	var f report.Facts
	f.Add("job", "%s %s", j.ID, j.Name)
	f.Add("user", "%s", j.User)
	f.Add("state", "%s", report.Join(" ", j.State, report.Around("(", j.Reason, ")")))
	switch {
	case !j.Muster:
		f.Add("why", "it is Slurm's own: Muster does not place it")
	case j.Why == "" && j.State == "PENDING":
		f.Add("why", "Muster's driver has not said yet: muster slurm status tells whether it runs")
	default:
		f.Add("why", "%s", j.Why)
	}
	if j.GPUs > 0 {
		asks := model.Plural(j.GPUs, "GPU") + " anywhere"
		if j.Memory > 0 {
			asks += fmt.Sprintf(", %d MB of each", j.Memory>>20)
		}
		f.Add("asks", "%s", asks)
	}
	for i, options := range j.Alternatives {
		f.Add("or", "%d: %s", i+1, options)
	}
	if j.Chosen > 0 {
		f.Add("has", "its alternative %d", j.Chosen)
	}
	f.Add("on", "%s", j.Nodes)
	for i, d := range j.Borrowed {
		f.Add("GPU", "%d: %s", i, d)
	}
	return f.WriteText(w)
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
		fmt.Fprintln(out, askDriver(ctx))
	}
	fmt.Fprintln(out)
	return c.Help()
}
