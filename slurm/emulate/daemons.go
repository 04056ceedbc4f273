package emulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// inner is the cluster as its first process sees it.
type inner struct {
	*spec
	processes *processes

	mu      sync.Mutex // guards child and ended of daemons
	daemons map[string]*daemon

	broken chan struct{} // closed when the first daemon ends; during the start, that ends the cluster
	breaks sync.Once
}

// daemon is a process that the cluster needs.
type daemon struct {
	name string
	argv []string
	env  []string
	sys  *syscall.SysProcAttr
	// ready says whether it answers; nil if there is nothing to ask.
	ready func() bool

	child child
	ended chan struct{} // closed when the process has ended
}

func newInner(s *spec) *inner {
	c := &inner{spec: s, processes: newProcesses(s.Rootless), daemons: map[string]*daemon{}, broken: make(chan struct{})}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	wake := make(chan struct{})
	go c.processes.collect(wake)
	go func() {
		for range ended {
			wake <- struct{}{}
		}
	}()
	for _, d := range c.wanted() {
		c.daemons[d.name] = d
	}
	return c
}

// wanted are the daemons of the cluster.
func (c *inner) wanted() []*daemon {
	threads := 4
	if len(c.Nodes) > 16 {
		threads = 16 // if munged answers too slowly, Slurm's daemons give up
	}
	all := []*daemon{{
		name: "munged",
		argv: []string{"/usr/sbin/munged", "--foreground", "--force", "--key-file=" + c.path("munge.key"), "--socket=" + c.path("munge.socket"),
			"--pid-file=" + c.path("run/munged.pid"), "--log-file=" + c.path("log/munged.log"), "--seed-file=" + c.path("run/munge.seed"),
			fmt.Sprintf("--num-threads=%d", threads)},
		ready: answers("unix", c.path("munge.socket")),
	}, {
		name:  "slurmctld",
		argv:  []string{"/usr/sbin/slurmctld", "-D"},
		ready: answers("tcp4", fmt.Sprintf("127.0.0.1:%d", c.Controller)),
	}}
	for _, node := range c.Nodes {
		all = append(all, &daemon{name: node, argv: []string{"/usr/sbin/slurmd", "-D", "-N", node}})
	}
	if c.REST != 0 {
		address := fmt.Sprintf("127.0.0.1:%d", c.REST)
		all = append(all, &daemon{
			name: "slurmrestd",
			argv: []string{"/usr/sbin/slurmrestd", "-t", "8", "-s", c.RESTPlugins, "-a", "rest_auth/jwt", address},
			// slurmrestd rejects every token without this.
			env:   []string{"SLURM_JWT=daemon"},
			sys:   c.otherUser(),
			ready: answers("tcp4", address),
		})
	}
	return all
}

// capReadAll is CAP_DAC_READ_SEARCH.
const capReadAll = 2

// otherUser are the attributes of slurmrestd, which refuses to run as root or SlurmUser. It may
// read everything, since root may have put the cluster's folder below a directory that is closed to
// others.
func (c *inner) otherUser() *syscall.SysProcAttr {
	if !c.Rootless {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}, AmbientCaps: []uintptr{capReadAll}}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: other, HostID: c.UID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: other, HostID: c.GID, Size: 1}},
	}
}

