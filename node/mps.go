package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"log/slog"

	"muster/device"
	"muster/wire/control"
	"muster/wire/status"
)

// NVIDIA's Multi-Process Service (MPS) lets kernels of several processes run on a GPU at the
// same time. The node starts a control daemon of its own, in a folder of its state that no
// other user can reach, and only its workers know of it. The daemon outlives a node that is
// killed or hands over, because workers do; the next node finds it there. A service that the
// site runs is used as it is, and left alone.

// MPSMode says whether workers use the service.
type MPSMode string

// The modes of MPS.
const (
	MPSAuto MPSMode = "auto" // if it is available
	MPSOn   MPSMode = "on"   // required: without it the node does not start
	MPSOff  MPSMode = "off"
)

// ParseMPS reads a mode.
func ParseMPS(s string) (MPSMode, error) {
	switch m := MPSMode(s); m {
	case MPSAuto, MPSOn, MPSOff:
		return m, nil
	}
	return "", fmt.Errorf("must be auto, on or off, not %q", s)
}

// ParseShare reads a part of a device's multiprocessors, as 25%.
func ParseShare(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil || n < 1 || n > 100 || !strings.HasSuffix(s, "%") {
		return 0, fmt.Errorf("must be a part of 1%% to 100%%, as 25%%, not %q", s)
	}
	return n, nil
}

const (
	mpsControl = "nvidia-cuda-mps-control"
	mpsFolder  = "mps"         // in the state folder
	mpsOwner   = "daemon.json" // in mpsFolder: which process the control daemon is
	// siteMPS is where a site's service is, unless the environment names another folder.
	siteMPS = "/tmp/nvidia-mps"

	mpsReady   = 20 * time.Second // for the control daemon to be there
	mpsQuit    = 10 * time.Second // for it to end
	mpsLook    = 10 * time.Millisecond
	mpsRestart = time.Second // before it is started again; doubles each time, up to mpsSlowest
	mpsSlowest = time.Minute
)

// maxPipe bounds the length of the folder's path: the service puts sockets there, and the
// system bounds the length of their paths.
const maxPipe = 107 - len("/control_privileged")

// mpsService is the service that the node's workers use.
type mpsService struct {
	log     *slog.Logger
	dir     string // of the node's own; "" if it has none
	pipe    string // the folder of the service that workers use; "" if they use none
	site    bool   // that service is the site's
	kept    bool   // workers must be kept from using a service that is not the node's
	silent  bool   // nothing is said of MPS in the status: it is off, or there is no real GPU
	queues  int    // of the device that each worker asks for
	closing chan struct{}
	ended   chan struct{} // closed when watch has returned; nil if it was never started

	mu       sync.Mutex
	pid      int // of the control daemon; 0 while there is none
	start    uint64
	restarts int
	why      string // why workers use no service, or not now; mu protects pid and what follows
}

// mpsProcess is what the next node must know of the control daemon.
type mpsProcess struct {
	Boot  string `json:"boot"`
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// openMPS starts or finds the service, as the configuration says.
func (d *daemon) openMPS() error {
	s := &mpsService{log: d.log, closing: make(chan struct{}), queues: queuesFor(d.cfg.VGPUs)}
	d.mps = s
	if d.folder != nil {
		s.dir = filepath.Join(d.folder.dir, mpsFolder)
		s.find()
	}
	site, running := sitesMPS()
	switch mode := d.cfg.MPS; {
	case mode == MPSOff || mode == "":
		s.kept, s.silent = running || d.cfg.hasCUDA(), true // the site, or another user, may start one later
		s.retire()
		return nil
	case running:
		s.pipe, s.site = site, true
		s.retire()
		d.log.Info("workers use the MPS that this site runs, and the node starts none", "folder", site)
		return nil
	default:
		err := s.begin(mode, d.cfg.hasCUDA())
		if err != nil && mode == MPSOn {
			return fmt.Errorf("mps: on: %w", err)
		}
		if err != nil {
			s.why, s.silent = err.Error(), !d.cfg.hasCUDA()
			s.retire()
			if !s.silent {
				d.log.Info("programs share GPUs without MPS", "reason", err)
			}
		}
		return nil
	}
}

// queuesFor is how many queues of the device a worker asks for. The driver puts the streams of a process
// into so many: 8 without MPS, and under MPS 2, since all workers share those of the device, which
// are enough for some 60 workers then. A stream that waits for the host keeps the others in its
// queue waiting, and with 2 queues these are soon the ones that it waits for.
func queuesFor(vgpus int) int {
	const most, least, all, spares = 8, 2, 96, 4
	return max(min(all/(vgpus+spares), most), least)
}

// hasCUDA says whether any device is a real GPU.
func (c *Config) hasCUDA() bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Kind == "cuda" })
}

