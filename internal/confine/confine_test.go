package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/need"
)

func TestMain(m *testing.M) {
	if os.Getenv("CONFINE_TEST_CHILD") != "" {
		child(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// eval runs a filter as the kernel does.
func eval(t *testing.T, f []unix.SockFilter, data func(at uint32) uint32) uint32 {
	t.Helper()
	a := uint32(0)
	for pc := 0; ; pc++ {
		i := f[pc] // the kernel refuses a program that jumps beyond its end
		skip := func(so bool) {
			if so {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = data(i.K)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			skip(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			skip(a > i.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			skip(a&i.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d is %+v", pc, i)
		}
	}
}

// row is a system call, and what the filter says of it.
type row struct {
	name      string
	number    uint32
	arguments []uint32
	want      syscall.Errno // 0: allowed
}

// What the filter says of system calls, with their arguments where these count.
func TestFilter(t *testing.T) {
	// What it says of sockets to a process with the least rules, to one that connects, and to one with a
	// driver.
	sockets := []struct {
		row
		connects, driver syscall.Errno
	}{
		{row{"TCP", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"TCP over IPv6", unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_STREAM, 0}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"UDP", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_DGRAM, 0}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"TCP by name", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"UDP by name", unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"TCP over several paths", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, syscall.EAFNOSUPPORT}, syscall.EPROTONOSUPPORT, syscall.EPROTONOSUPPORT},
		{row{"raw packets", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_RAW, 1}, syscall.EAFNOSUPPORT}, syscall.EPERM, syscall.EPERM},
		{row{"raw packets over IPv6", unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_RAW, 58}, syscall.EAFNOSUPPORT}, syscall.EPERM, syscall.EPERM},
		{row{"interfaces", unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, syscall.EAFNOSUPPORT}, 0, 0},
		{row{"netfilter", unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, syscall.EAFNOSUPPORT}, syscall.EPERM, syscall.EPERM},
		{row{"packets", unix.SYS_SOCKET, []uint32{unix.AF_PACKET, unix.SOCK_RAW, 0}, syscall.EAFNOSUPPORT}, syscall.EAFNOSUPPORT, syscall.EAFNOSUPPORT},
		{row{"another machine's kernel", unix.SYS_SOCKET, []uint32{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, syscall.EAFNOSUPPORT}, syscall.EAFNOSUPPORT, syscall.EAFNOSUPPORT},
		{row{"a local socket", unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, 0}, 0, 0},
		{row{"local messages", unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, 0}, 0, 0},
		{row{"local datagrams", unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 0}, syscall.EPERM}, syscall.EPERM, 0},
		{row{"local datagrams, called raw", unix.SYS_SOCKET, []uint32{unix.AF_UNIX, unix.SOCK_RAW, 0}, syscall.EPERM}, syscall.EPERM, 0},
		{row{"a pair", unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_STREAM, 0}, 0}, 0, 0},
		{row{"a pair for datagrams", unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, syscall.EPERM}, syscall.EPERM, 0},
		{row{"another pair", unix.SYS_SOCKETPAIR, []uint32{unix.AF_TIPC, unix.SOCK_STREAM, 0}, syscall.EAFNOSUPPORT}, syscall.EAFNOSUPPORT, syscall.EAFNOSUPPORT},
	}
	for _, rules := range []Rules{{}, {Connect: true}, {Sockets: true}, {Connect: true, Sockets: true}} {
		var rows []row
		for _, s := range sockets {
			switch {
			case rules.Sockets:
				s.want = s.driver
			case rules.Connect:
				s.want = s.connects
			}
			rows = append(rows, s.row)
		}
		filtersAs(t, rules, rows)
	}
}

// filtersAs checks the filter of a process with these rules, against the rows and what holds for all.
func filtersAs(t *testing.T, rules Rules, rows []row) {
	t.Helper()
	f := filter(rules)
	if f == nil {
		need.Missing(t, need.CPU, "there is no filter for this architecture")
	}
	const otherArchitecture = unix.AUDIT_ARCH_PPC
	says := func(architecture, number uint32, arguments ...uint32) uint32 {
		return eval(t, f, func(at uint32) uint32 {
			switch {
			case at == atNumber:
				return number
			case at == atArchitecture:
				return architecture
			case at >= atArguments && at%8 == 0 && int(at-atArguments)/8 < len(arguments):
				return arguments[(at-atArguments)/8]
			}
			t.Fatalf("system call %d: the filter looks at %d", number, at)
			return 0
		})
	}
	for _, c := range append([]row{
		{"a thread", unix.SYS_CLONE, []uint32{unix.CLONE_VM | unix.CLONE_THREAD}, 0},
		{"a process", unix.SYS_CLONE, []uint32{uint32(unix.SIGCHLD)}, syscall.EPERM},
		{"a process that shares memory", unix.SYS_CLONE, []uint32{unix.CLONE_VM | unix.CLONE_VFORK}, syscall.EPERM},
		{"clone3", unix.SYS_CLONE3, nil, syscall.ENOSYS},
		{"another program", unix.SYS_EXECVE, nil, syscall.EPERM},
		{"ioctl of a GPU", unix.SYS_IOCTL, []uint32{5, 0xc020462a}, 0},
		{"typing at a terminal", unix.SYS_IOCTL, []uint32{0, unix.TIOCSTI}, syscall.EPERM},
		{"pasting at a terminal", unix.SYS_IOCTL, []uint32{0, unix.TIOCLINUX}, syscall.EPERM},
		{"its own limits", unix.SYS_PRLIMIT64, []uint32{0}, 0},
		{"another's limits", unix.SYS_PRLIMIT64, []uint32{1}, syscall.EPERM},
		{"a call of the next kernel", newest + 1, nil, syscall.ENOSYS},
		{"a call of x32", 0x40000000 + unix.SYS_READ, nil, syscall.ENOSYS},
	}, rows...) {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if c.want != 0 {
			want = unix.SECCOMP_RET_ERRNO | uint32(c.want)
		}
		if got := says(architecture, c.number, c.arguments...); got != want {
			t.Errorf("%+v: %s: %#x, not %#x", rules, c.name, got, want)
		}
		if got := says(otherArchitecture, c.number, c.arguments...); got != unix.SECCOMP_RET_ERRNO|uint32(syscall.ENOSYS) {
			t.Errorf("%s, as another architecture's: %#x", c.name, got)
		}
	}
	special := []uint32{unix.SYS_IOCTL, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_PRLIMIT64}
	denied := slices.Concat(refused, refusedHere)
	for number := uint32(0); number <= newest; number++ {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if slices.Contains(denied, uintptr(number)) {
			want = unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)
		}
		if got := says(architecture, number, 0, 0, 0); got != want && !slices.Contains(special, number) {
			t.Errorf("system call %d: %#x, not %#x", number, got, want)
		}
	}
	// Kernels that remember what is allowed whatever the arguments are run no filter for it. Others run
	// all of it, so it is short.
	if len(f) > 300 {
		t.Errorf("the filter has %d instructions", len(f))
	}
}

// What each version of Landlock takes away.
func TestHandled(t *testing.T) {
	const first = 1<<13 - 1
	for _, c := range []struct {
		abi     int
		errata  uint64
		connect bool
		want    unix.LandlockRulesetAttr
	}{
		{1, 0, false, unix.LandlockRulesetAttr{Access_fs: first}},
		{2, 0, false, unix.LandlockRulesetAttr{Access_fs: first | unix.LANDLOCK_ACCESS_FS_REFER}},
		{3, 0, false, unix.LandlockRulesetAttr{Access_fs: 1<<15 - 1}},
		{4, 0, false, unix.LandlockRulesetAttr{Access_fs: 1<<15 - 1, Access_net: 3}},
		{4, 0, true, unix.LandlockRulesetAttr{Access_fs: 1<<15 - 1, Access_net: unix.LANDLOCK_ACCESS_NET_BIND_TCP}},
		{5, 2, true, unix.LandlockRulesetAttr{Access_fs: 1<<16 - 1, Access_net: unix.LANDLOCK_ACCESS_NET_BIND_TCP}},
		{6, 1, false, unix.LandlockRulesetAttr{Access_fs: 1<<16 - 1, Access_net: 3}},
		{6, 3, false, unix.LandlockRulesetAttr{Access_fs: 1<<16 - 1, Access_net: 3, Scoped: unix.LANDLOCK_SCOPE_SIGNAL}},
		{9, 3, false, unix.LandlockRulesetAttr{Access_fs: 1<<16 - 1, Access_net: 3, Scoped: unix.LANDLOCK_SCOPE_SIGNAL}},
	} {
		r := Rules{Connect: c.connect}
		if got := r.handled(c.abi, c.errata); got != c.want {
			t.Errorf("version %d (errata %b, connect %v): %+v, not %+v", c.abi, c.errata, c.connect, got, c.want)
		}
	}
}

// attempts are what the child tries, each in the folder that it is given. The parent tries them, too: then
// all succeed.
var attempts = map[string]func(dir string) error{
	"read what is allowed":  func(dir string) error { _, err := os.ReadFile(filepath.Join(dir, "read", "file")); return err },
	"list what is allowed":  func(dir string) error { _, err := os.ReadDir(filepath.Join(dir, "read")); return err },
	"write what is allowed": func(dir string) error { return os.WriteFile(filepath.Join(dir, "write", "new"), nil, 0o600) },
	"move and remove there": func(dir string) error {
		from, to := filepath.Join(dir, "write", fmt.Sprint(os.Getpid())), filepath.Join(dir, "write", fmt.Sprint("was ", os.Getpid()))
		return errors.Join(os.WriteFile(from, nil, 0o600), os.Rename(from, to), os.Remove(to))
	},
	"the device":        func(string) error { return os.WriteFile(os.DevNull, []byte("x"), 0) },
	"a thread":          func(string) error { return onThread(func() error { return nil }) },
	"a local socket":    func(string) error { return closed(net.Listen("unix", "")) },
	"read another file": func(dir string) error { _, err := os.ReadFile(filepath.Join(dir, "secret")); return err },
	"list a folder":     func(dir string) error { _, err := os.ReadDir(dir); return err },
	"write to what is read": func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, "read", "file"), os.O_WRONLY, 0)
		return closed(f, err)
	},
	"another program":  func(string) error { return exec.Command("/bin/true").Run() },
	"listen":           func(string) error { return closed(net.Listen("tcp", "127.0.0.1:0")) },
	"send a signal":    func(string) error { return syscall.Kill(os.Getppid(), 0) },
	"other namespaces": func(string) error { return unix.Setns(-1, 0) },
}

