package emulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/internal/ports"
	"muster/internal/wholefile"
	"muster/slurm/fetch"
	"muster/slurm/release"
)

const (
	folderPrefix = "muster-slurm-"
	doorName     = "door"
	lockName     = "lock"
)

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	// Folder has slurm.conf, the logs (log/) and the daemons' files (state/, spool/).
	Folder string
	// Nodes are the names of the nodes: n1, n2...
	Nodes []string
	// User is SlurmUser, who may do everything; the REST token is that user's.
	User string
	// OneUser says that the cluster lives in a user namespace. The user who started it is the only
	// one there, perhaps with another name and number than outside.
	OneUser bool
	// Tree is the release that runs.
	Tree *fetch.Tree

	restAddress, token string
	process            *exec.Cmd
	words              *limitedText  // what the first process printed: nothing, or why it failed
	life               *os.File      // closing it ends the first process
	done               chan struct{} // closed when the first process has ended
	closing            sync.Once
}

// Start starts a cluster and returns when all nodes are idle and REST answers. The cluster lives
// until Close, or until this process ends. The context is for the start only.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	tree, err := fetch.Get(ctx, o.Release, o.Fetch)
	if err != nil {
		return nil, err
	}
	sweep(os.TempDir())
	for try := 1; ; try++ {
		c, err := start(ctx, o, tree)
		if err == nil {
			return c, nil
		}
		// The error comes as text from another process.
		if try == 3 || !strings.Contains(err.Error(), errPortTaken.Error()) {
			return nil, fmt.Errorf("starting Slurm %s: %w", o.Release.Name, err)
		}
	}
}

// start makes one attempt to start a cluster.
func start(ctx context.Context, o Options, tree *fetch.Tree) (_ *Cluster, err error) {
	id := whoami(o.Rootless)
	mode := os.FileMode(0o755)
	if id.rootless {
		mode = 0o700
	}
	folder, err := o.makeFolder(mode)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Folder: folder, Nodes: nodeNames(o.Nodes), User: id.name, OneUser: id.rootless, Tree: tree, done: make(chan struct{}), words: &limitedText{}}
	held := &holding{}
	defer held.close() // the first process has duplicates
	lock, err := lockFolder(folder)
	if err == nil {
		held.files = append(held.files, lock)
		err = c.launch(o, id, held)
	}
	if err != nil {
		removeFolder(folder)
		return nil, err
	}
	if err := c.wait(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// holding are open files that the first process must keep open.
type holding struct{ files []*os.File }

func (h *holding) close() {
	for _, f := range h.files {
		f.Close()
	}
}

// launch writes the configuration and starts the first process.
func (c *Cluster) launch(o Options, id identity, held *holding) error {
	p, err := ports.Take(o.Nodes + 2)
	if err != nil {
		return err
	}
	held.files = append(held.files, p.Claims...)
	l := layout{Options: o, folder: c.Folder, user: id.name, controller: p.Numbers[0], nodes: p.Numbers[2:]}
	if err := errors.Join(l.writeConfig(id), writeScripts(c.Folder, c.Tree.Folder)); err != nil {
		return diskFull(err, c.Folder)
	}
	s := spec{
		Folder: c.Folder, Tree: c.Tree.Folder, Rootless: id.rootless, UID: id.uid, GID: id.gid, User: id.name,
		GPUs: o.GPUs, Nodes: c.Nodes, Controller: p.Numbers[0], RESTPlugins: o.Release.RESTPlugins,
	}
	if !o.NoREST {
		s.REST = p.Numbers[1]
		c.restAddress = fmt.Sprintf("http://127.0.0.1:%d", s.REST)
	}
	if s.Tree, err = filepath.EvalSymlinks(s.Tree); err != nil {
		return err
	}
	return c.spawn(&s, held)
}

func diskFull(err error, folder string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: make room for %s, or name a --folder on another disk", err, folder)
	}
	return err
}

