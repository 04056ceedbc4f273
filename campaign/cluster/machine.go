package cluster

import (
	"bufio"
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

	"muster/campaign/vitals"
	"muster/wire/status"
)

// daemon is a head or a node with its start options. It is started several times.
type daemon struct {
	name    string
	command []string
	environ []string
	dir     string // of its logs

	starts int
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	paused bool
	wanted bool // it should be running
}

// start starts the daemon, and does not wait until it is ready.
func (d *daemon) start() error {
	d.starts++
	log, err := os.Create(filepath.Join(d.dir, fmt.Sprintf("%s-%d.log", d.name, d.starts)))
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.command[0], d.command[1:]...)
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = d.environ, log, log
	// A node ends when its standard input is closed, so that none outlives the campaign.
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	d.exited, d.paused, d.wanted = exited, false, true
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(exited)
	}(d.cmd)
	return nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// kill kills the daemon, as the system does when memory runs out.
func (d *daemon) kill() {
	d.wanted = false
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// stop stops the daemon, as an administrator does.
func (d *daemon) stop(how syscall.Signal, patience time.Duration) error {
	d.wanted = false
	_ = d.cmd.Process.Signal(how)
	select {
	case <-d.exited:
	case <-time.After(patience):
		_ = d.cmd.Process.Signal(syscall.SIGQUIT) // makes it dump its goroutines
		<-d.exited
		return fmt.Errorf("%s does not end within %v", d.name, patience)
	}
	state, _ := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if state.Signaled() && state.Signal() == how {
		return nil // it had just been started, and did not handle signals yet
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %v", d.name, d.cmd.ProcessState)
	}
	return nil
}

// pause stops the daemon's process, or continues it.
func (d *daemon) pause(on bool) {
	d.paused = on
	signal := syscall.SIGCONT
	if on {
		signal = syscall.SIGSTOP
	}
	_ = d.cmd.Process.Signal(signal)
}

// machine is a node of the cluster: its daemon, its files and its links.
type machine struct {
	daemon
	socket, spool string
	cores, gpus   int
	memory        string
	link, gateway *proxy // to the head, and from other nodes
	before        vitals.Vitals
}

// grants asks the node's daemon for its grants.
func (m *machine) grants() (*status.Grants, error) {
	conn, err := net.DialTimeout("unix", m.socket, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, `{"request":"grants"}`+"\n"); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var refused struct{ Error string }
	var g status.Grants
	if err := errors.Join(json.Unmarshal(line, &refused), json.Unmarshal(line, &g)); err != nil {
		return nil, err
	}
	if refused.Error != "" {
		return nil, errors.New(refused.Error)
	}
	return &g, nil
}

// config is the node's configuration file.
func (m *machine) config(certificates, head, gateway, dir string) string {
	return fmt.Sprintf(`name: %s
socket: %s
devices:
  - soft: {memory: 16MiB, workers: 1}
    count: %d
warm: 1
grace: 1s
swap: {size: 256MiB}
state: %s
listen: %s
connections: {silence: %s, resume: %s}
tls: {cert: %[8]s/node.pem, key: %[8]s/node-key.pem, ca: %[8]s/ca.pem}
head: {address: "%s", spool: %s, gateway: "%s", cores: %d, memory: 8GiB}
`, m.name, m.socket, m.gpus, filepath.Join(dir, m.name+".state"), gateway, gatewaySilence, gatewayResume, certificates, head, m.spool, m.gateway.address(), m.cores)
}

// inSpool lists the tasks and loans in a node's spool.
func (m *machine) inSpool() []string {
	var left []string
	for _, folder := range []string{"tasks", "scripts", "loans", "damaged"} {
		found, _ := filepath.Glob(filepath.Join(m.spool, folder, "*"))
		left = append(left, found...)
	}
	return left
}

// trouble finds messages in a daemon's logs that no correct one writes.
func (d *daemon) trouble() []string {
	var found []string
	for i := range d.starts {
		name := fmt.Sprintf("%s-%d.log", d.name, i+1)
		text, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			found = append(found, err.Error())
		}
		for line := range strings.Lines(string(text)) {
			for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
				if strings.Contains(line, bad) {
					found = append(found, fmt.Sprintf("%s: %s", name, strings.TrimSpace(line)))
				}
			}
		}
	}
	return found
}
