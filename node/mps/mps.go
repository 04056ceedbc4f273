package mps

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/device"
	"muster/internal/strictjson"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/statefolder"
	"muster/wire/control"
	"muster/wire/status"
)

// NVIDIA's Multi-Process Service (MPS) lets kernels of several processes run on a GPU at the
// same time. The node starts a control daemon of its own, in a folder of its state that no
// other user can reach, and only its workers know of it. The daemon outlives a node that is
// killed or hands over, because workers do; the next node finds it there. A service that the
// site runs is used as it is, and left alone.

const (
	Program  = "nvidia-cuda-mps-control"
	Folder   = "mps"         // in the state folder
	mpsOwner = "daemon.json" // in mpsFolder: which process the control daemon is
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

// Service is the service that the node's workers use.
type Service struct {
	log     *slog.Logger
	dir     string // of the node's own; "" if it has none
	Pipe    string // the folder of the service that workers use; "" if they use none
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

// Open starts or finds the service, as the mode says. dir is for the node's own, "" for none.
func Open(mode settings.MPSMode, dir string, queues int, hasCUDA bool, log *slog.Logger) (*Service, error) {
	s := &Service{log: log, closing: make(chan struct{}), queues: queues, dir: dir}
	if dir != "" {
		s.find()
	}
	site, running := sites()
	switch {
	case mode == settings.MPSOff || mode == "":
		s.kept, s.silent = running || hasCUDA, true // the site, or another user, may start one later
		s.retire()
		return s, nil
	case running:
		s.Pipe, s.site = site, true
		s.retire()
		log.Info("workers use the MPS that this site runs, and the node starts none", "folder", site)
		return s, nil
	}
	err := s.begin(mode, hasCUDA)
	if err == nil {
		return s, nil
	}
	s.why, s.silent = err.Error(), !hasCUDA
	if mode == settings.MPSOn {
		return s, err
	}
	s.retire()
	if !s.silent {
		log.Info("programs share GPUs without MPS", "reason", err)
	}
	return s, nil
}

// Queues is how many queues of the device a worker asks for. The driver puts the streams of a process
// into so many: 8 without MPS, and under MPS 2, since all workers share those of the device, which
// are enough for some 60 workers then. A stream that waits for the host keeps the others in its
// queue waiting, and with 2 queues these are soon the ones that it waits for.
func Queues(vgpus int) int {
	const most, least, all, spares = 8, 2, 96, 4
	return max(min(all/(vgpus+spares), most), least)
}

// sites says where the service of the site is, and whether it runs.
func sites() (folder string, running bool) {
	folder = os.Getenv(device.MPSVariable)
	if folder == "" {
		folder = siteMPS
	}
	pid, err := sitesPid(folder)
	if err != nil {
		return folder, false
	}
	_, running = proc.Start(pid)
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
	f, err := os.OpenFile(filepath.Join(folder, Program+".pid"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !isTrusted(info) {
		return 0, errors.Join(err, errStranger)
	}
	text, err := statefolder.Limit.Read(f, f.Name())
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
func (s *Service) begin(mode settings.MPSMode, hasCUDA bool) error {
	switch {
	case mode == settings.MPSAuto && !hasCUDA:
		return errors.New("the node has no CUDA device")
	case s.dir == "":
		return errors.New("the node keeps no state, so that nobody could end the control daemon of one that was killed: give it an orphan_grace above 0")
	case len(s.pipeDir()) > maxPipe:
		return fmt.Errorf("the path %s is too long for its sockets: give the node a shorter state folder (state, --state)", s.pipeDir())
	}
	if _, err := exec.LookPath(Program); err != nil {
		return fmt.Errorf("%s is not there (it comes with NVIDIA's driver): %w", Program, err)
	}
	if s.pid == 0 {
		if err := s.launch(); err != nil {
			return err
		}
	} else {
		s.log.Info("the MPS control daemon of an earlier node is this one's", "pid", s.pid, "folder", s.pipeDir())
	}
	s.Pipe, s.ended = s.pipeDir(), make(chan struct{})
	go s.watch()
	return nil
}

func (s *Service) pipeDir() string { return filepath.Join(s.dir, "pipe") }
func (s *Service) logDir() string  { return filepath.Join(s.dir, "log") }

// find looks for a control daemon that an earlier node started.
func (s *Service) find() {
	var p mpsProcess
	text, err := statefolder.Limit.ReadFile(filepath.Join(s.dir, mpsOwner))
	if err != nil || strictjson.Decode(text, &p) != nil || p.Boot != proc.Boot() || !proc.IsRunning(p.Pid, p.Start) {
		return
	}
	s.pid, s.start = p.Pid, p.Start
}

// launch starts a control daemon, and waits until it is there.
func (s *Service) launch() error {
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
		return fmt.Errorf("starting %s: %w", Program, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // watch notices and logs it
		close(exited)
	}()
	start, _ := proc.Start(cmd.Process.Pid)
	if err := s.own(mpsProcess{proc.Boot(), cmd.Process.Pid, start}); err != nil {
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
			return fmt.Errorf("%s ended at once: %s", Program, s.lastWords())
		case <-late.C:
			_ = cmd.Process.Kill()
			return fmt.Errorf("%s was not ready after %v: %s", Program, mpsReady, s.lastWords())
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
func (s *Service) own(p mpsProcess) error {
	return statefolder.Write(s.dir, mpsOwner, p)
}

// lastWords is the end of what the control daemon wrote; its log may hold months.
func (s *Service) lastWords() string {
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
func (s *Service) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command(Program, arguments...)
	cmd.Env = append(os.Environ(), device.MPSVariable+"="+s.pipeDir(), "CUDA_MPS_LOG_DIRECTORY="+s.logDir())
	return cmd
}

// watch starts the control daemon again when it has ended. Programs that come meanwhile get
// contexts of their own.
func (s *Service) watch() {
	defer close(s.ended)
	for wait := mpsRestart; ; wait = min(2*wait, mpsSlowest) {
		for s.isUp() {
			select {
			case <-s.closing:
				return
			case <-time.After(proc.LookTime):
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

func (s *Service) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid != 0 && proc.IsRunning(s.pid, s.start)
}

// Folder is where workers reach the service; "" if there is none now.
func (s *Service) Folder() string {
	if s == nil || s.Pipe == "" || !s.site && !s.isUp() {
		return ""
	}
	return s.Pipe
}

// Nowhere is a folder without a service: a worker that is told to use it has contexts of its
// own, whatever the site runs. "" if there is no service to keep workers from.
func (s *Service) Nowhere() string {
	if s == nil || s.Pipe == "" && !s.kept {
		return ""
	}
	return "/nonexistent/muster-keeps-mps-away"
}

// Used is how a worker uses the service whose client may share it or not; nil: as if there were none.
func (s *Service) Used(shares bool, share int) *control.MPS {
	nowhere := s.Nowhere()
	if nowhere == "" {
		return nil
	}
	if folder := s.Folder(); shares && folder != "" {
		return &control.MPS{Pipe: folder, Shared: true, Share: share, Queues: s.queues}
	}
	return &control.MPS{Pipe: nowhere}
}

// StartedAgain is how often the control daemon was started anew.
func (s *Service) StartedAgain() int {
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
func (s *Service) retire() {
	if s.dir != "" && s.pid == 0 {
		_ = os.RemoveAll(s.dir) // what is left of an earlier one
	}
}

// Leave stops watching the service, and leaves it running for the next node.
func (s *Service) Leave() {
	if s != nil && s.ended != nil {
		close(s.closing)
		<-s.ended
	}
}

// Close ends the node's own service. No worker may use it any more.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.Leave()
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
func (s *Service) quit() {
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
func (s *Service) processes() []int {
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

// Status is what the node says of the service; nil if there is nothing to say.
func (s *Service) Status() *status.MPS {
	if s == nil || s.silent {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &status.MPS{Folder: s.Pipe, Site: s.site, Pid: s.pid, Restarts: s.restarts, Why: s.why}
	m.Up = s.Pipe != "" && (s.site || s.pid != 0)
	return m
}

// At is the service of a site in a folder; "" is none. It is there already, and nothing of it is looked at.
func At(folder string) *Service {
	return &Service{Pipe: folder, site: true, closing: make(chan struct{})}
}

// KillLeft kills the control daemon that a killed node has left in a folder, if there is one.
func KillLeft(dir string) {
	s := &Service{dir: dir}
	if s.find(); s.pid != 0 {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
	}
}
