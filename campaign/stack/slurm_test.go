package stack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/ask"
	"muster/node/gateway"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
	"muster/slurm/spank"
	"muster/wire/status"
)

// slurmCluster is a real Slurm with Muster's plug-in, nodes that lend GPUs that Slurm does not
// know, and the driver, all as processes.
type slurmCluster struct {
	*world
	slurm   *emulate.Cluster
	dir     string
	agents  string // where the driver listens to nodes
	tls     bool   // they are known by certificates there
	driver  *program
	lenders map[string]*theNode
	// gateways are the lenders' addresses. They stay the same, because grants contain them.
	gateways map[string]string
	scripts  int // of jobs, so far
	number   int64
}

var slurmClusters atomic.Int64 // so far

// lentDevice is what each lender has.
const lentDevice = "soft:memory=128M,name=C"

func newSlurmCluster(t *testing.T, o emulate.Options, lenders ...string) *slurmCluster {
	t.Helper()
	return startSlurmCluster(t, &slurmCluster{}, o, lenders...)
}

// startSlurmCluster starts a cluster of which some fields are set.
func startSlurmCluster(t *testing.T, c *slurmCluster, o emulate.Options, lenders ...string) *slurmCluster {
	t.Helper()
	emulatetest.Need(t, o.Release)
	c.world, c.lenders, c.gateways, c.number = newWorld(t), map[string]*theNode{}, map[string]string{}, slurmClusters.Add(1)
	var err error
	if c.dir, err = os.MkdirTemp("/tmp", "muster-slurm-stack-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(c.dir) })
	os.Chmod(c.dir, 0o755)
	c.agents = "unix:" + filepath.Join(c.dir, "agents.sock")
	if c.tls {
		c.agents = anyPort(t)
	}
	authority, _, err := gateway.OpenAuthority(c.dir, time.Now())
	if err == nil {
		_, err = authority.Head([]string{"127.0.0.1"}, 1)
	}
	for _, name := range lenders {
		if err == nil {
			_, err = authority.Node([]string{name, "127.0.0.1"}, 1)
		}
	}
	if err == nil {
		err = os.Mkdir(c.grants(), 0o755)
	}
	library, lua := filepath.Join(c.dir, spank.Library), filepath.Join(c.dir, "muster.lua")
	var text string
	if err == nil {
		text, err = spank.Script(spank.Settings{Admins: []int{emulate.UserID(o)}})
	}
	if err == nil {
		err = os.WriteFile(lua, []byte(text), 0o644)
	}
	if err == nil {
		err = spank.Build(t.Context(), o.Release, emulatetest.Tree(t, o.Release).Include(), library)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.JobSubmit = spank.Hook(lua) + "return slurm.SUCCESS\n"
	o.PlugStack = spank.PlugStack(library, made("muster"), c.nodeSocket("%n"))
	o.Extra += "KillWait=1\n"
	c.slurm = emulatetest.Start(t, o)
	c.drive()
	for _, name := range lenders {
		c.lend(name)
	}
	return c
}

func (c *slurmCluster) grants() string { return filepath.Join(c.dir, "grants") }

func (c *slurmCluster) nodeSocket(name string) string {
	return fmt.Sprintf("@muster-stack-slurm-%d-%d-%s", os.Getpid(), c.number, name)
}

// drive starts the driver.
func (c *slurmCluster) drive(more ...string) {
	c.Helper()
	vouches := []string{"--authority", filepath.Join(c.dir, "ca.pem")}
	if c.tls {
		vouches = []string{"--tls-dir", filepath.Join(c.dir, "head-127.0.0.1")}
	}
	args := append([]string{"slurm", "drive", "--agents", c.agents, "--grants", c.grants(),
		"--socket", filepath.Join(c.dir, "driver.sock"), "--poll", "100ms", "--alive", filepath.Join(c.dir, "alive"), "--record", filepath.Join(c.dir, "record.jsonl"),
		fmt.Sprintf("--one-user=%t", c.slurm.OneUser)}, append(vouches, more...)...)
	if address, _ := c.slurm.REST(); address != "" {
		args = append(args, "--rest", address, "--rest-user", c.slurm.User, "--token-file", c.slurm.TokenFile())
	}
	d := c.executeWith(slices.DeleteFunc(c.slurm.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), made("muster"), args...)
	c.driver = d
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("the driver said:\n%s", d.output)
		}
		_ = d.cmd.Process.Kill()
		<-d.exited
	})
}

