package stack

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/node/gateway"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
	"muster/slurm/spank"
	"muster/slurm/words"
)

// slurmCluster is a Slurm without GPUs, and a node that lends it some. The test does what the
// driver does: it makes the grants, and answers.
type slurmCluster struct {
	*grantCluster
	slurm *emulate.Cluster
}

// Jobs of a Slurm whose nodes have no GPU run CUDA programs, and the GPU is free after them,
// whatever their end is.
func TestSlurmJobsBorrowGPUs(t *testing.T) {
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			c := newSlurmCluster(t, r)
			c.refusesAlternatives()
			c.runsExamples()
			c.endsFreely("scancel", func(id string) { c.must("scancel", id) }, "CANCELLED")
			c.endsFreely("a program that is killed", func(id string) { c.must("scancel", "-b", "-s", "KILL", id) }, "FAILED", "CANCELLED")
			c.requeues()
			c.endsFreely("a node that fails", func(string) {
				if err := c.slurm.KillNode("n2"); err != nil {
					c.Fatal(err)
				}
			})
		})
	}
}

func newSlurmCluster(t *testing.T, r *release.Release) *slurmCluster {
	t.Helper()
	g := &grantCluster{dir: t.TempDir(), world: newWorld(t)}
	authority, _, err := gateway.OpenAuthority(g.dir, time.Now())
	if err == nil {
		_, err = authority.Node([]string{"127.0.0.1"}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.lend("--grants", "required")
	library, lua := filepath.Join(g.dir, spank.Library), filepath.Join(g.dir, "muster.lua")
	text, err := spank.Script(spank.Settings{})
	if err == nil {
		err = os.WriteFile(lua, []byte(text), 0o644)
	}
	if err == nil {
		err = spank.Build(t.Context(), r, emulatetest.Tree(t, r).Include(), library)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &slurmCluster{grantCluster: g}
	c.slurm = emulatetest.Start(t, emulate.Options{
		Release: r, Nodes: 3, JobSubmit: spank.Hook(lua) + "return slurm.SUCCESS\n", NoREST: true,
		PlugStack: spank.PlugStack(library, made("muster"), ""), Extra: "KillWait=1\n",
	})
	return c
}

func (c *slurmCluster) must(name string, args ...string) string {
	c.Helper()
	command := c.slurm.Command(name, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		c.Fatalf("%s %q: %v: %s%s", name, args, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

func (c *slurmCluster) state(id string) string {
	return c.must("squeue", "-h", "-j", id, "-t", "all", "-o", "%T")
}

// sbatch submits a script, which writes to the file that is returned.
func (c *slurmCluster) sbatch(script string, options ...string) (id, out string) {
	c.Helper()
	c.grants++
	name := filepath.Join(c.dir, fmt.Sprintf("job-%d", c.grants))
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		c.Fatal(err)
	}
	args := append([]string{"--parsable", "-w", "n2", "-o", name + ".out"}, options...)
	return c.must("sbatch", append(args, name)...), name + ".out"
}

// answer writes what a job gets and releases it, as the driver does.
func (c *slurmCluster) answer(id, node, grant string, start int, devices ...words.Device) {
	c.Helper()
	a := words.Answer{Start: start, Nodes: []string{node}, Devices: devices, Grant: grant, Why: "a test"}
	fmt.Sscan(id, &a.Job)
	said := words.Comment{Request: &words.Request{GPUs: len(devices)}, Answer: &a}
	field := "AdminComment="
	if c.slurm.Release().Words.AdminComment == "" { // REST cannot write the other
		field = "Comment="
	}
	c.must("scontrol", "update", "JobId="+id, field+said.String(), "NodeList="+node)
	c.must("scontrol", "release", id)
}

// grantTo places a job on a node and gives it a device of the lender.
func (c *slurmCluster) grantTo(id, node string, start int) (grantID string) {
	c.Helper()
	file, g := c.admitted("far:0")
	c.answer(id, node, file, start, words.Device{Node: "far"})
	return g.ID
}

func (c *slurmCluster) revoke(grantID string) {
	c.Helper()
	c.muster("grant", "revoke", grantID, "--socket", c.far.socket)
}

func (c *slurmCluster) written(file, what string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.Contains(string(text), what)
}

// unserved says that no process serves a step any more.
func (c *slurmCluster) unserved() {
	c.Helper()
	c.eventually("nothing serves the step", func() bool {
		return !strings.Contains(c.must("ps", "axww", "-o", "args"), "muster slurm serve")
	})
}

// refusesAlternatives submits a job with an alternative that makes no sense.
func (c *slurmCluster) refusesAlternatives() {
	c.Helper()
	out, err := c.slurm.Command("sbatch", "--rgpu=1", "--muster-or=-n many", "--wrap", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--muster-or: ") {
		c.Errorf("sbatch: %v: %s", err, out)
	}
	c.must("scancel", c.must("sbatch", "--parsable", "--rgpu=1", "--muster-or=-n 4 -t 10", "--wrap", "true"))
}

// runsExamples runs an example from a batch script, and from a step of it with two tasks.
func (c *slurmCluster) runsExamples() {
	c.Helper()
	program := example(c.T, "va") + " --size 16k"
	id, out := c.sbatch("echo $RCUDA_DEVICE_COUNT $RCUDA_DEVICE_0\n"+program+"\nsrun -n2 "+program+"\n", "--rgpu=1", "-n2")
	g := c.grantTo(id, "n2", 0)
	c.eventually("the job has ended", func() bool { return c.state(id) == "COMPLETED" || c.state(id) == "FAILED" })
	text, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(text), "1 far:0\n") || strings.Count(string(text), "right") != 3 {
		c.Errorf("the job wrote %s, %v", text, err)
	}
	c.far.idle()
	c.unserved()
	c.revoke(g)
}

// endsFreely ends a job that uses a GPU.
func (c *slurmCluster) endsFreely(how string, end func(id string), states ...string) {
	c.Helper()
	id, out := c.sbatch("exec "+made("small")+" endless", "--rgpu=1", "--no-requeue")
	g := c.grantTo(id, "n2", 0)
	c.uses(id, out)
	end(id)
	c.far.idle()
	c.unserved()
	if len(states) > 0 {
		c.eventually("the job has ended by "+how, func() bool { return strings.Contains(strings.Join(states, " "), c.state(id)) })
	}
	c.revoke(g)
}

// uses waits until a job uses the lender's GPU.
func (c *slurmCluster) uses(id, out string) {
	c.Helper()
	c.eventually("job "+id+" uses the GPU", func() bool {
		if state := c.state(id); state != "PENDING" && state != "RUNNING" {
			text, _ := os.ReadFile(out)
			c.Fatalf("the job is %s: %s", state, text)
		}
		return len(c.far.status().Clients) > 0
	})
}

// requeues puts a running job back. Slurm starts it again at once, and the plug-in puts it back
// until it has an answer for that start.
func (c *slurmCluster) requeues() {
	c.Helper()
	id, out := c.sbatch("if [ -n \"$SLURM_RESTART_COUNT\" ]; then exec "+made("small")+" sums; fi; exec "+made("small")+" endless", "--rgpu=1", "--requeue")
	g := c.grantTo(id, "n2", 0)
	c.uses(id, out)
	c.must("scontrol", "requeue", id)
	c.far.idle()
	c.unserved()
	c.revoke(g)
	c.eventually("the job is back", func() bool { return c.state(id) == "PENDING" })
	// Slurm waits two minutes otherwise. A node that it was on would refuse it within the same second.
	c.must("scontrol", "update", "JobId="+id, "NodeList=n1", "StartTime=now")
	c.eventually("the job waits again", func() bool {
		return strings.Contains(c.must("scontrol", "show", "job", id), "Priority=0 ") && c.state(id) == "PENDING"
	})
	c.must("scontrol", "update", "JobId="+id, "StartTime=now")
	restarts := 0
	for _, word := range strings.Fields(c.must("scontrol", "show", "job", id)) {
		fmt.Sscanf(word, "Restarts=%d", &restarts)
	}
	g = c.grantTo(id, "n3", restarts)
	c.eventually("the job has ended", func() bool { return c.state(id) == "COMPLETED" })
	if !c.written(out, "right") {
		c.Errorf("the requeued job did not write that it is right")
	}
	c.far.idle()
	c.revoke(g)
}