func answers(network, address string) func() bool {
	return func() bool {
		conn, err := net.Dial(network, address)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
}

// up starts everything and waits until all nodes can have jobs. It returns a token for REST.
func (c *inner) up(gone <-chan struct{}) (token string, err error) {
	first := []string{"munged", "slurmctld"}
	for _, name := range first {
		if err := c.startAndWait(name); err != nil {
			return "", err
		}
	}
	for _, name := range c.Nodes {
		if err := c.start(c.daemons[name]); err != nil {
			return "", err
		}
	}
	if err := c.waitForNodes(gone); err != nil {
		return "", err
	}
	if c.REST == 0 {
		return "", nil
	}
	if err := c.startAndWait("slurmrestd"); err != nil {
		return "", err
	}
	return c.token()
}

// start starts a daemon. What the daemon prints before it has a log goes to FOLDER/log/NAME.out.
func (c *inner) start(d *daemon) error {
	out, err := os.OpenFile(c.path("log/"+d.name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	sys := syscall.SysProcAttr{}
	if d.sys != nil {
		sys = *d.sys
	}
	sys.Setsid = true
	child, err := c.processes.start(d.argv, &syscall.ProcAttr{
		Dir: "/", Env: append(c.environment(), d.env...), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &sys,
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		<-child.end
		close(ended)
		c.breaks.Do(func() { close(c.broken) })
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	d.child, d.ended = child, ended
	return nil
}

func (c *inner) environment() []string {
	return []string{"PATH=" + systemPath, "HOME=/", "LC_ALL=C", "SLURM_CONF=" + c.path("slurm.conf")}
}

const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// startAndWait starts a daemon and waits until it answers.
func (c *inner) startAndWait(name string) error {
	d := c.daemons[name]
	if err := c.start(d); err != nil {
		return err
	}
	return c.wait(d)
}

func (c *inner) wait(d *daemon) error {
	if d.ready == nil {
		return nil
	}
	for deadline := time.Now().Add(30 * time.Second); !d.ready(); {
		select {
		case <-d.ended:
			return c.failed(d.name, "ended at once")
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return c.failed(d.name, "does not answer")
		}
	}
	return nil
}

// failed is the error of a daemon that failed, with its own last messages.
func (c *inner) failed(name, what string) error {
	said := c.lastWords(name)
	if strings.Contains(said, "Address already in use") {
		return fmt.Errorf("%s %s: %w: %s", name, what, errPortTaken, said)
	}
	if strings.Contains(said, "No space left") {
		return fmt.Errorf("%s %s: the disk of %s is full: make room, or name a --folder on another: %s", name, what, c.Folder, said)
	}
	return fmt.Errorf("%s %s: %s", name, what, said)
}

// errPortTaken is in errors after which another attempt with other ports may succeed.
var errPortTaken = errors.New("a port was taken by another program in the meantime")

// lastWords are a daemon's last error messages, from its log or else its output.
func (c *inner) lastWords(name string) string {
	for _, file := range []string{"log/" + name + ".log", "log/" + name + ".out"} {
		var said []string
		for _, line := range strings.Split(tail(c.path(file)), "\n") {
			_, text, stamped := strings.Cut(line, "] ") // [2026-11-16T12:29:15.452] fatal: ...
			if !stamped {
				text = line
			}
			low := strings.ToLower(text)
			if strings.Contains(low, "error") || strings.Contains(low, "fatal") {
				said = append(said, strings.TrimSpace(text))
			}
		}
		if len(said) > 0 {
			return strings.Join(said[max(0, len(said)-4):], "; ")
		}
	}
	return "its log says nothing of it"
}

// tail is the last 8 KiB of a file.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 8 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	return string(text)
}

// waitForNodes waits until slurmctld has heard from every node.
func (c *inner) waitForNodes(gone <-chan struct{}) error {
	limit := 60*time.Second + time.Duration(len(c.Nodes))*200*time.Millisecond
	deadline := time.Now().Add(limit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		missing, err := c.missingNodes()
		if err == nil && len(missing) == 0 {
			return nil
		}
		if name := c.dead(); name != "" {
			return c.failed(name, "ended at once")
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("asking for the nodes: %w", err)
			}
			return c.failed(missing[0], fmt.Sprintf("and %d other nodes are not there after %v", len(missing)-1, limit))
		}
		select {
		case <-gone:
			return errors.New("the program that started the cluster has ended")
		case <-time.After(pause):
		}
	}
}

// dead is the name of a daemon that has ended, or "".
func (c *inner) dead() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range append([]string{"munged", "slurmctld"}, c.Nodes...) {
		if d := c.daemons[name]; d.ended != nil && closed(d.ended) {
			return name
		}
	}
	return ""
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// missingNodes are the nodes that cannot run jobs yet.
func (c *inner) missingNodes() ([]string, error) {
	out, err := c.output("sinfo", "--noheader", "--Node", "--format=%N %T")
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, line := range strings.Split(out, "\n") {
		node, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch state {
		case "idle", "reserved", "maint", "planned", "allocated", "mixed", "completing":
			there[node] = true
		}
	}
	var missing []string
	for _, node := range c.Nodes {
		if !there[node] {
			missing = append(missing, node)
		}
	}
	return missing, nil
}

// token asks for a REST token for the user, which is valid for a year.
func (c *inner) token() (string, error) {
	out, err := c.output("scontrol", "token", "username="+c.User, "lifespan=31536000")
	if err != nil {
		return "", fmt.Errorf("a token for REST: %w", err)
	}
	token, ok := strings.CutPrefix(strings.TrimSpace(out), "SLURM_JWT=")
	if !ok {
		return "", fmt.Errorf("a token for REST: scontrol says %.80q", out)
	}
	return token, nil
}

// output runs one of Slurm's commands during the start, and returns what it prints. A command would
// keep trying to reach a slurmctld that has ended, so it is killed when a daemon ends.
func (c *inner) output(name string, args ...string) (string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer reader.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	child, err := c.processes.start(append([]string{"/usr/bin/" + name}, args...), &syscall.ProcAttr{
		Dir: "/", Env: c.environment(), Files: []uintptr{null.Fd(), writer.Fd(), writer.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	writer.Close()
	if err != nil {
		return "", err
	}
	printed := make(chan struct{})
	go func() {
		select {
		case <-printed:
		case <-c.broken:
			syscall.Kill(child.pid, syscall.SIGKILL)
		case <-time.After(20 * time.Second):
			syscall.Kill(child.pid, syscall.SIGKILL)
		}
	}()
	var out bytes.Buffer
	out.ReadFrom(io.LimitReader(reader, 1<<20))
	close(printed)
	if status := <-child.end; status.ExitStatus() != 0 {
		return "", fmt.Errorf("%s: %s", name, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// signal sends a daemon a signal. After SIGKILL it returns when the daemon has ended.
func (c *inner) signal(name string, sig syscall.Signal) error {
	d, err := c.daemon(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	child, ended := d.child, d.ended
	c.mu.Unlock()
	if closed(ended) {
		return fmt.Errorf("%s is not running: it ended before", name)
	}
	if err := syscall.Kill(child.pid, sig); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if sig == syscall.SIGKILL {
		<-ended
	}
	return nil
}

func (c *inner) daemon(name string) (*daemon, error) {
	d := c.daemons[name]
	if d == nil || d.ended == nil {
		return nil, fmt.Errorf("there is no daemon %q: they are munged, slurmctld, slurmrestd and, for slurmd, the names of the nodes", name)
	}
	return d, nil
}

// killNode ends a node as a power failure does: its slurmd and everything that runs there, at once.
// All are stopped before the first is killed, or the others would report its end to slurmctld.
func (c *inner) killNode(name string) error {
	if !slices.Contains(c.Nodes, name) {
		return fmt.Errorf("there is no node %q: they are %s to %s", name, c.Nodes[0], c.Nodes[len(c.Nodes)-1])
	}
	stopped := map[int]bool{}
	for { // until none is left that could start another
		before := len(stopped)
		for _, pid := range c.processesOf(name) {
			if !stopped[pid] && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped[pid] = true
			}
		}
		if len(stopped) == before {
			break
		}
	}
	for pid := range stopped {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	c.mu.Lock()
	ended := c.daemons[name].ended
	c.mu.Unlock()
	<-ended
	for len(c.processesOf(name)) > 0 {
		time.Sleep(time.Millisecond) // the kernel needs a moment
	}
	return nil
}

// restart starts a daemon again, after killing it if it runs, and waits until it answers.
func (c *inner) restart(name string) error {
	d, err := c.daemon(name)
	if err != nil {
		return err
	}
	if !closed(d.ended) {
		if err := c.signal(name, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if name == "munged" {
		os.Remove(c.path("munge.socket"))
	}
	return c.startAndWait(name)
}