// killDriver ends the driver at once.
func (c *slurmCluster) killDriver() {
	_ = c.driver.cmd.Process.Kill()
	<-c.driver.exited
}

// lend starts a node that lends, or starts it again.
func (c *slurmCluster) lend(name string) {
	c.Helper()
	c.lendAs(name, name)
}

// lendAs starts a node that lends and has the certificate of another.
func (c *slurmCluster) lendAs(name, certificate string) {
	c.Helper()
	if c.gateways[name] == "" {
		c.gateways[name] = anyPort(c.T)
	}
	n := c.start("--socket", c.nodeSocket(name), "--name", name, "--head", c.agents, "--spool", filepath.Join(c.dir, "spool-"+name), "--devices", lentDevice,
		"--listen", c.gateways[name], "--tls-dir", filepath.Join(c.dir, "node-"+certificate), "--grants", "required")
	n.socket = c.nodeSocket(name)
	c.lenders[name] = n
}

func (c *slurmCluster) must(name string, args ...string) string {
	c.Helper()
	out, err := c.try(name, args...)
	if err != nil {
		c.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return out
}

// try runs a command of Slurm, and returns what it writes to both outputs if it fails.
func (c *slurmCluster) try(name string, args ...string) (string, error) {
	command := c.slurm.Command(name, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	text := strings.TrimSpace(string(out))
	if err != nil {
		text += "\n" + stderr.String()
	}
	return text, err
}

func (c *slurmCluster) state(id string) string {
	return c.must("squeue", "-h", "-j", id, "-t", "all", "-o", "%T")
}

// sbatch submits a script, which writes to the file that is returned.
func (c *slurmCluster) sbatch(script string, options ...string) (id, out string) {
	c.Helper()
	id, out, err := c.trySbatch(script, options...)
	if err != nil {
		c.Fatalf("sbatch %q: %v: %s", options, err, id)
	}
	return id, out
}

// trySbatch is sbatch that may fail; id is then what it said.
func (c *slurmCluster) trySbatch(script string, options ...string) (id, out string, err error) {
	c.Helper()
	c.scripts++
	name := filepath.Join(c.dir, fmt.Sprintf("job-%d", c.scripts))
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		c.Fatal(err)
	}
	args := append([]string{"--parsable", "-o", name + ".out"}, options...)
	id, err = c.try("sbatch", append(args, name)...)
	return id, name + ".out", err
}

// ends waits for the end of a job, and returns what it wrote.
func (c *slurmCluster) ends(id, out string, states ...string) string {
	c.Helper()
	last := ""
	c.eventually("job "+id+" ends as "+strings.Join(states, " or "), func() bool {
		last = c.state(id)
		return slices.Contains(states, last) || !slices.Contains([]string{"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}, last)
	})
	text, err := os.ReadFile(out)
	if !slices.Contains(states, last) {
		c.Fatalf("job %s is %s, and wrote %s, %v", id, last, text, err)
	}
	return string(text)
}

// uses waits until a job's program uses a lender's GPU.
func (c *slurmCluster) uses(id, out, lender string) {
	c.Helper()
	c.eventually("job "+id+" uses the GPU", func() bool {
		if state := c.state(id); state != "PENDING" && state != "RUNNING" {
			text, _ := os.ReadFile(out)
			c.Fatalf("the job is %s: %s", state, text)
		}
		return len(c.lenders[lender].status().Clients) > 0
	})
}

// free waits until nothing is lent any longer: the nodes have no clients and no grants, no process
// serves a step, and the folder for grants is empty.
func (c *slurmCluster) free() {
	c.Helper()
	for name, n := range c.lenders {
		n.idle()
		c.eventually("node "+name+" knows no grant", func() bool { return len(c.grantsOf(name)) == 0 })
	}
	c.eventually("nothing serves a step", func() bool {
		return !strings.Contains(c.must("ps", "axww", "-o", "args"), "muster slurm serve")
	})
	c.eventually("no grant is left", func() bool {
		entries, err := os.ReadDir(c.grants())
		return err == nil && len(entries) == 0
	})
}

func (c *slurmCluster) grantsOf(name string) []status.Grant {
	c.Helper()
	g, err := ask.Grants(c.lenders[name].socket)
	if err != nil {
		c.Fatal(err)
	}
	return g.Grants
}

// why is what squeue says of a job.
func (c *slurmCluster) why(id string) string {
	return c.must("squeue", "-h", "-j", id, "-t", "all", "-O", "admin_comment:400") + c.must("squeue", "-h", "-j", id, "-t", "all", "-O", "Comment:400")
}

// needAllSlurms skips long tests unless they were asked for, as in make soak.
func needAllSlurms(t *testing.T) {
	t.Helper()
	if os.Getenv("MUSTER_SOAK") == "" {
		need.Missing(t, need.Soak, "this takes a minute or so: MUSTER_SOAK=1 runs it, and so does make soak")
	}
}

// Unmodified CUDA programs in jobs on nodes without a GPU run on borrowed ones, through sbatch and
// srun, with every release; everything is returned.
func TestSlurmJobsBorrowGPUs(t *testing.T) {
	t.Parallel()
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			if r != release.Newest() {
				needAllSlurms(t)
			}
			c := newSlurmCluster(t, emulate.Options{Release: r, Nodes: 8}, "n7", "n8")
			c.runsExamples()
			c.runsBySrun()
			c.free()
			if r != release.Newest() {
				return
			}
			c.runsBySalloc()
			c.runsOnLender()
			c.runsElements()
			c.shares()
			c.refuses()
			c.endsFreely("scancel", func(id string) { c.must("scancel", id) }, "CANCELLED")
			c.endsFreely("a program that is killed", func(id string) { c.must("scancel", "-b", "-s", "KILL", id) }, "FAILED", "CANCELLED")
			c.endsFreely("a lender that is killed", func(string) {
				c.lenders["n7"].kill()
				c.lend("n7")
			}, "FAILED")
			c.requeues()
			c.endsFreely("a node that fails", func(string) {
				if err := c.slurm.KillNode("n2"); err != nil {
					c.Fatal(err)
				}
				c.must("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
			}, "NODE_FAIL")
			c.goesToSimulator()
		})
	}
}

// runsExamples runs an example from a batch script, and from a step of it with two tasks.
func (c *slurmCluster) runsExamples() {
	c.Helper()
	program := example(c.T, "va") + " --size 16k"
	id, out := c.sbatch("echo $RCUDA_DEVICE_COUNT $RCUDA_DEVICE_0 $RCUDA_DEVICE_1\n"+program+"\nsrun -n2 "+program+"\n", "--rgpu=2", "-n2", "-w", "n2")
	text := c.ends(id, out, "COMPLETED")
	if !strings.HasPrefix(text, "2 n7:0 n8:0\n") || strings.Count(text, "right") != 3 {
		c.Errorf("the job wrote %s", text)
	}
	// Each node of a job has GPUs of its own, and one may have none.
	id, out = c.sbatch("srun sh -c 'echo $SLURMD_NODENAME $RCUDA_DEVICE_COUNT $RCUDA_DEVICE_0'", "--gres=rgpu:2", "-N3", "-n3", "-w", "n[1-3]")
	text = c.ends(id, out, "COMPLETED")
	for _, line := range []string{"n1 1 n7:0\n", "n2 1 n8:0\n", "n3 0\n"} {
		if !strings.Contains(text, line) {
			c.Errorf("the tasks wrote %q, which lacks %q", text, line)
		}
	}
}

// runsElements runs programs whose elements are on all nodes of an allocation, in Go and in C, from a
// batch script and from salloc: each node of Slurm has a node of Muster that starts elements.
func (c *slurmCluster) runsElements() {
	c.Helper()
	if err := buildElements(); err != nil {
		c.Fatal(err)
	}
	authority, _, err := gateway.OpenAuthority(c.dir, time.Now())
	if err == nil {
		_, err = authority.Node([]string{"127.0.0.1"}, 1)
	}
	if err != nil {
		c.Fatal(err)
	}
	var gateways []string
	for _, name := range []string{"n1", "n2", "n3"} {
		n := c.start("--socket", c.nodeSocket("elements-"+name), "--name", name, "--devices", "soft:memory=64M",
			"--listen", "127.0.0.1:0", "--tls-dir", filepath.Join(c.dir, "node-127.0.0.1"), "--ivm", "--ivm-root")
		defer n.kill()
		gateways = append(gateways, name+"="+n.gateway)
	}
	run := fmt.Sprintf("MUSTER_GATEWAYS=%s exec %s run --socket %s$SLURMD_NODENAME --nodes job -- ", strings.Join(gateways, ","), made("muster"), c.nodeSocket("elements-"))
	id, out := c.sbatch(run+made("balanced")+" guided", "-N3", "-n3", "-w", "n[1-3]")
	if text := c.ends(id, out, "COMPLETED"); text != "on 6 devices\nPASS\n" {
		c.Errorf("the job wrote %q", text)
	}
	if text := c.must("salloc", "-N3", "-n3", "-w", "n[1-3]", "srun", "-N1", "-n1", "sh", "-c", run+made("dmm")+" 128 4"); !strings.Contains(text, "PASS 128 x 128 in 16 tiles on 3 nodes") {
		c.Errorf("salloc wrote %q", text)
	}
}

// runsBySrun runs an example as a job of its own.
func (c *slurmCluster) runsBySrun() {
	c.Helper()
	if out := c.must("srun", "--rgpu=1", "-w", "n3", example(c.T, "va"), "--size", "16k"); !strings.Contains(out, "right") {
		c.Errorf("srun wrote %s", out)
	}
}

func (c *slurmCluster) runsBySalloc() {
	c.Helper()
	if out := c.must("salloc", "--rgpu=1", "-w", "n4", "srun", example(c.T, "va"), "--size", "16k"); !strings.Contains(out, "right") {
		c.Errorf("salloc wrote %s", out)
	}
}

// runsOnLender runs a job where the GPU is: it is used without the network.
func (c *slurmCluster) runsOnLender() {
	c.Helper()
	id, out := c.sbatch("echo $RCUDA_DEVICE_0\nexec "+made("small")+" endless", "--rgpu=1", "-w", "n8")
	c.uses(id, out, "n8")
	file := filepath.Join(c.grants(), id+".0", "n8")
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "address") {
		c.Errorf("the program uses its own node's GPU over the network: %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		c.Errorf("the grant's file: %v, %v", info, err)
	}
	c.must("scancel", id)
	if text := c.ends(id, out, "CANCELLED"); !strings.HasPrefix(text, "n8:0\n") {
		c.Errorf("the job wrote %s", text)
	}
	c.free()
}

// shares runs two jobs on one GPU at a time, while one that wants both GPUs alone waits.
func (c *slurmCluster) shares() {
	c.Helper()
	var ids []string
	for range 2 {
		id, _ := c.sbatch("exec "+made("small")+" endless", "--rgpu=1:40M", "-w", "n2")
		ids = append(ids, id)
	}
	c.eventually("two jobs share the GPU", func() bool { return len(c.lenders["n7"].status().Clients) == 2 })
	for _, g := range c.grantsOf("n7") {
		if g.Devices[0].Memory != 40<<20 {
			c.Errorf("a grant of the shared GPU: %+v", g)
		}
	}
	id, out := c.sbatch("exec "+made("small")+" sums", "--rgpu=2:40M", "--rcuda-mode=excl", "-w", "n3")
	c.eventually("squeue says why the job waits", func() bool { return strings.Contains(c.why(id), "muster:wait why=") })
	for _, args := range [][]string{{"slurm", "job", id}, {"job", id}} {
		if text := c.besides(args...); !strings.Contains(text, "state      PENDING (JobHeldUser)\nwhy        ") || !strings.Contains(text, "asks       2 GPUs anywhere, 40 MB of each\n") {
			c.Errorf("muster %q says %s", args, text)
		}
	}
	c.must("scancel", ids...)
	c.ends(id, out, "COMPLETED")
	if text := c.besides("job", id); !strings.Contains(text, "GPU        1: n8:0\n") {
		c.Errorf("muster job says %s", text)
	}
	if text := c.besides("slurm", "status", "--socket", filepath.Join(c.dir, "driver.sock")); !strings.Contains(text, "; 2 GPUs can be borrowed from 2 nodes, jobs have borrowed ") {
		c.Errorf("muster slurm status says %s", text)
	}
	if text := c.besides("slurm"); !strings.Contains(text, "This machine has slurm") {
		c.Errorf("muster slurm says %s", text)
	}
	c.free()
}

// besides runs muster as a user of the cluster does.
func (c *slurmCluster) besides(args ...string) string {
	c.Helper()
	command := exec.Command(made("muster"), args...)
	command.Env = c.slurm.Environ()
	out, err := command.CombinedOutput()
	if err != nil {
		c.Fatalf("muster %q: %v: %s", args, err, out)
	}
	return string(out)
}

// goesToSimulator asks what another policy would have done.
func (c *slurmCluster) goesToSimulator() {
	c.Helper()
	text := c.besides("sim", "--workload", filepath.Join(c.dir, "record.jsonl"), "--policy", "easy,mosaic")
	if !strings.Contains(text, "\nmosaic ") {
		c.Errorf("muster sim says %s", text)
	}
}

// refuses submits what makes no sense.
func (c *slurmCluster) refuses() {
	c.Helper()
	for option, want := range map[string]string{
		"--muster-or=-n many": "--muster-or: ",
		"--gpus=1":            "either --rgpu or --gres=gpu",
	} {
		if out, err := c.try("sbatch", "--rgpu=1", option, "--wrap", "true"); err == nil || !strings.Contains(out, want) {
			c.Errorf("sbatch %s: %v: %s", option, err, out)
		}
	}
	c.must("scancel", c.must("sbatch", "--parsable", "-H", "--rgpu=1", "--muster-or=-n 4 -t 10", "--wrap", "true"))
}

// endsFreely ends a job that uses a GPU.
func (c *slurmCluster) endsFreely(how string, end func(id string), states ...string) {
	c.Helper()
	id, out := c.sbatch("exec "+made("small")+" endless", "--rgpu=1", "--no-requeue", "-w", "n2")
	c.uses(id, out, "n7")
	end(id)
	c.ends(id, out, states...)
	c.free()
}

// requeues puts a running job back: it waits for Muster, and is placed again.
func (c *slurmCluster) requeues() {
	c.Helper()
	id, out := c.sbatch("if [ -n \"$SLURM_RESTART_COUNT\" ]; then exec "+made("small")+" sums; fi; exec "+made("small")+" endless", "--rgpu=1", "--requeue", "-w", "n2")
	c.uses(id, out, "n7")
	c.must("scontrol", "requeue", id)
	c.eventually("the job is back", func() bool { return c.state(id) == "PENDING" })
	c.free()
	c.must("scontrol", "update", "JobId="+id, "StartTime=now") // Slurm waits two minutes otherwise
	if text := c.ends(id, out, "COMPLETED"); !strings.Contains(text, "right") {
		c.Errorf("the requeued job wrote %s", text)
	}
	c.free()
}

// A policy that supports alternatives grants a job the one that can start, and Slurm's record, the
// script and its steps reflect that one.
func TestSlurmAlternatives(t *testing.T) {
	t.Parallel()
	c := newSlurmCluster(t, emulate.Options{Release: release.Newest(), Nodes: 4, Rootless: true}, "n4")
	c.killDriver()
	c.drive("--policy", "auction")
	busy, _ := c.sbatch("exec "+made("small")+" endless", "--rgpu=1", "-w", "n1")
	c.eventually("the GPU is in use", func() bool { return len(c.grantsOf("n4")) == 1 })
	const show = "echo as=$MUSTER_OR gpus=$RCUDA_DEVICE_COUNT nodes=$SLURM_JOB_NUM_NODES tasks=$SLURM_NTASKS\nsrun sh -c 'echo task'"
	id, out := c.sbatch(show, "--rgpu=1", "-t", "60", "--muster-or=-n 1000", "--muster-or=-N 2 -n 6 -t 5")
	if text := c.ends(id, out, "COMPLETED"); !strings.HasPrefix(text, "as=2 gpus= nodes=2 tasks=6\n") || strings.Count(text, "task\n") != 6 {
		t.Errorf("the job wrote %s", text)
	}
	if record := c.must("scontrol", "show", "job", id); !strings.Contains(record, "TimeLimit=00:05:00") {
		t.Errorf("the job is %s", record)
	}
	c.must("scancel", busy)
	c.free()
	id, out = c.sbatch("echo as=$MUSTER_OR gpus=$RCUDA_DEVICE_COUNT; exec "+made("small")+" sums", "-N", "9", "--muster-or=--rgpu=1:40M -n 1")
	if text := c.ends(id, out, "COMPLETED"); !strings.HasPrefix(text, "as=1 gpus=1\n") || !strings.Contains(text, "right") {
		t.Errorf("the job wrote %s", text)
	}
	c.free()
}

// The driver is killed while jobs borrow, and while others wait: running jobs continue, none is
// lost, and everything is returned.
func TestSlurmDriverIsKilled(t *testing.T) {
	t.Parallel()
	c := newSlurmCluster(t, emulate.Options{Release: release.Newest(), Nodes: 4}, "n4")
	runs, out := c.sbatch("read x < "+filepath.Join(c.dir, "go")+"; exec "+made("small")+" sums", "--rgpu=1", "-w", "n1")
	pipe(c.T, filepath.Join(c.dir, "go"))
	c.eventually("the job runs", func() bool { return c.state(runs) == "RUNNING" && len(c.grantsOf("n4")) == 1 })
	waits, waitsOut := c.sbatch("exec "+made("small")+" sums", "--rgpu=1", "-w", "n2")
	c.killDriver()
	// This is what a driver leaves that is killed between lending and placing.
	if err := os.Mkdir(filepath.Join(c.grants(), waits+".0"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.drive()
	c.eventually("the driver knows what runs", func() bool {
		entries, err := os.ReadDir(c.grants())
		return err == nil && len(entries) == 1 && entries[0].Name() == runs+".0"
	})
	if g := c.grantsOf("n4"); len(g) != 1 || c.state(waits) != "PENDING" {
		t.Errorf("the grants are %+v, and the second job is %s", g, c.state(waits))
	}
	if err := os.WriteFile(filepath.Join(c.dir, "go"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, file := range map[string]string{runs: out, waits: waitsOut} {
		if text := c.ends(id, file, "COMPLETED"); !strings.Contains(text, "right") {
			t.Errorf("job %s wrote %s", id, text)
		}
	}
	c.free()
	// A job that ends while no driver runs returns its GPU to the next driver.
	last, lastOut := c.sbatch("exec "+made("small")+" endless", "--rgpu=1", "-w", "n1")
	c.uses(last, lastOut, "n4")
	c.killDriver()
	c.must("scancel", last)
	c.ends(last, lastOut, "CANCELLED")
	c.drive()
	c.free()
}

// A driver with fallback that is killed leaves its waiting jobs to Slurm's own scheduler, except
// those that need borrowed GPUs. Another driver that starts in time takes them instead.
func TestSlurmFallsBack(t *testing.T) {
	t.Parallel()
	c := newSlurmCluster(t, emulate.Options{Release: release.Newest(), Nodes: 2, CPUs: 2}, "n2")
	c.killDriver()
	c.drive("--fallback", "slurm", "--fallback-after", "20s", "--policy", "fcfs")
	busy, busyOut := c.sbatch("exec "+made("small")+" endless", "--rgpu=1", "-N1", "--exclusive", "-w", "n1")
	c.uses(busy, busyOut, "n2")
	borrower, _ := c.sbatch("true", "--rgpu=1")
	plain, plainOut := c.sbatch("true", "--muster-or=-n 2", "-N2") // Muster's, since it has an alternative
	c.eventually("the job waits for Muster", func() bool { return strings.Contains(c.why(plain), "muster:wait") })
	c.killDriver()
	c.drive("--fallback", "slurm", "--fallback-after", "1s", "--policy", "fcfs") // in time
	c.eventually("it is there", func() bool { return strings.Contains(c.driver.output.String(), "driving Slurm") })
	if reason := c.must("squeue", "-h", "-j", plain, "-o", "%r"); reason != "JobHeldUser" {
		t.Errorf("the job that waits is %s", reason)
	}
	c.killDriver()
	c.eventually("the job is Slurm's", func() bool { return c.must("squeue", "-h", "-j", plain, "-o", "%r") != "JobHeldUser" })
	c.must("scancel", busy)
	c.ends(plain, plainOut, "COMPLETED")
	if reason := c.must("squeue", "-h", "-j", borrower, "-o", "%r"); reason != "JobHeldUser" {
		t.Errorf("the job that borrows is %s", reason)
	}
	c.must("scancel", borrower)
	c.drive()
	c.free()
}

// pipe makes a pipe with a name.
func pipe(t *testing.T, path string) {
	t.Helper()
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Nodes of other machines lend over TLS: each is known by its certificate, and one with that of another node is
// refused. A lender and a driver that are killed find each other again.
func TestSlurmLendersOverTLS(t *testing.T) {
	t.Parallel()
	c := startSlurmCluster(t, &slurmCluster{tls: true}, emulate.Options{Release: release.Newest(), Nodes: 3}, "n2")
	c.lendAs("n3", "n2")
	runs := func() {
		t.Helper()
		id, out := c.sbatch("echo $RCUDA_DEVICE_0; exec "+made("small")+" sums", "--rgpu=1", "-w", "n1")
		if text := c.ends(id, out, "COMPLETED"); !strings.HasPrefix(text, "n2:0\n") || !strings.Contains(text, "right") {
			t.Errorf("the job wrote %s", text)
		}
	}
	runs()
	c.eventually("the node with another's certificate is refused", func() bool {
		return strings.Contains(c.driver.output.String(), `not for node \"n3\"`)
	})
	c.killDriver()
	c.lenders["n2"].kill()
	c.drive()
	c.lend("n2")
	runs()
	c.free()
}
