package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model/slurmopt"
	"muster/report"
	"muster/slurm/words"
)

// Job is a job of a Slurm, as Slurm's own commands tell of it.
type Job struct {
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
	// Terms are how it wants to have them: --gpu-reach, --gpu-beyond and --mapping, as sbatch takes them.
	Terms []string `json:"terms,omitempty"`
	// Alternatives are those of --muster-or, and Chosen the number of the one that it got, from 1.
	Alternatives []string `json:"alternatives,omitempty"`
	Chosen       int      `json:"chosen,omitempty"`
	Held         bool     `json:"held,omitempty"`
}

// squeueTime is how long Slurm may take to answer.
const squeueTime = 20 * time.Second

// squeueFields are what is asked for. Each is asked for alone, since names may contain any separator.
var squeueFields = []string{"JobID", "Name", "UserName", "State", "Reason", "NodeList", "admin_comment", "Comment"}

// AskJob asks Slurm for a job, with the squeue in PATH.
func AskJob(ctx context.Context, id string) (Job, error) {
	ctx, cancel := context.WithTimeout(ctx, squeueTime)
	defer cancel()
	values := map[string]string{}
	for _, field := range squeueFields {
		out, err := exec.CommandContext(ctx, "squeue", "-h", "-t", "all", "-j", id, "-O", fmt.Sprintf("%s:%d", field, words.MaxComment)).CombinedOutput()
		text := strings.TrimSpace(string(out))
		switch {
		case err != nil && strings.Contains(text, "Invalid job id"), err == nil && field == "JobID" && text == "":
			return Job{}, fmt.Errorf("Slurm knows no job %s: it forgets those that have ended after some minutes (MinJobAge)", id)
		case errors.Is(err, exec.ErrNotFound):
			return Job{}, errors.New("squeue is not in PATH: run this on a machine that has the commands of the Slurm")
		case err != nil:
			return Job{}, fmt.Errorf("squeue: %w: %s", err, text)
		}
		line, _, _ := strings.Cut(text, "\n")
		if values[field] = strings.TrimSpace(line); values[field] == "(null)" {
			values[field] = ""
		}
	}
	j := Job{ID: id, Name: values["Name"], User: values["UserName"], State: values["State"], Reason: values["Reason"], Nodes: values["NodeList"]}
	said, err := words.ParseBoth(values["admin_comment"], values["Comment"])
	if err != nil || said.Request == nil {
		return j, err
	}
	j.Muster, j.Why, j.Held = true, said.Why, said.Request.Held
	j.GPUs, j.Memory, j.Mode = said.Request.GPUs, said.Request.MemoryMB<<20, string(said.Request.Mode)
	j.Terms = slurmopt.TermsWords(&said.Request.Terms)
	j.Alternatives, j.Chosen = said.Request.Or, said.Request.As
	if said.Answer != nil {
		j.Why = said.Answer.Why
		for _, d := range said.Answer.Devices {
			j.Borrowed = append(j.Borrowed, d.String())
		}
	}
	return j, nil
}

// WriteText tells people of a job, a line for each fact.
func (j *Job) WriteText(w io.Writer) error {
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
		asks := units.Plural(j.GPUs, "GPU") + " anywhere"
		if j.Memory > 0 {
			asks += fmt.Sprintf(", %d MB of each", j.Memory>>20)
		}
		f.Add("asks", "%s", report.Join(" ", append([]string{asks}, j.Terms...)...))
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
