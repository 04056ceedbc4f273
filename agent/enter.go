package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"muster/internal/strictjson"

	"golang.org/x/sys/unix"
)

// entry is what the process that becomes a job's program is told.
type entry struct {
	Parent      int      `json:"parent"`
	Directory   string   `json:"directory"`
	Arguments   []string `json:"arguments"`
	Environment []string `json:"environment"`
	// Files are opened for standard input, output and error; if nil, the process keeps
	// those that it has.
	Files *entryFiles `json:"files,omitempty"`
	Cores []int       `json:"cores,omitempty"`
	// Terminal says that the standard files are a terminal, which becomes the process's own.
	Terminal bool `json:"terminal,omitempty"`
}

type entryFiles struct {
	Input    string `json:"input"`
	Output   string `json:"output"`
	Error    string `json:"error"`
	Truncate bool   `json:"truncate"`
}

// failure is what such a process reports if it cannot become the program. Exit is 0 if it
// failed before it looked for the job's program. NoFiles says that the directory or a file of the job was
// the reason.
type failure struct {
	Reason  string `json:"reason"`
	Exit    int    `json:"exit"`
	NoFiles bool   `json:"no_files,omitempty"`
}

// The descriptors of such a process, besides the standard ones.
const (
	entryFD  = 3
	resultFD = 4
)

// The exit statuses of shells.
const (
	exitNotFound   = 127
	exitNotAllowed = 126
)

// umask is that of jobs' processes.
const umask = 0o022

// enter becomes the program that it is told to. It runs as the job's user, and has
// nothing of the supervisor's but the two descriptors. The system closes the second when
// the process becomes the program: to the supervisor, the end of that pipe without a
// failure in it means success.
func enter() int {
	runtime.LockOSThread() // setAffinity pins this thread, and exec keeps the affinity of the thread that calls it
	closeOnExecFrom(resultFD + 1)
	syscall.CloseOnExec(entryFD)
	syscall.CloseOnExec(resultFD)
	result := os.NewFile(resultFD, "result")
	f := enterProgram(os.NewFile(entryFD, "entry"))
	if text, err := json.Marshal(f); err == nil {
		_, _ = result.Write(text)
	}
	return max(f.Exit, 1)
}

// closeOnExecFrom has all descriptors from one on closed when the process becomes another
// program. The process that started the agent may have left some open, and a job must not
// get what root has opened. A system that is too old for this call leaves them open.
func closeOnExecFrom(first uint) {
	_ = unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

func enterProgram(from *os.File) failure {
	var e entry
	text, err := io.ReadAll(from)
	if err == nil {
		err = strictjson.Decode(text, &e)
	}
	if err != nil {
		return failure{Reason: "what to run was not understood: " + err.Error()}
	}
	if os.Getppid() != e.Parent { // the supervisor died before Pdeathsig was set, so this process would outlive it
		return failure{Reason: "the task's supervisor has ended"}
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) // only the supervisor is exempt from the OOM killer
	syscall.Umask(umask)
	if len(e.Cores) > 0 {
		if err := setAffinity(0, e.Cores); err != nil {
			return failure{Reason: fmt.Sprintf("the cores %s: %v", coreList(e.Cores), err)}
		}
	}
	if e.Terminal {
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return failure{Reason: "the terminal cannot be taken: " + err.Error()}
		}
	}
	if err := os.Chdir(e.Directory); err != nil {
		return failure{Reason: fmt.Sprintf("the job's directory: %v: make it, or submit the job with another one", err), NoFiles: true}
	}
	if e.Files != nil {
		if err := e.Files.open(); err != nil {
			return failure{Reason: err.Error(), NoFiles: true}
		}
	}
	return e.become()
}

// become turns into the program. It returns only if that fails.
func (e *entry) become() failure {
	program, err := e.find()
	if err == nil {
		err = syscall.Exec(program, e.Arguments, e.Environment)
		if errors.Is(err, syscall.ENOEXEC) {
			err = errors.New("it is no program, and does not begin with #! and the name of one")
		}
		if errors.Is(err, syscall.ENOENT) {
			err = errors.New("it is not there, or what its first line names after #! is not")
		}
	}
	f := failure{Reason: fmt.Sprintf("%s cannot be run: %v", e.Arguments[0], err), Exit: exitNotAllowed}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f = failure{Reason: e.Arguments[0] + ": not found in the job's PATH", Exit: exitNotFound}
	case errors.Is(err, fs.ErrNotExist):
		f.Exit = exitNotFound
	}
	fmt.Fprintf(os.Stderr, "muster: %s\n", f.Reason)
	return f
}

// find looks for the program as a shell does, with the job's own path.
func (e *entry) find() (string, error) {
	name := e.Arguments[0]
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err
	}
	for _, dir := range filepath.SplitList(newEnvironment(e.Environment).values["PATH"]) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// open opens the files and makes them the standard ones.
func (f *entryFiles) open() error {
	input := f.Input
	if input == "" {
		input = os.DevNull
	}
	if err := openAs(0, input, os.O_RDONLY, "input"); err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if f.Truncate {
		flags |= os.O_TRUNC
	}
	if err := openAs(1, f.Output, flags, "output"); err != nil {
		return err
	}
	if f.Error == "" || f.Error == f.Output {
		return syscall.Dup3(1, 2, 0)
	}
	return openAs(2, f.Error, flags, "error output")
}

func openAs(fd int, path string, flags int, what string) error {
	opened, err := syscall.Open(path, flags|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0o666)
	if err != nil {
		return fmt.Errorf("the job's %s %s: %w%s", what, path, err, instead(what, err))
	}
	defer func() { _ = syscall.Close(opened) }()
	return syscall.Dup3(opened, fd, 0)
}

// instead says what to do about a file of a job that cannot be opened.
func instead(what string, err error) string {
	option := map[string]string{"input": "-i", "output": "-o", "error output": "-e"}[what]
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ": make room there, or name another file with " + option
	case errors.Is(err, fs.ErrNotExist) && what != "input":
		return ": make its folder, or name another file with " + option
	}
	return ": name another file with " + option
}
