// Package engine talks to a real Slurm: it reads jobs, nodes, partitions and reservations, and
// places, holds, comments on and releases jobs. It does so over REST, and with scontrol for what
// REST cannot do: tasks of arrays, and everything if there is no slurmrestd.
//
// It asks Slurm for its release; what differs between releases is in slurm/release. It refuses a
// release that is not known there, and every answer with a warning: slurmrestd accepts fields that
// it does not know with a warning and does the rest, which would start a job on a wrong node.
//
// Reading is lenient, since releases add fields; what is missing is zero.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"muster/policy"
	"muster/slurm"
	"muster/slurm/release"
)

// Options say how to reach a Slurm.
type Options struct {
	// Command makes a command that runs one of Slurm's programs; nil is exec.CommandContext.
	Command func(ctx context.Context, name string, args ...string) *exec.Cmd
	// Address is that of slurmrestd, such as http://127.0.0.1:6820; "" for none. User is the user
	// of Token.
	Address, User string
	// Token returns a token. It is called again when slurmrestd refuses the last one.
	Token func(ctx context.Context) (string, error)
	// Timeout is how long a request may take; 0 is 20 s.
	Timeout time.Duration
}

// Engine is a client of one Slurm. Its methods may be called concurrently.
type Engine struct {
	o       Options
	release *release.Release
	site    slurm.Site
	http    http.Client
	token   tokenKeeper
}

// ErrUnknown is wrapped by errors of requests that may or may not have been carried out, because no
// answer came. Any other error means that nothing was done.
var ErrUnknown = errors.New("whether it was done is not known")

// New asks a Slurm for its release and configuration, and returns a client for it.
func New(ctx context.Context, o Options) (*Engine, error) {
	if o.Command == nil {
		o.Command = exec.CommandContext
	}
	if o.Timeout == 0 {
		o.Timeout = 20 * time.Second
	}
	e := &Engine{o: o}
	e.http.Timeout = o.Timeout
	e.http.Transport = &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 5 * time.Second}
	if err := e.readConfig(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Release is the release of Slurm that runs.
func (e *Engine) Release() *release.Release { return e.release }

// Version is Slurm's own name for its version: 26.05.5.
func (e *Engine) Version() string { return e.site.Version }

// Site is what slurm.conf says.
func (e *Engine) Site() slurm.Site { return e.site }

// REST says whether requests go over REST.
func (e *Engine) REST() bool { return e.o.Address != "" }

// readConfig asks scontrol for release and configuration.
func (e *Engine) readConfig(ctx context.Context) error {
	text, err := e.scontrol(ctx, "show", "config")
	if err != nil {
		return fmt.Errorf("asking Slurm for its configuration: %w", err)
	}
	if e.site, err = slurm.ReadSite(text); err != nil {
		return err
	}
	if e.site.Version == "" {
		return errors.New("scontrol show config does not tell Slurm's version: is slurmctld running?")
	}
	e.release, err = release.Of(e.site.Version)
	return err
}

// run runs one of Slurm's commands with some input, and returns its output.
func (e *Engine) run(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	c := e.o.Command(ctx, name, args...)
	var out, stderr strings.Builder
	c.Stdout, c.Stderr = &out, &stderr
	if input != "" {
		c.Stdin = strings.NewReader(input)
	}
	if err := c.Run(); errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not in PATH: run this where Slurm's commands are, or try it in muster slurm emulate -- bash", name)
	} else if err != nil {
		said := strings.Join(strings.Fields(stderr.String()+" "+out.String()), " ")
		if ctx.Err() != nil || strings.Contains(said, "Unable to contact slurm controller") {
			return "", fmt.Errorf("%s: %w: %s", name, ErrUnknown, shorten(said))
		}
		return "", fmt.Errorf("%s: %s (%v)", name, shorten(said), err)
	}
	return out.String(), nil
}

func (e *Engine) scontrol(ctx context.Context, args ...string) (string, error) {
	return e.run(ctx, "", "scontrol", args...)
}

