package node

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/confine"
	"muster/node/vgpu"
	"muster/node/worker"
	"muster/wire/control"
	"muster/wire/status"
)

// Workers compile and run what programs send. So they are confined (internal/confine): the daemon starts
// them with what they reach of the file system, and the first thing that they do is to give up system
// calls (worker.Main). What a worker has afterwards came with its control connection.

// ConfineMode says whether workers are confined.
type ConfineMode string

// The modes of confinement.
const (
	ConfineAuto ConfineMode = "auto" // as far as the kernel can
	ConfineOn   ConfineMode = "on"   // required: without it the node does not start
	ConfineOff  ConfineMode = "off"
)

// ParseConfine reads a mode.
func ParseConfine(s string) (ConfineMode, error) {
	switch m := ConfineMode(s); m {
	case ConfineAuto, ConfineOn, ConfineOff:
		return m, nil
	}
	return "", fmt.Errorf("must be auto, on or off, not %q", s)
}

// confinement is how the node's workers are confined.
type confinement struct {
	on   bool
	base confine.Rules // what they reach whatever the devices are
	has  confine.State // what is in force for each worker that is started
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

// openConfinement finds out how far workers can be confined here. The node's devices are known.
func (d *daemon) openConfinement() error {
	mode := d.cfg.Confine
	c := &d.confinement
	c.on = mode == ConfineAuto || mode == ConfineOn
	if !c.on {
		return nil
	}
	c.base = confine.Rules{Read: systemFolders, Execute: executables(d.opts.WorkerCommand), Devices: systemDevices}.And(confine.Rules{
		Read:    slices.Concat(systemFiles, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), []string{d.opts.Revoked}),
		Write:   []string{d.cfg.Swap.Dir, d.mps.pipe},
		Connect: d.cfg.Offload.borrows(),
	})
	var err error
	if c.has, err = confine.Try(d.reach()); err == nil {
		return nil
	}
	if mode == ConfineOn {
		return fmt.Errorf("confine: on: workers cannot be confined here: %w", err)
	}
	d.log.Warn("workers are confined only in part", "by", status.Confined(c.has).String(), "reason", err)
	return nil
}

// reach is what a worker that is started now reaches. It waits for no file system.
func (d *daemon) reach() confine.Rules {
	all := d.confinement.base
	if d.opts.Needs != nil {
		seen := map[control.DeviceConfig]bool{}
		for _, e := range d.stock.Load().entries {
			alike := control.DeviceConfig{Kind: e.Kind, Lender: e.Lender, Faults: e.Faults}
			if !seen[alike] { // the devices of a driver need the same
				seen[alike] = true
				all = all.And(d.opts.Needs(alike))
			}
		}
	}
	return all
}

// bounds are what a worker is started with; the zero value if it is not confined.
type bounds struct {
	on    bool
	reach confine.Rules
	by    confine.State
}

// bounds are those of a worker that is started now.
func (d *daemon) bounds() bounds {
	if !d.confinement.on {
		return bounds{}
	}
	return bounds{true, d.reach(), d.confinement.has}
}

// String tells bounds apart.
func (b bounds) String() string { return fmt.Sprintf("%#v", b) }

// files are those that a worker within these bounds may read one by one, as they are now.
func (b bounds) files() string {
	if !b.on {
		return ""
	}
	return b.reach.Files()
}

// start starts a worker within these bounds.
func (b bounds) start(cmd *exec.Cmd) error {
	if !b.on {
		return startApart(cmd)
	}
	cmd.Env = append(os.Environ(), worker.ConfineVariable+"="+worker.Confine{Rules: b.reach, By: b.by}.String())
	by := b.by
	if b.reach.Threads {
		by.Landlock = 0 // the worker confines itself
	}
	return confine.Run(b.reach, by, func() error { return startApart(cmd) })
}

// renewBound has a client whose worker does not reach a device that was added go on in another worker, if
// it can.
func (d *daemon) renewBound(c *client, now bounds) {
	if is := c.worker.bounds; is.on && is.String() != now.String() && d.mayRebuild(c) {
		c.worker.post(control.Renew{Device: -1, Reason: "its worker does not reach a device that was added"})
	}
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

// confinedOn is what confines all workers of clients on a device, and those that wait there for a client;
// what the next worker gets if there is none. The loop calls it.
func (d *daemon) confinedOn(id vgpu.DeviceID) status.Confined {
	least := d.confinement.has
	for _, c := range d.clients {
		if c.worker != nil && c.device == id {
			least = least.Least(d.confines(c.worker))
		}
	}
	for _, s := range d.spares.all {
		if s.worker != nil && s.device == id {
			least = least.Least(d.confines(s.worker))
		}
	}
	return status.Confined(least)
}

// confines is what confines a worker: of Landlock the kernel says nothing, but the daemon that started the
// worker had it, or had no worker. One of an earlier daemon, whose configuration may have been another, has
// it if it has given up system calls.
func (d *daemon) confines(w *workerProcess) confine.State {
	if w.confined == nil {
		is, ok := confine.Of(w.pid())
		if !ok {
			return d.confinement.has // it has just ended
		}
		if is.Seccomp || w.bounds.on {
			is.Landlock = d.confinement.has.Landlock
		}
		w.confined = &is
	}
	return *w.confined
}
