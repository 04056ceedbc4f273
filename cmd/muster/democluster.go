package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	"muster/node/gateway"
)

// demoMachines are the nodes of the demonstration: one has no GPU.
var demoMachines = []struct{ name, devices string }{
	{"login", "none"},
	{"gpu1", "soft:name=Fast,memory=96M,workers=1,count=1;soft:name=Other,memory=96M,workers=1"},
	{"gpu2", "soft:name=Slow,memory=64M,speed=0.5,workers=1"},
}

// demoJobs are what is submitted: the words of muster submit.
var demoJobs = []struct{ why, line string }{
	{"a program on a node without a GPU uses two of other nodes", "-J borrows -n1 -w login --gres=rgpu:2 -- PROGRAMS/mm --repeat 8 --memory 8M"},
	{"four that share GPUs, each with a part of the memory", "-J shares -n1 --array=1-4 --gres=rgpu:1:24M --rcuda-mode=shar -- PROGRAMS/bs --repeat 10 --memory 8M"},
	{"one that wants three whole GPUs: it waits until they are free", "-J all -n1 --gres=rgpu:3 -- PROGRAMS/va --size 1M"},
	{"one that needs no GPU, when the last has ended", "-J after -n1 --dependency=afterany:LAST -- /bin/echo all is done"},
}

func newDemoCluster() *cobra.Command {
	var programs string
	c := &cobra.Command{
		Use:   "cluster [--programs FOLDER]",
		Short: "Watch a cluster of three nodes, all on this machine",
		Long: `Start the head of a cluster and three nodes on this machine, one without a GPU, submit
real CUDA jobs that borrow and share the software GPUs of the others, and tell what became
of them. Each step is a command that you can type yourself.

The programs are those of make examples. Nothing is left when it ends.`,
		Example: "  muster demo cluster",
		RunE: func(c *cobra.Command, _ []string) error {
			d := &demoCluster{c: c, out: c.OutOrStdout(), programs: programs}
			defer d.end()
			return d.run()
		},
	}
	c.Flags().StringVar(&programs, "programs", "", "the folder of the programs (default: examples/ beside this program)")
	return c
}

// demoCluster is a head and its nodes, as processes.
type demoCluster struct {
	c        *cobra.Command
	out      io.Writer
	programs string
	self     string
	dir      string
	head     string // where it is
	started  []*exec.Cmd
}

func (d *demoCluster) run() (err error) {
	if d.self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if d.programs == "" {
		d.programs = filepath.Join(filepath.Dir(d.self), "examples")
	}
	if _, err := os.Stat(filepath.Join(d.programs, "mm")); err != nil {
		return fmt.Errorf("the programs are not in %s: make examples builds them", d.programs)
	}
	if d.dir, err = os.MkdirTemp("", "muster-demo-"); err != nil {
		return err
	}
	if err := d.start(); err != nil {
		return err
	}
	if err := d.show("nodes"); err != nil {
		return err
	}
	for _, job := range demoJobs {
		fmt.Fprintf(d.out, "\n# %s\n", job.why)
		line := job.line
		if strings.Contains(line, "LAST") {
			line = strings.Replace(line, "LAST", fmt.Sprint(d.lastJob()), 1)
		}
		if err := d.show(append([]string{"submit"}, strings.Fields(strings.ReplaceAll(line, "PROGRAMS", d.programs))...)...); err != nil {
			return err
		}
	}
	fmt.Fprintln(d.out)
	if err := d.show("queue"); err != nil {
		return err
	}
	if err := d.wait(); err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	return d.show("history", "--format", "JobID,JobName,State,Elapsed,NodeList")
}

