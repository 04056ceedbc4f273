package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	wire "muster/wire/agent"
	"muster/wire/grant"

	"golang.org/x/sys/unix"
)

// Saving says which processes to save, and where.
type Saving struct {
	Dir  string // for the processes alone
	CRIU string
	Node string // the socket of the node's daemon
	Pid  int    // the process that the others descend from
	// Served is how they reach their devices, by way of this process; nil if they have none.
	Served *Served
	// Run runs a command of the save. The supervisor waits for all of its children, so nobody else can.
	Run func(context.Context, *exec.Cmd) error
}

// Restoring says which processes to make again.
type Restoring struct {
	Dir   string
	CRIU  string
	Node  string
	Grant *grant.Grant // nil if they have none
	// Run runs a command of the restore. The processes become children of the one that runs it.
	Run func(context.Context, *exec.Cmd) error
}

// passage is a task's way from one node to another: its processes are saved here (save), and begin again
// there (restore). Only the supervisor's own goroutine changes it. While it is busy, the processes are
// CRIU's: orders wait until it is done, except that the task is stopped.
type passage struct {
	s         *supervisor
	busy      bool
	restoring bool
	later     []agentcore.Order
	saved     *savedWord // the last save, if the processes have not gone on since
}

// savedWord is what a supervisor says when it was told to save the task.
type savedWord struct {
	Folder string `json:"folder"` // its name
	Bytes  uint64 `json:"bytes,omitempty"`
	Error  string `json:"error,omitempty"`
}

// savedTask is the file beside the saved processes: what the next supervisor must know of them.
type savedTask struct {
	Version int `json:"version"`
	// Root is the process that the others descend from.
	Root int `json:"root"`
	// Marker is in the processes' environment, and so is Socket, where they look for devices; "" if they
	// have none.
	Marker string `json:"marker"`
	Socket string `json:"socket,omitempty"`
	// Script is the file that the root reads, if it is the job's script.
	Script string `json:"script,omitempty"`
}

const (
	savedVersion   = 1
	savedName      = "task"
	processesSaved = "processes"
)

// taskSocket is what the sockets of tasks are called.
var taskSocket = regexp.MustCompile(`^@muster-task-[0-9A-Za-z]{1,64}$`)

func (t *savedTask) check() error {
	marker, err := hex.DecodeString(t.Marker)
	switch {
	case t.Version != savedVersion:
		return fmt.Errorf("it has version %d, and this Muster knows version %d", t.Version, savedVersion)
	case t.Root <= 1 || err != nil || len(marker) != markerBytes:
		return errors.New("a process or a marker that cannot be")
	case t.Socket != "" && !taskSocket.MatchString(t.Socket):
		return fmt.Errorf("a socket %.80q", t.Socket)
	case t.Script != "" && (!filepath.IsAbs(t.Script) || filepath.Clean(t.Script) != t.Script || filepath.Base(t.Script) != scriptName):
		return fmt.Errorf("a script %.80q", t.Script)
	}
	return nil
}

// readSaved reads what a folder has of a saved task. The processes are made again with all rights, so
// nobody else may have written there.
func readSaved(dir string) (*savedTask, error) {
	var info syscall.Stat_t
	if err := syscall.Lstat(dir, &info); err != nil {
		return nil, fmt.Errorf("the folder %s: %w", dir, err)
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(info.Uid) != os.Geteuid() || info.Mode&0o022 != 0 {
		return nil, fmt.Errorf("the folder %s is not this node's user's alone", dir)
	}
	text, err := smallLimit.ReadFile(filepath.Join(dir, savedName))
	if err != nil {
		return nil, err
	}
	t, err := parseSaved(text)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", savedName, dir, err)
	}
	return t, nil
}

// parseSaved reads what write wrote.
func parseSaved(text []byte) (*savedTask, error) {
	var t savedTask
	if err := strictjson.Decode(text, &t); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return &t, nil
}

// ---- saving ----