// spawn starts the first process and sends it the spec.
func (c *Cluster) spawn(s *spec, held *holding) error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Nonblocking, so that Close wakes up a blocked reader.
	syscall.SetNonblock(pair[0], true)
	c.life = os.NewFile(uintptr(pair[0]), "life")
	theirs := os.NewFile(uintptr(pair[1]), "life")
	defer theirs.Close()
	door, err := listenDoor(filepath.Join(c.Folder, doorName))
	if err != nil {
		c.life.Close()
		return err
	}
	defer door.Close()
	c.process = exec.Command("/proc/self/exe", insideWord)
	c.process.ExtraFiles = append([]*os.File{theirs, door}, held.files...)
	c.process.Stderr = c.words
	c.process.Env = []string{"PATH=" + systemPath, "GOTRACEBACK=single"}
	c.process.Dir = "/"
	c.process.SysProcAttr = s.namespaces()
	if err := c.process.Start(); err != nil {
		c.life.Close()
		return explainNamespaces(err, s.Rootless)
	}
	go func() {
		c.process.Wait()
		close(c.done)
	}()
	return json.NewEncoder(c.life).Encode(s)
}

// listenDoor makes the socket for commands. Every user may connect: the first process checks which
// user it is.
func listenDoor(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, err
	}
	return l.File()
}

// capSysAdmin is CAP_SYS_ADMIN, which permits mounting.
const capSysAdmin = 21

// namespaces are those in which the cluster lives. A session of its own keeps the terminal's
// signals away.
func (s *spec) namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	if s.Rootless {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: s.UID, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: s.GID, HostID: os.Getegid(), Size: 1}}
		attr.AmbientCaps = []uintptr{capSysAdmin}
	}
	return attr
}

// explainNamespaces says what to do if the kernel or an administrator forbids namespaces.
func explainNamespaces(err error, rootless bool) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("there are too many namespaces: end other clusters, or let an administrator raise user.max_user_namespaces (sysctl): %w", err)
	case rootless && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EINVAL)):
		return fmt.Errorf("this machine does not let you have a user namespace: start the cluster as root, or let an administrator allow them "+
			"(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in docker --security-opt seccomp=unconfined): %w", err)
	}
	return fmt.Errorf("namespaces for the cluster: %w", err)
}

// wait waits until the first process reports that the cluster is up.
func (c *Cluster) wait(ctx context.Context) error {
	said := make(chan started, 1)
	go func() {
		var s started
		if err := json.NewDecoder(c.life).Decode(&s); err != nil {
			s.Error = "the first process of the cluster broke down"
		}
		said <- s
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("it was not up in time: %w", context.Cause(ctx))
	case s := <-said:
		if s.Error != "" {
			return errors.New(strings.TrimSpace(s.Error + " " + c.words.String()))
		}
		if c.token = s.Token; c.token == "" {
			return nil
		}
		return diskFull(os.WriteFile(c.TokenFile(), []byte(s.Token+"\n"), 0o600), c.Folder)
	}
}

// Release is the release of Slurm that runs.
func (c *Cluster) Release() *release.Release { return c.Tree.Release }

// REST returns the address of slurmrestd, such as http://127.0.0.1:10241, and a token for User: the
// headers are X-SLURM-USER-NAME and X-SLURM-USER-TOKEN.
func (c *Cluster) REST() (address, token string) { return c.restAddress, c.token }

// TokenFile is the path of a file with REST's token.
func (c *Cluster) TokenFile() string { return filepath.Join(c.Folder, "token") }

// Bin is the folder with scripts for Slurm's commands, for PATH.
func (c *Cluster) Bin() string { return filepath.Join(c.Folder, "bin") }

// Conf is the path of slurm.conf.
func (c *Cluster) Conf() string { return filepath.Join(c.Folder, "slurm.conf") }

