package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	headclient "muster/head/client"
	"muster/internal/ports"
	"muster/node/gateway"
)

// machine is one node of the demonstration: its description, and its daemon.
type machine struct {
	name    string
	cores   int
	memory  string
	devices []string // the settings of its software GPUs
	socket  string
	daemon  *process // nil while it is not running
}

// newMachines are the nodes: one has no GPU, the others differ in number, memory and
// speed of theirs. One worker each, so that two cores can stand for all of them.
func newMachines() []*machine {
	return []*machine{
		{name: "login", cores: 4, memory: "4GiB"},
		{name: "gpu1", cores: 8, memory: "16GiB", devices: []string{
			"name: Big, memory: 96MiB, speed: 0.8, workers: 1",
			"name: Medium, memory: 64MiB, speed: 0.5, workers: 1"}},
		{name: "gpu2", cores: 6, memory: "8GiB", devices: []string{
			"name: Small, memory: 48MiB, speed: 0.3, workers: 1"}},
	}
}

// file is the node's configuration.
func (m *machine) file(dir, head, listen, certificates string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nsocket: %q\nstate: %s/%s/state\n", m.name, m.socket, dir, m.name)
	if len(m.devices) > 0 {
		b.WriteString("devices:\n")
	}
	for _, d := range m.devices {
		fmt.Fprintf(&b, "  - soft: {%s}\n", d)
	}
	// Without backups of programs' memory, what is moved off a GPU is moved for others.
	fmt.Fprintf(&b, "recover: off\nwarm: %d\nswap: {size: 512MiB}\ngrants: required\ngrace: 1s\nlisten: %q\ntls: {cert: %[3]s/node.pem, key: %[3]s/node-key.pem, ca: %[3]s/ca.pem}\n",
		len(m.devices), listen, certificates)
	fmt.Fprintf(&b, "head: {address: %q, spool: %s/%s/spool, cores: %d, memory: %s}\n", head, dir, m.name, m.cores, m.memory)
	return b.String()
}

// classes are the classes of jobs: urgent ones stop others for as long as they run.
const classes = `PriorityWeightQOS: 1000
qos:
  low: {Priority: 0, PreemptMode: suspend}
  urgent: {Priority: 100, Preempt: [low]}
`

// cluster is a head and its nodes, as processes.
type cluster struct {
	self     string // this program
	dir      string
	address  string // of the head, for users
	head     *headclient.Head
	daemons  []*process
	machines []*machine
}

// process is the process of a head or a node.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	wanted bool // it is to run
}

// prepare writes the files of the cluster: certificates, configurations, and a link to
// the programs.
func (d *cluster) prepare(programs string) error {
	if err := os.Symlink(programs, filepath.Join(d.dir, "examples")); err != nil {
		return err
	}
	authority, _, err := gateway.OpenAuthority(filepath.Join(d.dir, "certs"), time.Now())
	if err != nil {
		return err
	}
	certificates, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1)
	if err != nil {
		return err
	}
	socket := "@muster-demo-" + strings.ToLower(rand.Text()[:8])
	d.address = "unix:" + socket
	port, err := ports.Address()
	if err != nil {
		return err
	}
	// A node that is away for 6 seconds counts as lost: the usual 5 minutes are too long for a
	// demonstration.
	err = errors.Join(
		d.write("classes.yaml", classes),
		d.write("head.yaml", fmt.Sprintf("cluster: demo\npolicy: easy\npriority: %s/classes.yaml\nnode_timeout: 6s\nsilence: 5s\ngrace: 1s\nkeep: 1h\nlisten: %q\nsocket: %q\nstate: %s/head\ntls_dir: %s\n",
			d.dir, port, socket, d.dir, certificates)))
	for _, m := range d.machines {
		m.socket = socket + "-" + m.name
		folder, certError := authority.Node([]string{m.name, "127.0.0.1"}, 1)
		listen, portError := ports.Address()
		err = errors.Join(err, certError, portError, os.Mkdir(filepath.Join(d.dir, m.name), 0o755), d.write(m.name+".yaml", m.file(d.dir, port, listen, folder)))
	}
	if err != nil {
		return err
	}
	d.head, err = headclient.Open(d.address, "")
	return err
}