// sitesMPS says where the service of the site is, and whether it runs.
func sitesMPS() (folder string, running bool) {
	folder = os.Getenv(device.MPSVariable)
	if folder == "" {
		folder = siteMPS
	}
	pid, err := sitesPid(folder)
	if err != nil {
		return folder, false
	}
	_, running = processStart(pid)
	return folder, running
}

// sitesPid reads the process number of the control daemon in a folder. Where no service runs,
// any user can make that folder in /tmp: so only files of root or of the node's own user are
// believed, lest another user's process serve the node's workers. A named pipe in the file's
// place must not make the node wait.
func sitesPid(folder string) (int, error) {
	for _, look := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} { // the link itself, and its target
		if info, err := look(folder); err != nil || !isTrusted(info) {
			return 0, errors.Join(err, errStranger)
		}
	}
	f, err := os.OpenFile(filepath.Join(folder, mpsControl+".pid"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !isTrusted(info) {
		return 0, errors.Join(err, errStranger)
	}
	text, err := stateLimit.Read(f, f.Name())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

var errStranger = errors.New("it is another user's")

// isTrusted says whether a file belongs to root or to the node's own user.
func isTrusted(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// begin starts the node's own service, or goes on with the one that an earlier node started.
func (s *mpsService) begin(mode MPSMode, hasCUDA bool) error {
	switch {
	case mode == MPSAuto && !hasCUDA:
		return errors.New("the node has no CUDA device")
	case s.dir == "":
		return errors.New("the node keeps no state, so that nobody could end the control daemon of one that was killed: give it an orphan_grace above 0")
	case len(s.pipeDir()) > maxPipe:
		return fmt.Errorf("the path %s is too long for its sockets: give the node a shorter state folder (state, --state)", s.pipeDir())
	}
	if _, err := exec.LookPath(mpsControl); err != nil {
		return fmt.Errorf("%s is not there (it comes with NVIDIA's driver): %w", mpsControl, err)
	}
	if s.pid == 0 {
		if err := s.launch(); err != nil {
			return err
		}
	} else {
		s.log.Info("the MPS control daemon of an earlier node is this one's", "pid", s.pid, "folder", s.pipeDir())
	}
	s.pipe, s.ended = s.pipeDir(), make(chan struct{})
	go s.watch()
	return nil
}

func (s *mpsService) pipeDir() string { return filepath.Join(s.dir, "pipe") }
func (s *mpsService) logDir() string  { return filepath.Join(s.dir, "log") }

// find looks for a control daemon that an earlier node started.
func (s *mpsService) find() {
	var p mpsProcess
	text, err := stateLimit.ReadFile(filepath.Join(s.dir, mpsOwner))
	if err != nil || strictly(text, &p) != nil || p.Boot != bootID() || !isRunning(p.Pid, p.Start) {
		return
	}
	s.pid, s.start = p.Pid, p.Start
}

// launch starts a control daemon, and waits until it is there.
func (s *mpsService) launch() error {
	if err := os.RemoveAll(s.pipeDir()); err != nil {
		return err
	}
	for _, dir := range []string{s.dir, s.pipeDir(), s.logDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	said, err := os.OpenFile(filepath.Join(s.logDir(), "output"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := s.command("-f")
	// The control daemon outlives the node, so it writes to a file and not to a pipe of the
	// node's.
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", mpsControl, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // watch notices and logs it
		close(exited)
	}()
	start, _ := processStart(cmd.Process.Pid)
	if err := s.own(mpsProcess{bootID(), cmd.Process.Pid, start}); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	late := time.NewTimer(mpsReady)
	defer late.Stop()
	for {
		if _, err := os.Stat(filepath.Join(s.pipeDir(), "control")); err == nil {
			break
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended at once: %s", mpsControl, s.lastWords())
		case <-late.C:
			_ = cmd.Process.Kill()
			return fmt.Errorf("%s was not ready after %v: %s", mpsControl, mpsReady, s.lastWords())
		case <-time.After(mpsLook):
		}
	}
	s.mu.Lock()
	s.pid, s.start, s.why = cmd.Process.Pid, start, ""
	s.mu.Unlock()
	s.log.Info("an MPS control daemon was started for the node's workers", "pid", cmd.Process.Pid, "folder", s.pipeDir())
	return nil
}

// own writes down which process the control daemon is, for the next node.
func (s *mpsService) own(p mpsProcess) error {
	return (&stateFolder{dir: s.dir}).write(mpsOwner, p)
}

// lastWords is the end of what the control daemon wrote; its log may hold months.
func (s *mpsService) lastWords() string {
	for _, name := range []string{"output", "control.log"} {
		if said := lastOf(filepath.Join(s.logDir(), name)); said != "" {
			return said
		}
	}
	return "it said nothing (" + s.logDir() + ")"
}

// lastOf is the end of a file.
func lastOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, 400)
	n, _ := f.ReadAt(text, max(0, info.Size()-int64(len(text)))) // a short read means that the file is shorter
	return strings.TrimSpace(string(text[:n]))
}

// command is the control program with the folders of the node's own service.
func (s *mpsService) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command(mpsControl, arguments...)
	cmd.Env = append(os.Environ(), device.MPSVariable+"="+s.pipeDir(), "CUDA_MPS_LOG_DIRECTORY="+s.logDir())
	return cmd
}

// watch starts the control daemon again when it has ended. Programs that come meanwhile get
// contexts of their own.
func (s *mpsService) watch() {
	defer close(s.ended)
	for wait := mpsRestart; ; wait = min(2*wait, mpsSlowest) {
		for s.isUp() {
			select {
			case <-s.closing:
				return
			case <-time.After(lookTimeAway):
			}
		}
		s.mu.Lock()
		pid := s.pid
		s.pid, s.why = 0, "its control daemon has ended, and is being started again"
		s.restarts++
		s.mu.Unlock()
		if pid != 0 {
			s.log.Error("the MPS control daemon has ended: it is started again", "pid", pid, "last words", s.lastWords())
		}
		select {
		case <-s.closing:
			return
		case <-time.After(wait):
		}
		if err := s.launch(); err != nil {
			s.log.Error("the MPS control daemon cannot be started: programs share GPUs without it", "error", err)
		}
	}
}

func (s *mpsService) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid != 0 && isRunning(s.pid, s.start)
}

// folder is where workers reach the service; "" if there is none now.
func (s *mpsService) folder() string {
	if s == nil || s.pipe == "" || !s.site && !s.isUp() {
		return ""
	}
	return s.pipe
}

// nowhere is a folder without a service: a worker that is told to use it has contexts of its
// own, whatever the site runs. "" if there is no service to keep workers from.
func (s *mpsService) nowhere() string {
	if s == nil || s.pipe == "" && !s.kept {
		return ""
	}
	return "/nonexistent/muster-keeps-mps-away"
}

// used is how a worker uses the service whose client may share it or not; nil: as if there were none.
func (s *mpsService) used(shares bool, share int) *control.MPS {
	nowhere := s.nowhere()
	if nowhere == "" {
		return nil
	}
	if folder := s.folder(); shares && folder != "" {
		return &control.MPS{Pipe: folder, Shared: true, Share: share, Queues: s.queues}
	}
	return &control.MPS{Pipe: nowhere}
}

// startedAgain is how often the control daemon was started anew.
func (s *mpsService) startedAgain() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// retire removes the folder of a service that no longer runs. A control daemon of an earlier
// node that still runs is left alone, since that node's workers may use it; it ends with this
// node (close).
func (s *mpsService) retire() {
	if s.dir != "" && s.pid == 0 {
		_ = os.RemoveAll(s.dir) // what is left of an earlier one
	}
}

// closeMPS ends the node's service, or leaves it to the next node with its clients.
func (d *daemon) closeMPS() {
	if d.left.Load() {
		d.mps.leave()
	} else {
		d.mps.close()
	}
}

// leave stops watching the service, and leaves it running for the next node.
func (s *mpsService) leave() {
	if s != nil && s.ended != nil {
		close(s.closing)
		<-s.ended
	}
}

// close ends the node's own service. No worker may use it any more.
func (s *mpsService) close() {
	if s == nil {
		return
	}
	s.leave()
	if s.dir == "" {
		return
	}
	if s.isUp() {
		s.quit()
	}
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.log.Error("the folder of MPS cannot be removed", "error", err)
	}
}

