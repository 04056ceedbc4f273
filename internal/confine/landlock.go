package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rules say which files a process reaches, each folder with all that is below it. What is not there is
// left out. Whatever a process was given open, it keeps.
type Rules struct {
	Read    []string
	Write   []string // and read; files may be made and removed there
	Execute []string // and read
	Devices []string // files of devices, which are read, written and controlled (ioctl)
	Connect bool     // it makes TCP connections and looks up names (UDP); it never accepts connections
	// Sockets says that it has code whose sockets nobody can list, as NVIDIA's driver: it may open UNIX
	// sockets for datagrams, and TCP and UDP sockets. TCP connections need Connect nevertheless.
	Sockets bool
	// Threads says that it writes to the files of its own threads in /proc, as NVIDIA's driver does to name
	// them. Only a process itself can have such a rule: see Anew.
	Threads bool
}

// And returns these rules with others beside them.
func (r Rules) And(more Rules) Rules {
	join := func(a, b []string) []string {
		all := slices.Clone(a)
		for _, path := range b {
			if path != "" && !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
		return all
	}
	return Rules{join(r.Read, more.Read), join(r.Write, more.Write), join(r.Execute, more.Execute), join(r.Devices, more.Devices), r.Connect || more.Connect, r.Sockets || more.Sockets, r.Threads || more.Threads}
}

// Files tells the files that rules let a process read one by one from others that are there by the same
// names later. A process reaches those that were there when it was confined: not one that has replaced
// them since, nor one that was missing then.
func (r Rules) Files() string {
	var all strings.Builder
	for _, path := range r.Read {
		var is syscall.Stat_t
		if err := syscall.Stat(path, &is); err != nil || is.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			continue
		}
		fmt.Fprintf(&all, "%s %d %d %d\n", path, is.Dev, is.Ino, is.Ctim.Nano()) // numbers of files are used again
	}
	return all.String()
}

// newestABI is the last version of Landlock's interface that has something for these rules.
const newestABI = 6

// Rights to files, which Landlock has since its first version, and those that came later.
const (
	reads  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writes = reads | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
	executes = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	controls = reads | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// ofFiles are the rights that something which is no folder can have.
	ofFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// handled is what a version of Landlock's interface takes away unless a rule gives it back.
func (r *Rules) handled(abi int, errata uint64) unix.LandlockRulesetAttr {
	all := unix.LandlockRulesetAttr{Access_fs: unix.LANDLOCK_ACCESS_FS_REFER - 1}
	for _, later := range []struct {
		since int
		right uint64
	}{{2, unix.LANDLOCK_ACCESS_FS_REFER}, {3, unix.LANDLOCK_ACCESS_FS_TRUNCATE}, {5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}} {
		if abi >= later.since {
			all.Access_fs |= later.right
		}
	}
	if abi >= 4 {
		all.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
		if !r.Connect {
			all.Access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	// Without the second erratum, a thread that is restricted cannot send signals to the others of its
	// process: those of the process that starts another.
	if abi >= 6 && errata&2 != 0 {
		all.Scoped = unix.LANDLOCK_SCOPE_SIGNAL
	}
	return all
}

// ruleset makes the rules known to the kernel.
func (r *Rules) ruleset(abi int) (int, error) {
	handled := r.handled(abi, landlock(unix.LANDLOCK_CREATE_RULESET_ERRATA))
	made, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), unsafe.Sizeof(handled), 0)
	if e != 0 {
		return -1, fmt.Errorf("Landlock makes no rules: %w", e)
	}
	for _, list := range []struct {
		paths  []string
		rights uint64
	}{{r.Read, reads}, {r.Write, writes}, {r.Execute, executes}, {r.Devices, controls}} {
		for _, path := range list.paths {
			if err := allow(int(made), path, list.rights&handled.Access_fs); err != nil {
				_ = syscall.Close(int(made))
				return -1, fmt.Errorf("Landlock: %s: %w", path, err)
			}
		}
	}
	return int(made), nil
}

// allow gives a ruleset a rule.
func allow(ruleset int, path string, rights uint64) error {
	fd, err := syscall.Open(path, unix.O_PATH|syscall.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) { // then the process would not reach it either
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var is syscall.Stat_t
	if err := syscall.Fstat(fd, &is); err != nil {
		return err
	}
	if is.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		rights &= ofFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, e := syscall.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// landlockABI is the version of the kernel's interface; 0 if it has no Landlock.
func landlockABI() int { return int(landlock(unix.LANDLOCK_CREATE_RULESET_VERSION)) }

// landlock asks the kernel about Landlock; 0 if it does not know.
func landlock(question uintptr) uint64 {
	answer, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, question)
	if e != 0 {
		return 0
	}
	return uint64(answer)
}
