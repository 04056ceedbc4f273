package confine

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// The filter refuses with an error and never kills: a driver that tries something it can do without goes
// on. It lists what is refused, not what is allowed, since nobody can say what a driver's next release
// calls. Only numbers that were not known when this was written are refused, too, as by an older kernel.

// refused are the system calls that no confined process needs, beside those of one architecture
// (refusedHere).
var refused = []uintptr{
	// Other programs, and processes that are not threads (see clone).
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	// Other processes' memory, descriptors and events.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MIGRATE_PAGES, unix.SYS_PERF_EVENT_OPEN,
	// File systems and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// Parts of the kernel that have let users become root.
	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_LSM_SET_SELF_ATTR,
	// The machine.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
}

// newest is the last system call that was known when refused was written. They are numbered alike on all
// architectures that have a filter. What is above, the numbers of x32 among them, is not there.
const newest = unix.SYS_RSEQ_SLICE_YIELD

// Where a filter finds what is called (struct seccomp_data). Of arguments it looks at the lower half,
// which is all that the kernel takes of an int.
const (
	atNumber, atArchitecture, atArguments = 0, 4, 16
)

// filter is the program that the kernel runs for each system call of a process with these rules; nil if
// there is none for this architecture.
func filter(r Rules) []unix.SockFilter {
	if architecture == 0 {
		return nil
	}
	f := []unix.SockFilter{
		load(atArchitecture), equal(architecture, 1, 0), fail(syscall.ENOSYS),
		load(atNumber), above(newest, 0, 1), fail(syscall.ENOSYS),
	}
	f = append(f, of(unix.SYS_IOCTL, // it must not type at the terminal of its user
		argument(1), equal(unix.TIOCSTI, 1, 0), equal(unix.TIOCLINUX, 0, 1), fail(syscall.EPERM), allowed)...)
	f = append(f, of(unix.SYS_CLONE, // threads, and no processes
		argument(0), anyOf(unix.CLONE_THREAD, 1, 0), fail(syscall.EPERM), allowed)...)
	f = append(f, of(unix.SYS_CLONE3, // its flags are out of a filter's sight; callers use clone instead
		fail(syscall.ENOSYS))...)
	f = append(f, of(unix.SYS_PRLIMIT64, // its own limits, not those of another process of its user
		argument(0), equal(0, 1, 0), fail(syscall.EPERM), allowed)...)
	f = append(f, of(unix.SYS_SOCKET, sockets(r)...)...)
	f = append(f, of(unix.SYS_SOCKETPAIR,
		append([]unix.SockFilter{argument(0), equal(unix.AF_UNIX, 1, 0), fail(syscall.EAFNOSUPPORT)}, local(r)...)...)...)
	for _, number := range slices.Concat(refused, refusedHere) {
		f = append(f, of(number, fail(syscall.EPERM))...)
	}
	return append(f, allowed)
}

// sockets is what happens to socket: without Connect there are only UNIX sockets.
func sockets(r Rules) []unix.SockFilter {
	here := local(r)
	network := []unix.SockFilter{fail(syscall.EAFNOSUPPORT)}
	if r.Connect || r.Sockets {
		network = []unix.SockFilter{
			equal(unix.AF_INET, 3, 0), equal(unix.AF_INET6, 2, 0), equal(unix.AF_NETLINK, 11, 0), fail(syscall.EAFNOSUPPORT),
			argument(1), and(0xf), equal(unix.SOCK_STREAM, 2, 0), equal(unix.SOCK_DGRAM, 1, 0), fail(syscall.EPERM), // no raw packets
			argument(2), equal(0, 6, 0), equal(unix.IPPROTO_TCP, 5, 0), equal(unix.IPPROTO_UDP, 4, 0), fail(syscall.EPROTONOSUPPORT), // Landlock does not see MPTCP
			argument(2), equal(unix.NETLINK_ROUTE, 1, 0), fail(syscall.EPERM), // for names and addresses of interfaces
			allowed,
		}
	}
	return slices.Concat([]unix.SockFilter{argument(0), equal(unix.AF_UNIX, 0, uint8(len(here)))}, here, network)
}

// local is what happens to UNIX sockets. One for datagrams sends to every address of the system, even one
// of a pair, so a process has them only if its rules say so.
func local(r Rules) []unix.SockFilter {
	if r.Sockets {
		return []unix.SockFilter{allowed}
	}
	return []unix.SockFilter{argument(1), and(0xf), equal(unix.SOCK_STREAM, 2, 0), equal(unix.SOCK_SEQPACKET, 1, 0), fail(syscall.EPERM), allowed}
}

// of is what happens to one system call. The instructions must end with a result.
func of(number uintptr, does ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{equal(uint32(number), 0, uint8(len(does)))}, does...)
}

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func argument(i uint32) unix.SockFilter { return load(atArguments + 8*i) }

func and(mask uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}
}

// equal, above and anyOf skip so many instructions if what was loaded is so, or is not so.
func equal(k uint32, so, not uint8) unix.SockFilter { return jump(unix.BPF_JEQ, k, so, not) }
func above(k uint32, so, not uint8) unix.SockFilter { return jump(unix.BPF_JGT, k, so, not) }
func anyOf(k uint32, so, not uint8) unix.SockFilter { return jump(unix.BPF_JSET, k, so, not) }

func jump(how uint16, k uint32, so, not uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: so, Jf: not}
}

func fail(e syscall.Errno) unix.SockFilter { return result(unix.SECCOMP_RET_ERRNO | uint32(e)) }

var allowed = result(unix.SECCOMP_RET_ALLOW)

func result(r uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: r} }
