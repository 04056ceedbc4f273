package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"muster/model"
	"muster/node/ask"
	"muster/wire/grant"
)

// grounds are where an episode takes place: what was drawn for its node, and the folders and files.
type grounds struct {
	o    *Options
	spec nodeSpec

	dir, rules, swapDir string // swapDir is "" if the swap area is in memory
	mounted             bool
	mark                string // by which its processes are found
}

// make makes the folders and files.
func (g *grounds) make() error {
	for _, dir := range []string{filepath.Join(g.rules, "now"), filepath.Join(g.dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	// Workers rename files there, as whichever user they run.
	if err := os.Chmod(filepath.Join(g.rules, "now"), 0o777); err != nil {
		return err
	}
	for _, d := range g.spec.devices {
		if err := os.WriteFile(filepath.Join(g.rules, d.name), []byte(ruleFile(g.rules, d.name)), 0o644); err != nil {
			return err
		}
	}
	return g.prepareSwap()
}

// grantFile is where the grant of an episode is.
func (g *grounds) grantFile() string { return filepath.Join(g.dir, "grant") }

// makeGrant makes the grant: a third of the first device, all that is free beyond that, and the node's other
// devices. So its programs may need more than any device has, and lose any, as those by hand.
func (g *grounds) makeGrant(socket string) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	home := grant.Device{Node: "chaos", Memory: uint64(g.spec.devices[0].memory) << 20 / 3, Beyond: model.AllBeyond, Reach: model.ReachNode}
	made := &grant.Grant{ID: "job", User: me.Username, Secret: grant.NewCredential(), Devices: []grant.Device{home}, Limit: grant.AllDevices}
	text, err := made.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(g.grantFile(), text, 0o600); err != nil {
		return err
	}
	_, err = ask.Admit(socket, made, made.Devices, made.Limit, time.Time{})
	return err
}

// settings are the node's settings that depend on the expectation.
func (g *grounds) settings() []string {
	var settings []string
	if g.spec.remote {
		at := g.o.certificates("node-*")
		settings = append(settings, "listen: 127.0.0.1:0", fmt.Sprintf("tls: {cert: %[1]s/node.pem, key: %[1]s/node-key.pem, ca: %[1]s/ca.pem}", at))
	}
	if slices.Contains(g.o.Kinds, SabotageDescriptor) { // the daemon is to keep silent connections until they are found
		settings = append(settings, "connections: {greet: 1h}")
	}
	if g.o.Expect == Fail {
		return append(settings, "recover: off", "orphan_grace: 0")
	}
	return append(settings, "recover: on", "orphan_grace: 1m")
}

// prepareSwap makes the folder of the swap area, or mounts the small disk for it.
func (g *grounds) prepareSwap() error {
	if g.spec.swap == "memory" {
		return nil
	}
	g.swapDir = filepath.Join(g.dir, "swap")
	if err := os.Mkdir(g.swapDir, 0o755); err != nil {
		return err
	}
	if g.spec.swap != "disk" {
		return nil
	}
	if err := mountDisk(g.swapDir, (swapSize+16)<<20); err != nil {
		return fmt.Errorf("a small disk for the swap area: %w", err)
	}
	g.mounted = true
	return nil
}

func mountDisk(dir string, size int) error {
	return syscall.Mount("muster-chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size))
}

// environ is the environment of all processes of the episode.
func (g *grounds) environ() []string {
	return append(os.Environ(), markVariable+"="+g.mark, "TMPDIR="+filepath.Join(g.dir, "tmp"), "MUSTER_SOCKET=@muster-chaos-nowhere")
}

func (g *grounds) shell(line string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = g.environ()
	return cmd
}

// device is the device that the fault chooses.
func (g *grounds) device(f fault) string {
	return g.spec.devices[pick(f.device, len(g.spec.devices))].name
}

func (g *grounds) swapFiles() []string {
	if g.swapDir == "" {
		return nil
	}
	files, _ := filepath.Glob(g.swapDir + "/*")
	return files
}

// leftFiles are files that a stopped node must not leave.
func (g *grounds) leftFiles(socket string) []string {
	files, _ := filepath.Glob(filepath.Join(g.dir, "tmp") + "/*")
	memory, _ := filepath.Glob("/dev/shm/*muster*")
	return slices.Concat(files, memory, g.stateFolders(socket), g.swapFiles())
}

// stateFolders are the folders in which daemons leave state for the next one, by the name of their
// socket.
func (g *grounds) stateFolders(socket string) []string {
	var found []string
	for _, parent := range []string{"/run/muster", fmt.Sprintf("/tmp/muster-%d", os.Getuid()), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "muster")} {
		some, _ := filepath.Glob(filepath.Join(parent, socket))
		found = append(found, some...)
	}
	return found
}

// clear removes what the node has left outside its folder, and unmounts the disk.
func (g *grounds) clear(socket string) error {
	for _, folder := range g.stateFolders(socket) {
		_ = os.RemoveAll(folder)
	}
	if !g.mounted {
		return nil
	}
	return syscall.Unmount(g.swapDir, syscall.MNT_DETACH)
}