// save saves the task's processes, and leaves them suspended.
func (p *passage) save(o agentcore.SaveIn) {
	s := p.s
	folder := filepath.Base(o.Folder)
	if p.saved != nil && p.saved.Folder == folder && p.saved.Error == "" {
		s.say(saying{Saved: p.saved})
		return
	}
	if why := p.cannot(); why != "" {
		s.say(saying{Saved: &savedWord{Folder: folder, Error: why}})
		return
	}
	p.busy = true
	if s.cg != nil { // CRIU needs processes that could run: they are stopped one by one, as without a control group
		s.stopMembers()
		_ = s.cg.freeze(false)
	}
	t := savedTask{Version: savedVersion, Root: s.ranks[0].pid, Marker: s.f.Marker}
	if s.served != nil {
		t.Socket = s.served.Socket
	}
	if s.spec.Script != "" {
		t.Script = s.script
	}
	go func() {
		bytes, err := p.write(o, t)
		s.inbox <- func() { p.wrote(&savedWord{Folder: folder, Bytes: bytes}, err) }
	}()
}

// cannot says why the task cannot be saved; "" if nothing is known that prevents it.
func (p *passage) cannot() string {
	s := p.s
	switch {
	case s.tools.Save == nil:
		return "this node's agent cannot save programs"
	case !s.suspended || s.stopping != nil:
		return "it is not suspended"
	case len(s.spec.Nodes) > 1:
		return "it runs on several nodes, and only the processes of one can be saved together"
	case p.sideBySide() != 1:
		return fmt.Sprintf("it has %d processes that were started side by side, and only one with its descendants can be saved", p.sideBySide())
	case s.commands() > 0:
		return "commands run in it that were started beside it (muster exec)"
	}
	root := s.ranks[0].pid
	below := descendants(root)
	for _, m := range s.members() {
		if m.pid != root && !slices.Contains(below, m) {
			return fmt.Sprintf("process %d has left the process that started it, and cannot be saved with the others", m.pid)
		}
	}
	return ""
}

// sideBySide is how many processes of the task its supervisor has started, or will.
func (p *passage) sideBySide() int {
	if p.s.spec.Script != "" {
		return len(p.s.ranks)
	}
	return max(len(p.s.ranks), p.s.spec.Processes)
}

// write writes a task into a folder.
func (p *passage) write(o agentcore.SaveIn, t savedTask) (uint64, error) {
	s := p.s
	if err := os.Mkdir(o.Folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, fmt.Errorf("the folder for what is saved: %w", err)
	}
	bytes, err := s.tools.Save(context.Background(), Saving{
		Dir: filepath.Join(o.Folder, processesSaved), CRIU: o.CRIU, Node: s.f.Socket, Pid: t.Root, Served: s.served,
		Run: func(ctx context.Context, cmd *exec.Cmd) error { return p.run(ctx, cmd, false) },
	})
	if err != nil {
		_ = os.Remove(o.Folder) // if nothing is in it
		return 0, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	return bytes, errors.Join(writeFile(o.Folder, savedName, text), syncFolder(filepath.Dir(o.Folder)))
}

// wrote notes how a save ended. The processes are suspended again as before it.
func (p *passage) wrote(w *savedWord, err error) {
	s := p.s
	p.busy = false
	if err != nil {
		w.Error = wire.Reason(err.Error())
	}
	switch {
	case s.stopping == nil && s.cg != nil:
		_ = s.cg.freeze(true)
	case s.stopping != nil && !s.kill.over:
		s.signalAll(syscall.SIGTERM)
		s.letGo()
	}
	p.saved = w
	s.say(saying{Saved: w})
	p.catchUp()
}

// catchUp carries out the orders that came while the passage was busy.
func (p *passage) catchUp() {
	later := p.later
	p.later = nil
	for _, o := range later {
		p.s.obey(o)
	}
}

// ---- restoring ----

// errNotRestored says that a task does not begin since its processes could not be made again. Nothing of
// it has run.
var errNotRestored = errors.New("it cannot go on here from where it was saved")

// read reads what is to be restored, before anything of the task is made. The task takes over the marker
// that the processes have.
func (p *passage) read() (*savedTask, error) {
	t, err := readSaved(p.s.f.Restore.Folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotRestored, err)
	}
	if p.s.tools.Restore == nil {
		return nil, fmt.Errorf("%w: this node's agent cannot restore programs", errNotRestored)
	}
	p.s.f.Marker = t.Marker
	if err := writeFile(p.s.dir, markerFile, []byte(t.Marker)); err != nil {
		return nil, fmt.Errorf("%w: %w", errSpool, err)
	}
	return t, nil
}