func closed(c interface{ Close() error }, err error) error {
	if err == nil {
		err = c.Close()
	}
	return err
}

// child gives up system calls, tries everything and prints what came of it.
func child(args []string) {
	outcome := map[string]syscall.Errno{}
	if err := Process(Rules{Connect: true}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for name, try := range attempts {
		outcome[name] = errnoOf(try(args[0]))
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcome)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent has looked
}

func errnoOf(err error) (e syscall.Errno) {
	if err != nil && !errors.As(err, &e) {
		e = syscall.EINVAL
	}
	return e
}

// started is what a confined child's attempts came to, and what the kernel says of it.
func started(t *testing.T, rules Rules, by State, dir string) (outcome map[string]syscall.Errno, is State) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "CONFINE_TEST_CHILD=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(rules, by, cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(&outcome); err != nil {
		t.Error(err)
	}
	is, _ = Of(cmd.Process.Pid)
	hold.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return outcome, is
}

// A process that is confined reaches what it was allowed and nothing else, and the one that started it is
// as it was.
func TestConfined(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "read"), 0o700), os.Mkdir(filepath.Join(dir, "write"), 0o700),
		os.WriteFile(filepath.Join(dir, "read", "file"), nil, 0o600), os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	rules := Rules{
		Read: []string{filepath.Join(dir, "read"), "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc", "/sys", "/not/there"}, Write: []string{filepath.Join(dir, "write")},
		Devices: []string{os.DevNull}, Execute: []string{os.Args[0], "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"},
	}
	has, err := Try(rules)
	if !has.NoNewPrivs || !has.Seccomp || has.Landlock == 0 {
		need.Missing(t, need.System, fmt.Sprintf("this kernel has %+v: %v", has, err))
	}
	got, is := started(t, rules, has, dir)
	if is != (State{NoNewPrivs: true, Seccomp: true}) {
		t.Errorf("the kernel says %+v", is)
	}
	loose, _ := started(t, rules, State{NoNewPrivs: true, Seccomp: true}, dir) // as without Landlock
	want := map[string]syscall.Errno{
		"read another file": syscall.EACCES, "list a folder": syscall.EACCES, "write to what is read": syscall.EACCES,
		"another program": syscall.EPERM, "other namespaces": syscall.EPERM,
	}
	if has.Landlock >= 4 {
		want["listen"] = syscall.EACCES
	}
	if landlock(unix.LANDLOCK_CREATE_RULESET_ERRATA)&2 != 0 {
		want["send a signal"] = syscall.EPERM
	}
	for name, try := range attempts {
		if got[name] != want[name] {
			t.Errorf("%s: %v, not %v", name, got[name], want[name])
		}
		if refused := name == "another program" || name == "other namespaces"; (loose[name] != 0) != refused {
			t.Errorf("%s, by a filter alone: %v", name, loose[name])
		}
		if err := try(dir); err != nil && name != "other namespaces" {
			t.Errorf("%s, without confinement: %v", name, err)
		}
	}
	if own, ok := Of(os.Getpid()); !ok || own.Seccomp {
		t.Errorf("this process has given up system calls: %+v", own)
	}
}
