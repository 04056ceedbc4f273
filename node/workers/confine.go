package workers

import (
	"debug/elf"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/confine"
	"muster/node/settings"
	"muster/node/worker/ownprocess"
	"muster/wire/status"
)

// Workers compile and run what programs send. So they are confined (internal/confine): the daemon starts
// them with what they reach of the file system, and the first thing that they do is to give up system
// calls (worker.Main). What a worker has afterwards came with its control connection.

// Confinement is how the node's workers are confined.
type Confinement struct {
	on   bool
	base confine.Rules // what they reach whatever the devices are
	has  confine.State // what is in force for each worker that is started

	needs func() confine.Rules // what they reach beside that for the present devices; must not wait
}

// Where systems have what every process may read: libraries, the state of the machine, and how to find
// other machines.
var (
	systemFolders = []string{"/usr", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store", "/sys", "/proc", "/run/nvidia", "/run/opengl-driver"}
	systemFiles   = []string{
		"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/nvidia", "/etc/ssl", "/etc/pki", "/etc/passwd", "/etc/group",
		"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols",
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager",
	}
	systemDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
)

// Confine finds out how far workers, which command starts, can be confined here. They reach what
// every process may read, more (its Read, Write and Connect), and what the devices need.
func Confine(mode settings.ConfineMode, command []string, more confine.Rules, needs func() confine.Rules, log *slog.Logger) (*Confinement, error) {
	c := &Confinement{on: mode == settings.ConfineAuto || mode == settings.ConfineOn, needs: needs}
	if !c.on {
		return c, nil
	}
	more.Read = slices.Concat(systemFiles, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), more.Read)
	c.base = confine.Rules{Read: systemFolders, Execute: executables(command), Devices: systemDevices}.And(more)
	var err error
	if c.has, err = confine.Try(c.reach()); err == nil {
		return c, nil
	}
	if mode == settings.ConfineOn {
		return nil, fmt.Errorf("confine: on: workers cannot be confined here: %w", err)
	}
	log.Warn("workers are confined only in part", "by", status.Confined(c.has).String(), "reason", err)
	return c, nil
}

// reach is what a worker that is started now reaches. It waits for no file system.
func (c *Confinement) reach() confine.Rules { return c.base.And(c.needs()) }

// Bounds are those of a worker that is started now.
func (c *Confinement) Bounds() Bounds {
	if c == nil || !c.on {
		return Bounds{}
	}
	return Bounds{true, c.reach(), c.has}
}

// Of is what confines a worker: of Landlock the kernel says nothing, but the daemon that started the worker
// had it, or had no worker. One of an earlier daemon, whose configuration may have been another, has it if
// it has given up system calls. Only the loop calls it.
func (c *Confinement) Of(w *Process) confine.State {
	if w.confined == nil {
		is, ok := confine.Of(w.PID())
		if !ok {
			return c.has // it has just ended
		}
		if is.Seccomp || w.bounds.on {
			is.Landlock = c.has.Landlock
		}
		w.confined = &is
	}
	return *w.confined
}

// Bounds are what a worker is started with; the zero value if it is not confined.
type Bounds struct {
	on    bool
	reach confine.Rules
	by    confine.State
}

// String tells bounds apart.
func (b Bounds) String() string { return fmt.Sprintf("%#v", b) }

// files are those that a worker within these bounds may read one by one, as they are now.
func (b Bounds) files() string {
	if !b.on {
		return ""
	}
	return b.reach.Files()
}

// start starts a worker within these bounds.
func (b Bounds) start(cmd *exec.Cmd) error {
	if !b.on {
		return startApart(cmd)
	}
	cmd.Env = append(os.Environ(), ownprocess.ConfineVariable+"="+ownprocess.Confine{Rules: b.reach, By: b.by}.String())
	by := b.by
	if b.reach.Threads {
		by.Landlock = 0 // the worker confines itself
	}
	return confine.Run(b.reach, by, func() error { return startApart(cmd) })
}

// executables are the files by which a command is executed.
func executables(command []string) (files []string) {
	for _, part := range command {
		path, err := exec.LookPath(part)
		if err != nil {
			continue // an argument
		}
		files = append(files, path)
		file, err := elf.Open(path)
		if err != nil {
			continue
		}
		for _, p := range file.Progs {
			if name := make([]byte, min(p.Filesz, 4096)); p.Type == elf.PT_INTERP {
				if _, err := p.ReadAt(name, 0); err == nil {
					files = append(files, strings.TrimRight(string(name), "\x00"))
				}
			}
		}
		file.Close()
	}
	return files
}

// Outgrown says whether the worker was started within other bounds than those of now.
func (w *Process) Outgrown(now Bounds) bool {
	return w.bounds.on && w.bounds.String() != now.String()
}

// State is what confines a worker that is started now.
func (c *Confinement) State() confine.State {
	if c == nil {
		return confine.State{}
	}
	return c.has
}