func (d *cluster) write(name, text string) error {
	return os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600)
}

// startHead starts the head; the nodes wait for it if need be.
func (d *cluster) startHead() error {
	port, err := ports.Address() // others may run a head on this machine
	if err != nil {
		return err
	}
	_, err = d.launch("head", "head", "--config", "head.yaml", "--page", port)
	return err
}

// page asks the head for an address of its page, which signs one browser in as this
// user; "" if it has none.
func (d *cluster) page(ctx context.Context) string {
	text, err := d.command(ctx, "page").Output()
	if address := strings.TrimSpace(string(text)); err == nil && strings.HasPrefix(address, "http") {
		return address
	}
	return ""
}

func (d *cluster) startMachine(m *machine) (err error) {
	args := []string{"node", "--config", m.name + ".yaml"}
	if len(m.devices) == 0 {
		args = append(args, "--devices", "none")
	}
	m.daemon, err = d.launch(m.name, args...)
	return err
}

// launch starts a daemon, whose log goes to a file.
func (d *cluster) launch(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(d.dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := d.command(context.Background(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	daemon := &process{name: name, cmd: cmd, exited: make(chan struct{}), wanted: true}
	d.daemons = append(d.daemons, daemon)
	go func() {
		_ = cmd.Wait()
		close(daemon.exited)
	}()
	return daemon, nil
}

// command is one of Muster's, for this cluster, as a user in its folder would type it.
func (d *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.self, args...)
	cmd.Args[0] = "muster"
	cmd.Dir = d.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MUSTER_") || strings.HasPrefix(v, "MUSTER_LIB=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	path := filepath.Dir(d.self) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append(cmd.Env, "MUSTER_HEAD="+d.address, "PWD="+d.dir, "PATH="+path) // of two values the last one counts
	return cmd
}

// killMachine ends a node as a power failure does: daemon, agent, jobs and all.
func (d *cluster) killMachine(m *machine) {
	m.daemon.wanted = false
	killTree(m.daemon.cmd.Process.Pid)
	<-m.daemon.exited
	m.daemon = nil
}

// failed says which daemon has ended by itself.
func (d *cluster) failed() error {
	for _, daemon := range d.daemons {
		select {
		case <-daemon.exited:
			if daemon.wanted {
				daemon.wanted = false
				return fmt.Errorf("%s has ended (%v); its log:\n%s", daemon.name, daemon.cmd.ProcessState, d.log(daemon.name))
			}
		default:
		}
	}
	return nil
}

func (d *cluster) log(name string) string {
	text, _ := os.ReadFile(filepath.Join(d.dir, name+".log"))
	const most = 8 << 10
	return string(text[max(0, len(text)-most):])
}

// logs is the end of what each daemon said.
func (d *cluster) logs() string {
	var all strings.Builder
	for _, name := range append([]string{"head"}, names(d.machines)...) {
		fmt.Fprintf(&all, "\n%s:\n%s", name, d.log(name))
	}
	return all.String()
}

func names(machines []*machine) (list []string) {
	for _, m := range machines {
		list = append(list, m.name)
	}
	return list
}

// stop ends all daemons as an administrator does, the nodes before the head.
func (d *cluster) stop() error {
	var errs []error
	for i := len(d.daemons) - 1; i >= 0; i-- {
		daemon := d.daemons[i]
		if !daemon.wanted {
			continue
		}
		daemon.wanted = false
		_ = daemon.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-daemon.exited:
			if code := daemon.cmd.ProcessState.ExitCode(); code != 0 {
				errs = append(errs, fmt.Errorf("%s did not end well (%v); its log:\n%s", daemon.name, daemon.cmd.ProcessState, d.log(daemon.name)))
			}
		case <-time.After(stepTime):
			errs = append(errs, fmt.Errorf("%s does not end within %v; its log:\n%s", daemon.name, stepTime, d.log(daemon.name)))
		}
	}
	return errors.Join(errs...)
}
