package chaos

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

	"muster/wire/status"
)

// workerTimeout is how long the daemon waits for a stopped worker. A paused worker continues well
// before that.
const workerTimeout = 2 * time.Second

// daemon is the node's process with its start options. It may be started several times.
type daemon struct {
	muster  string
	dir     string // of the episode
	socket  string
	config  string // file
	environ []string

	starts int
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	paused bool
}

// start starts the daemon and waits until programs can connect.
func (d *daemon) start() error {
	d.starts++
	log, err := os.Create(d.logFile(d.starts))
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command(d.muster, "node", "--child", "--json-log", "--config", d.config)
	d.cmd.Env, d.cmd.Stderr = d.environ, log
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	exited := make(chan struct{})
	d.exited, d.paused = exited, false
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(exited)
	}(d.cmd)
	if err != nil || line != "ready\n" {
		_ = d.cmd.Process.Kill()
		<-exited
		return fmt.Errorf("the daemon does not start: %v", d.cmd.ProcessState)
	}
	return nil
}

func (d *daemon) logFile(start int) string {
	return filepath.Join(d.dir, fmt.Sprintf("node-%d.log", start))
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// up says whether the daemon is able to answer.
func (d *daemon) up() bool {
	select {
	case <-d.exited:
		return false
	default:
		return !d.paused
	}
}

// kill kills the daemon, as the system does when memory runs out.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// stop stops the daemon, as an administrator does.
func (d *daemon) stop(patience time.Duration) error {
	d.stdin.Close()
	select {
	case <-d.exited:
	case <-time.After(patience):
		_ = d.cmd.Process.Signal(syscall.SIGQUIT) // makes it dump its goroutines
		<-d.exited
		return fmt.Errorf("the daemon does not end within %v", patience)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the daemon ended with %v", d.cmd.ProcessState)
	}
	return nil
}

// request sends a request to the daemon and decodes its answer.
func (d *daemon) request(ask map[string]any, answer any) error {
	conn, err := net.DialTimeout("unix", d.socket, requestTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	line, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return err
	}
	var text json.RawMessage
	if err := json.NewDecoder(conn).Decode(&text); err != nil {
		return fmt.Errorf("the daemon does not answer: %w", err)
	}
	var refused struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(text, &refused); err != nil {
		return fmt.Errorf("the daemon answers %.200q: %w", text, err)
	}
	if refused.Error != "" {
		return errors.New(refused.Error)
	}
	return json.Unmarshal(text, answer)
}

// requestTime is the time limit for an answer.
const requestTime = 30 * time.Second

// status asks the daemon for its status.
func (d *daemon) status() (*status.Node, error) {
	var s status.Node
	return &s, d.request(map[string]any{"request": "status"}, &s)
}

// gateway is the address at which programs of other machines reach the daemon.
func (d *daemon) gateway() string {
	text, _ := os.ReadFile(d.logFile(d.starts))
	for line := range strings.Lines(string(text)) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "programs on other machines are served" {
			return entry.Address
		}
	}
	return "nowhere"
}

// trouble finds messages in the logs that no correct node writes.
func (d *daemon) trouble() []string {
	var found []string
	for i := range d.starts {
		text, err := os.ReadFile(d.logFile(i + 1))
		if err != nil {
			found = append(found, err.Error())
		}
		for line := range strings.Lines(string(text)) {
			for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
				if strings.Contains(line, bad) {
					found = append(found, fmt.Sprintf("the log of the daemon's start %d: %s", i+1, strings.TrimSpace(line)))
				}
			}
		}
	}
	return found
}

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	all := strings.SplitAfter(string(text), "\n")
	return strings.Join(all[max(0, len(all)-lines-1):], "")
}