// restore has the task's processes made again. They are the supervisor's children, as if it had started them.
func (p *passage) restore(t *savedTask) {
	s := p.s
	p.busy, p.restoring = true, true
	root := &child{pid: t.Root, rank: 0, enters: true, gone: make(chan struct{})}
	s.children[root.pid], s.ranks = root, []*child{root}
	go func() {
		err := s.tools.Restore(context.Background(), Restoring{
			Dir: filepath.Join(s.f.Restore.Folder, processesSaved), CRIU: s.f.Restore.CRIU, Node: s.f.Socket, Grant: s.f.start.Grant,
			Run: func(ctx context.Context, cmd *exec.Cmd) error { return p.run(ctx, cmd, true) },
		})
		s.inbox <- func() { p.restored(root, err) }
	}()
}

// restored lets the processes go on that were made again: they were saved while they were suspended.
func (p *passage) restored(root *child, err error) {
	s := p.s
	p.busy, p.restoring = false, false
	root.enters = false
	if err != nil {
		s.ranks = nil
		delete(s.children, root.pid) // CRIU has ended it, if it was there
		s.stop(wire.Stop{Cause: wire.NotReady, Reason: fmt.Sprintf("%v: %v", errNotRestored, err)})
		return
	}
	s.begun, s.outcome.began = true, time.Now()
	if err := writeOpened(s.dir); err != nil {
		s.log.Warn("it cannot be written down that the output is open: muster logs will not find it", "error", err)
	}
	s.moveMembers()
	s.signalAll(syscall.SIGCONT)
	s.startClock()
	s.settle(root)
	s.tellAll()
	p.catchUp()
}

// ---- commands ----

// run runs a command of a save or restore as a child of the supervisor, with the task's processes or apart
// from them, and waits for its end.
func (p *passage) run(ctx context.Context, cmd *exec.Cmd, among bool) error {
	type begun struct {
		child *child
		err   error
	}
	began := make(chan begun, 1)
	p.s.inbox <- func() {
		c, err := p.begin(cmd, among)
		began <- begun{c, err}
	}
	b := <-began
	if b.err != nil {
		return b.err
	}
	select {
	case <-b.child.gone:
	case <-ctx.Done():
		_ = unix.Kill(b.child.pid, unix.SIGKILL) // its number is its own until it is waited for, and then gone is closed
		<-b.child.gone
	}
	if status := b.child.status; !status.Exited() || status.ExitStatus() != 0 {
		if status.Signaled() {
			return fmt.Errorf("it was ended by signal %d", status.Signal())
		}
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}

// begin starts a command, in the supervisor's own goroutine: so nobody waits for it before it is known.
func (p *passage) begin(cmd *exec.Cmd, among bool) (*child, error) {
	s := p.s
	if s.kill.over {
		return nil, errors.New("the task is ending")
	}
	r := &startRequest{tool: cmd, among: among, reply: make(chan started, 1)}
	s.starts <- r
	got := <-r.reply
	if got.err != nil {
		return nil, got.err
	}
	c := &child{pid: got.pid, rank: toolRank, gone: make(chan struct{})}
	s.children[c.pid] = c
	return c, nil
}

// forkTool starts a command of a save or restore. Processes that it makes have the thread as their parent
// that never ends, and so do not die before the supervisor.
func (s *supervisor) forkTool(r *startRequest) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	for i, f := range []any{r.tool.Stdout, r.tool.Stderr} {
		if f, ok := f.(*os.File); ok {
			files[1+i] = f.Fd()
		}
	}
	for _, f := range r.tool.ExtraFiles {
		files = append(files, f.Fd())
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: r.tool.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if r.among && s.cg != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(s.cg.fd.Fd())
	}
	return syscall.ForkExec(r.tool.Path, r.tool.Args, attr)
}