func shorten(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// Place gives a held job its nodes and releases it.
func (e *Engine) Place(ctx context.Context, p slurm.Place) error {
	if !e.REST() || p.As != nil || p.Job.Array != 0 && p.Job.ID == p.Job.Array {
		return e.placeByCommand(ctx, p)
	}
	update := e.release.Placement(p.Nodes, p.Comment)
	if e.release.Words.AdminComment == "" {
		update["comment"] = p.Comment
	}
	if len(p.Nodes) > 1 && p.CPUsPerNode > 1 {
		update["minimum_cpus_per_node"] = p.CPUsPerNode
	}
	return e.update(ctx, p.Job, update)
}

// placeByCommand places a job with scontrol: if there is no REST, if what the job asks for changes,
// and for the last task of an array, which shares its number with the array, so that REST would
// change the whole array.
func (e *Engine) placeByCommand(ctx context.Context, p slurm.Place) error {
	ref := p.Job.String()
	n := len(p.Nodes)
	args := []string{"update", "jobid=" + ref, "NodeList=" + strings.Join(p.Nodes, ","), fmt.Sprintf("NumNodes=%d-%d", n, n), "AdminComment=" + p.Comment}
	if n > 1 && p.CPUsPerNode > 1 {
		args = append(args, fmt.Sprintf("MinCPUsNode=%d", p.CPUsPerNode))
	}
	if p.As != nil {
		args = append(args, changes(p)...)
	}
	if _, err := e.scontrol(ctx, args...); err != nil {
		return err
	}
	_, err := e.scontrol(ctx, "release", ref)
	return err
}

// changes are scontrol's arguments for what a job asks for from now on.
func changes(p slurm.Place) []string {
	list := []string{fmt.Sprintf("NumTasks=%d", p.As.Tasks), fmt.Sprintf("NumCPUs=%d", p.As.CPUs)}
	if len(p.Nodes) == 1 || p.CPUsPerNode <= 1 {
		list = append(list, fmt.Sprintf("MinCPUsNode=%d", max(1, p.CPUsPerNode)))
	}
	if p.As.TimeLimit > 0 {
		list = append(list, fmt.Sprintf("TimeLimit=%d", int((p.As.TimeLimit+time.Minute-1)/time.Minute)))
	}
	if p.As.GPUs > 0 {
		list = append(list, fmt.Sprintf("TresPerNode=gres/gpu:%d", p.As.GPUs))
	}
	if p.As.Licences != nil {
		list = append(list, "Licenses="+*p.As.Licences)
	}
	return list
}

// Hold holds a job that has not started, as its user would. REST can only hold as an administrator
// does, and such a hold is for administrators to release.
func (e *Engine) Hold(ctx context.Context, job slurm.Ref) error {
	_, err := e.scontrol(ctx, "uhold", job.String())
	return err
}

// Handover releases a job to Slurm's own scheduler, and says why in its comment.
func (e *Engine) Handover(ctx context.Context, job slurm.Ref, comment string) error {
	if !e.REST() || job.Array == job.ID || e.release.Words.AdminComment == "" {
		if _, err := e.scontrol(ctx, "update", "jobid="+job.String(), "AdminComment="+comment); err != nil {
			return err
		}
		_, err := e.scontrol(ctx, "release", job.String())
		return err
	}
	return e.update(ctx, job, map[string]any{"hold": false, e.release.Words.AdminComment: comment})
}

// Comment writes a job's comment.
func (e *Engine) Comment(ctx context.Context, job slurm.Ref, text string) error {
	if !e.REST() || job.Array == job.ID {
		_, err := e.scontrol(ctx, "update", "jobid="+job.String(), "AdminComment="+text)
		return err
	}
	field := e.release.Words.AdminComment
	if field == "" {
		field = "comment"
	}
	return e.update(ctx, job, map[string]any{field: text})
}

// Split takes tasks out of an array, so that each becomes a job with a number of its own. A task
// leaves its array when one of its own fields is set, even to the value that it has: here, whether
// its nodes must be contiguous.
func (e *Engine) Split(ctx context.Context, s slurm.Split) error {
	same := 0
	if s.Contiguous {
		same = 1
	}
	var b strings.Builder
	for _, t := range s.Tasks {
		fmt.Fprintf(&b, "update jobid=%d_%d Contiguous=%d\n", s.Array, t, same)
	}
	b.WriteString("quit\n")
	_, err := e.run(ctx, b.String(), "scontrol", "-Q")
	return err
}

// Stop suspends, requeues or cancels a running job. A job that is requeued is held.
func (e *Engine) Stop(ctx context.Context, s slurm.Stop) error {
	var err error
	switch s.How {
	case policy.Suspend:
		if err = e.Comment(ctx, s.Job, s.Comment); err == nil {
			_, err = e.scontrol(ctx, "suspend", s.Job.String())
		}
	case policy.Requeue:
		_, err = e.scontrol(ctx, "requeuehold", s.Job.String())
	default:
		_, err = e.run(ctx, "", "scancel", s.Job.String())
	}
	return err
}

// Resume resumes a suspended job. Slurm does so even if others have its processors.
func (e *Engine) Resume(ctx context.Context, job slurm.Ref, comment string) error {
	if _, err := e.scontrol(ctx, "resume", job.String()); err != nil {
		return err
	}
	return e.Comment(ctx, job, comment)
}