// JobCompletions is the file to which Slurm appends a line for each job that has ended.
func (c *Cluster) JobCompletions() string { return filepath.Join(c.Folder, "log", "jobcomp.txt") }

// Command is one of Slurm's commands, or another command of the release. It runs inside the
// cluster, with the directory and the environment of the exec.Cmd. Killing the exec.Cmd kills the
// command.
func (c *Cluster) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", c.enterArgs(name, args)...)
}

// CommandContext is Command, killed when the context ends.
func (c *Cluster) CommandContext(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "/proc/self/exe", c.enterArgs(name, args)...)
}

func (c *Cluster) enterArgs(name string, args []string) []string {
	return append([]string{enterWord, filepath.Join(c.Folder, doorName), name}, args...)
}

// Environ is the environment for programs outside that use Slurm's commands: this process's own,
// with the cluster's scripts first in PATH, and SLURM_CONF.
func (c *Cluster) Environ() []string {
	return append(os.Environ(), "PATH="+c.Bin()+":"+os.Getenv("PATH"), "SLURM_CONF="+c.Conf())
}

// Kill kills a daemon with SIGKILL: "munged", "slurmctld", "slurmrestd", or the slurmd of a node by
// the node's name. The daemon has ended when Kill returns; jobs continue.
func (c *Cluster) Kill(name string) error { return c.Signal(name, syscall.SIGKILL) }

// Signal sends a daemon a signal.
func (c *Cluster) Signal(name string, sig syscall.Signal) error {
	return c.ask(request{Do: "signal", Name: name, Signal: sig})
}

// KillNode ends a node as a power failure does: its slurmd and everything that runs there.
func (c *Cluster) KillNode(name string) error { return c.ask(request{Do: "kill-node", Name: name}) }

// Restart starts a daemon again, after killing it if it runs, and waits until it answers. For a
// slurmd it does not wait.
func (c *Cluster) Restart(name string) error { return c.ask(request{Do: "restart", Name: name}) }

func (c *Cluster) ask(r request) error {
	conn, err := dialDoor(filepath.Join(c.Folder, doorName))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sendRequest(conn, r); err != nil {
		return err
	}
	_, err = readAnswer(conn)
	return err
}

// Done is closed when the cluster has ended, for whatever reason.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Close ends the cluster: when it returns, no process, mount, socket or file of it is left.
func (c *Cluster) Close() error {
	c.closing.Do(func() {
		c.life.Close()
		select {
		case <-c.done:
		case <-time.After(15 * time.Second):
			// When its first process ends, the kernel kills all others of a PID namespace.
			c.process.Process.Kill()
			<-c.done
		}
	})
	return removeFolder(c.Folder)
}

// lockFolder marks a folder as that of a living cluster: the kernel releases the lock with the last
// process that holds it. The file gets its name when it is locked: until then sweep, in another
// process, takes the folder for one that is being made.
func lockFolder(folder string) (*os.File, error) {
	name := filepath.Join(folder, lockName)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the folders of this user's clusters that were killed together with the process that
// started them.
func sweep(parent string) {
	folders, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR, 0)
		if err != nil {
			continue // it is being made, or is no cluster's
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			removeFolder(folder)
		}
		f.Close()
	}
}

// chmodFolders makes folders writable for their owner.
func chmodFolders(folder string) {
	filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
}

// mayMount says whether this process may mount without a user namespace.
func mayMount() bool {
	if os.Geteuid() != 0 {
		return false
	}
	text, err := wholefile.Limit{Bytes: 1 << 16}.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	var effective uint64
	for _, line := range strings.Split(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			fmt.Sscanf(strings.TrimSpace(value), "%x", &effective)
		}
	}
	return effective&(1<<capSysAdmin) != 0
}

// limitedText keeps the first 4 KiB written to it.
type limitedText struct {
	mu   sync.Mutex
	text []byte
}

func (l *limitedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := 4096 - len(l.text); room > 0 {
		l.text = append(l.text, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (l *limitedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
