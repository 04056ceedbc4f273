package emulate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// replaced are the folders of the root that come from the release, or that the cluster has of its
// own.
var replaced = map[string]bool{
	"usr": true, "bin": true, "sbin": true, "lib": true, "lib32": true, "lib64": true, "libx32": true, "etc": true,
}

// hostRoot is where the machine's root is mounted while the new one is being made.
const hostRoot = "/.host"

// enterRoot makes the cluster's root and moves into it. The caller must be alone in its mount
// namespace.
func enterRoot(s *spec) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return explainNamespaces(fmt.Errorf("making mounts private: %w", err), s.Rootless)
	}
	// The new root is mounted over the folder only until it becomes the root: then the folder is
	// visible again.
	if err := syscall.Mount("muster", s.Folder, "tmpfs", syscall.MS_NOSUID, "mode=755"); err != nil {
		return fmt.Errorf("mounting a root: %w", err)
	}
	if err := os.Mkdir(s.Folder+hostRoot, 0o700); err != nil {
		return err
	}
	if err := syscall.PivotRoot(s.Folder, s.Folder+hostRoot); err != nil {
		return fmt.Errorf("changing the root: %w: is the machine's root a RAM disk?", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := mountHost(s); err != nil {
		return err
	}
	if err := mountRelease(s); err != nil {
		return err
	}
	if err := makeGPUs(s.GPUs); err != nil {
		return fmt.Errorf("pretended GPUs: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w: in a container this needs an unmasked /proc (docker run --security-opt systempaths=unconfined)", err)
	}
	if err := syscall.Unmount(hostRoot, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	if err := os.Remove(hostRoot); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("naming the machine: %w", err)
	}
	return os.Chdir(s.Folder)
}

// mountHost mounts the machine's folders under their own names, except those that the release has.
// One that cannot be mounted, such as that of a file server that is away, is left out.
func mountHost(s *spec) error {
	entries, err := os.ReadDir(hostRoot)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "/" + e.Name()
		switch {
		case replaced[e.Name()] || e.Name() == "proc":
		case e.Type()&os.ModeSymlink != 0:
			if target, err := os.Readlink(hostRoot + name); err == nil {
				os.Symlink(target, name)
			}
		case e.IsDir():
			err := bind(hostRoot+name, name)
			if err != nil && (name == "/dev" || strings.HasPrefix(s.Folder, name+"/")) {
				return fmt.Errorf("showing %s: %w", name, err)
			}
		}
	}
	return os.Mkdir("/proc", 0o755)
}

// mountRelease mounts the release's /usr, read-only since it is the shared cache.
func mountRelease(s *spec) error {
	if err := bind(hostRoot+s.Tree+"/usr", "/usr"); err != nil {
		return fmt.Errorf("showing the release: %w", err)
	}
	if err := readOnly("/usr"); err != nil {
		return fmt.Errorf("protecting the release: %w", err)
	}
	// Programs installed by hand, CUDA among them, are in /usr/local.
	if _, err := os.Stat(hostRoot + "/usr/local"); err == nil {
		if err := syscall.Mount(hostRoot+"/usr/local", "/usr/local", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("showing /usr/local: %w", err)
		}
	}
	for name := range replaced {
		if name == "usr" || name == "etc" {
			continue
		}
		if err := os.Symlink("usr/"+name, "/"+name); err != nil {
			return err
		}
	}
	if err := bind(s.path("etc"), "/etc"); err != nil {
		return fmt.Errorf("showing /etc: %w", err)
	}
	return nil
}

// bind mounts a folder under another name, with everything mounted in it.
func bind(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// readOnly makes a mount read-only. In a user namespace the flags that the mount has must be
// repeated.
func readOnly(path string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return err
	}
	const kept = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME
	flags := uintptr(s.Flags) & kept
	if s.Flags&statRelatime != 0 {
		flags |= syscall.MS_RELATIME
	}
	return syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|flags, "")
}

// statRelatime is ST_RELATIME of statfs, the one flag whose bit differs from mount's.
const statRelatime = 4096

// makeGPUs makes device files that stand for GPUs. Each is /dev/null mounted under another name, so
// that Slurm counts and numbers them and sets CUDA_VISIBLE_DEVICES; creating device files would
// need root.
func makeGPUs(n int) error {
	if err := os.Mkdir(gpuFolder, 0o755); err != nil {
		return err
	}
	for i := range n {
		name := filepath.Join(gpuFolder, fmt.Sprintf("gpu%d", i))
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			return err
		}
		if err := syscall.Mount(hostRoot+"/dev/null", name, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