// quit has the control daemon end, with its servers.
func (s *mpsService) quit() {
	cmd := s.command()
	cmd.Stdin = strings.NewReader("quit\n")
	if err := cmd.Start(); err != nil {
		s.log.Warn("the MPS control daemon cannot be told to end: it is killed", "error", err)
		return
	}
	told := make(chan error, 1)
	go func() { told <- cmd.Wait() }()
	for end := time.Now().Add(mpsQuit); time.Now().Before(end) && s.isUp(); {
		time.Sleep(mpsLook)
	}
	_ = cmd.Process.Kill()
	<-told
	if s.isUp() {
		s.log.Warn("the MPS control daemon did not end: it is killed", "pid", s.pid)
	}
}

// processes lists the processes of the node's own service: those of that name that have its
// folder in their environment.
func (s *mpsService) processes() []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		dir := filepath.Dir(path)
		command, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !strings.Contains(string(command), "nvidia-cuda-mps") {
			continue
		}
		environment, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environment), "\x00"), device.MPSVariable+"="+s.pipeDir()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}

// status is what the node says of the service; nil if there is nothing to say.
func (s *mpsService) status() *status.MPS {
	if s == nil || s.silent {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &status.MPS{Folder: s.pipe, Site: s.site, Pid: s.pid, Restarts: s.restarts, Why: s.why}
	m.Up = s.pipe != "" && (s.site || s.pid != 0)
	return m
}