// start starts the head and the nodes, and waits until they know each other.
func (d *demoCluster) start() error {
	authority, _, err := gateway.OpenAuthority(filepath.Join(d.dir, "certs"), time.Now())
	if err != nil {
		return err
	}
	headDir, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1)
	if err != nil {
		return err
	}
	name := "@muster-demo-" + rand.Text()[:8]
	d.head = "unix:" + name
	port, err := freePort()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "# a head, and three nodes: login, which has no GPU, gpu1 and gpu2\n")
	if err := d.launch("head", "head", "--policy", "easy", "--socket", name, "--listen", port, "--tls-dir", headDir, "--state", filepath.Join(d.dir, "head")); err != nil {
		return err
	}
	for _, m := range demoMachines {
		folder, err := authority.Node([]string{m.name, "127.0.0.1"}, 1)
		if err != nil {
			return err
		}
		listen, err := freePort()
		if err != nil {
			return err
		}
		err = d.launch(m.name, "node", "--name", m.name, "--devices", m.devices, "--socket", name+"-"+m.name, "--state", filepath.Join(d.dir, m.name),
			"--spool", filepath.Join(d.dir, m.name+"-spool"), "--listen", listen, "--tls-dir", folder, "--head", port)
		if err != nil {
			return err
		}
	}
	return d.until("the nodes did not come", func() (bool, error) {
		var nodes api.Nodes
		err := d.ask(&nodes, "nodes", "--json")
		return err == nil && len(nodes.Nodes) == len(demoMachines), nil
	})
}

// freePort is one of this machine that nobody listens at, in this moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// launch starts a daemon, whose log goes to a file.
func (d *demoCluster) launch(name string, args ...string) error {
	log, err := os.Create(filepath.Join(d.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.started = append(d.started, cmd)
	return nil
}

// command is one of Muster's, for this cluster.
func (d *demoCluster) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.context(), d.self, args...)
	cmd.Env, cmd.Dir = set(os.Environ(), "MUSTER_HEAD", d.head), d.dir
	return cmd
}

func (d *demoCluster) context() context.Context {
	if ctx := d.c.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// show runs a command as a user would, in sight.
func (d *demoCluster) show(args ...string) error {
	fmt.Fprintf(d.out, "$ muster %s\n", strings.ReplaceAll(strings.Join(args, " "), d.programs+"/", ""))
	cmd := d.command(args...)
	cmd.Stdout, cmd.Stderr = d.out, d.c.ErrOrStderr()
	return cmd.Run()
}

// ask runs a command and reads its document.
func (d *demoCluster) ask(into any, args ...string) error {
	text, err := d.command(args...).Output()
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(into)
}

func (d *demoCluster) lastJob() uint64 {
	var jobs api.Jobs
	if err := d.ask(&jobs, "queue", "--json"); err != nil || len(jobs.Jobs) == 0 {
		return 1
	}
	last := jobs.Jobs[0].ID
	for i := range jobs.Jobs {
		last = max(last, jobs.Jobs[i].ID)
	}
	return last
}

// wait waits until all jobs have ended, and says how they did.
func (d *demoCluster) wait() error {
	var ended api.Jobs
	count := len(demoJobs) + 3 // one is an array of four
	err := d.until("the jobs did not end", func() (bool, error) {
		return d.ask(&ended, "history", "--json") == nil && len(ended.Jobs) >= count, nil
	})
	if err != nil {
		return err
	}
	for _, j := range ended.Jobs {
		if j.State != api.Completed {
			output, _ := os.ReadFile(filepath.Join(d.dir, j.Output))
			return fmt.Errorf("job %d (%s) ended as %s: %s\n%s", j.ID, j.Name, j.State, j.Why, output)
		}
	}
	return nil
}

// demoTime is how long anything of the demonstration may take.
const demoTime = 2 * time.Minute

// until asks again and again.
func (d *demoCluster) until(otherwise string, done func() (bool, error)) error {
	late := time.After(demoTime)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-late:
			return errors.New(otherwise + " within " + demoTime.String() + ": the logs are " + d.logs())
		case <-d.context().Done():
			return d.context().Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// logs is what the daemons said.
func (d *demoCluster) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(d.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&all, "\n%s:\n%s", filepath.Base(f), text)
	}
	return all.String()
}

// end stops what was started, the nodes before the head.
func (d *demoCluster) end() {
	for i := len(d.started) - 1; i >= 0; i-- {
		_ = d.started[i].Process.Signal(syscall.SIGINT)
	}
	for _, cmd := range d.started {
		_ = cmd.Wait()
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}
