package node

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/device"
	"muster/internal/confine"
	"muster/internal/need"
	"muster/node/settings"
	"muster/node/worker"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// pries are what a worker that was taken over may try, and what the system says then. secret is a file of
// another user's, and door an address where somebody listens. None does harm where nothing confines it.
var pries = []struct {
	name string
	try  func(secret, door string) error
	want error // nil: that is a worker's business
}{
	{"the machine", func(_, _ string) error { _, err := os.ReadFile("/proc/meminfo"); return err }, nil},
	{"memory to share", func(_, _ string) error { _, err := wire.CreateMemory("x", 4096); return err }, nil},
	{"a local socket", func(_, _ string) error {
		l, err := net.Listen("unix", fmt.Sprintf("@muster-test-pries-%d", os.Getpid()))
		if err == nil {
			l.Close()
		}
		return err
	}, nil},
	{"files", func(secret, _ string) error { _, err := os.ReadFile(secret); return err }, syscall.EACCES},
	{"root's files", func(_, _ string) error { _, err := os.ReadFile("/etc/shadow"); return err }, syscall.EACCES},
	{"folders", func(secret, _ string) error { return os.Mkdir(secret+".folder", 0o700) }, syscall.EACCES},
	{"its own rights", func(_, _ string) error { return os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) }, syscall.EACCES},
	{"names of threads", func(_, _ string) error {
		return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte("x"), 0)
	}, syscall.EACCES},
	{"programs", func(_, _ string) error { return exec.Command("/bin/true").Run() }, syscall.EPERM},
	{"another program in its place", func(_, _ string) error { return syscall.Exec("/no/such/program", []string{"x"}, nil) }, syscall.EPERM},
	{"other processes", func(_, _ string) error { return syscall.PtraceAttach(0) }, syscall.EPERM},
	{"signals", func(_, _ string) error { return syscall.Kill(os.Getppid(), 0) }, syscall.EPERM},
	{"packets", func(_, _ string) error { _, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0); return err }, syscall.EAFNOSUPPORT},
	{"packets of its own", func(_, _ string) error {
		return opened(syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP))
	}, syscall.EAFNOSUPPORT},
	{"datagrams", func(_, _ string) error { return opened(syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)) }, syscall.EAFNOSUPPORT},
	{"the machine's interfaces", func(_, _ string) error {
		return opened(syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, syscall.NETLINK_ROUTE))
	}, syscall.EAFNOSUPPORT},
	{"datagrams to other processes", func(_, _ string) error { return opened(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)) }, syscall.EPERM},
	{"datagrams to others by a pair", func(_, _ string) error {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
		_ = opened(pair[1], err)
		return opened(pair[0], err)
	}, syscall.EPERM},
	{"its node's environment", func(_, _ string) error { return readOf("environ") }, syscall.EACCES},
	{"its node's addresses", func(_, _ string) error { return readOf("maps") }, syscall.EACCES},
	{"its node's memory", func(_, _ string) error { return readOf("mem") }, syscall.EACCES},
	{"its node's open files", func(_, _ string) error { _, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", os.Getppid())); return err }, syscall.EACCES},
	{"its node's limits", func(_, _ string) error {
		_, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(os.Getppid()), syscall.RLIMIT_NOFILE, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		return nil
	}, syscall.EPERM},
	{"other machines", func(_, door string) error { _, err := net.Dial("tcp", door); return err }, syscall.EAFNOSUPPORT},
	{"other namespaces", func(_, _ string) error { return syscall.Unshare(syscall.CLONE_NEWUSER) }, syscall.EPERM},
	{"mounts", func(_, _ string) error { return syscall.Mount("none", "/no/such/folder", "tmpfs", 0, "") }, syscall.EPERM},
}

// readOf reads the first bytes of a file in /proc about the process that started this one.
func readOf(file string) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", os.Getppid(), file))
	if err == nil {
		defer f.Close()
		if _, err = f.Read(make([]byte, 1)); err == io.EOF {
			err = nil
		}
	}
	return err
}

// opened closes a socket that the system gave.
func opened(fd int, err error) error {
	if err == nil {
		err = syscall.Close(fd)
	}
	return err
}

// pryingWorker is a worker that tries what it can when it is to open its device, and tells.
func pryingWorker() error {
	open := func(control.DeviceConfig, *os.File) (device.Device, error) {
		var said []string
		for _, p := range pries {
			err := p.try(os.Getenv("MUSTER_TEST_SECRET"), os.Getenv("MUSTER_TEST_DOOR"))
			var e syscall.Errno
			if errors.As(err, &e) {
				err = e
			}
			said = append(said, fmt.Sprintf("%s: %v", p.name, err))
		}
		return nil, errors.New(strings.Join(said, "; "))
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.DiscardHandler))
}

// whatKernelHas skips a test where workers cannot be confined in whole.
func whatKernelHas(t *testing.T) confine.State {
	t.Helper()
	has, err := confine.Try(confine.Rules{})
	if err != nil {
		need.Missing(t, need.System, err)
	}
	if has.Landlock < 6 {
		need.Missing(t, need.System, "this kernel's Landlock, version", has.Landlock, "keeps a worker neither from other machines nor from signals")
	}
	return has
}

// A worker that was taken over finds nothing of the machine.
func TestWorkersAreConfined(t *testing.T) {
	whatKernelHas(t)
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("words"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_TEST_SECRET", secret)
	t.Setenv("MUSTER_TEST_DOOR", door.Addr().String())
	// Workers with NVIDIA's driver confine themselves, because they name their threads, and have more
	// kinds of sockets.
	withDriver := map[string]error{
		"names of threads": nil, "packets of its own": syscall.EPERM, "datagrams": nil, "the machine's interfaces": nil,
		"datagrams to other processes": nil, "datagrams to others by a pair": nil, "other machines": syscall.EACCES,
	}
	for _, driver := range []bool{false, true} {
		cfg, opts := testConfig(), testOptions()
		cfg.Confine = settings.ConfineOn
		opts.Needs = func(control.DeviceConfig) confine.Rules { return confine.Rules{Threads: driver, Sockets: driver} }
		opts.WorkerCommand = workerCommand("prying worker")
		f := runWith(t, cfg, opts)
		_, err := connect(f.socket, hello(), 0)
		if err == nil {
			t.Fatal("a worker without a device has a client")
		}
		for _, p := range pries {
			if want, ok := withDriver[p.name]; ok && driver {
				p.want = want
			}
			if want := fmt.Sprintf("%s: %v", p.name, p.want); !strings.Contains(err.Error(), want) {
				t.Errorf("driver %v: not %q", driver, want)
			}
		}
		if t.Failed() {
			t.Log(err)
		}
	}
}

// The status says what confines the workers of a device.
func TestStatusSaysWhatConfines(t *testing.T) {
	has := status.Confined(whatKernelHas(t))
	for _, c := range []struct {
		mode   settings.ConfineMode
		worker string
		want   status.Confined
	}{
		{settings.ConfineAuto, "real worker", has},
		{settings.ConfineOff, "real worker", status.Confined{}},
		{settings.ConfineAuto, "worker", status.Confined{NoNewPrivs: true, Landlock: has.Landlock}}, // a stand-in that gives up nothing
	} {
		cfg, opts := testConfig(), testOptions()
		cfg.Confine, opts.WorkerCommand = c.mode, workerCommand(c.worker)
		f := runWith(t, cfg, opts)
		before := has
		if c.mode == settings.ConfineOff {
			before = c.want
		}
		if is := statusOf(t, f).Devices[0].Confined; is != before {
			t.Errorf("%s, %s: the next worker has %v, not %v", c.mode, c.worker, is, before)
		}
		p := mustConnect(t, f)
		if c.worker == "worker" {
			p.synchronise(t)
		} else if err := p.add(vecadd(t)); err != nil {
			t.Fatal(err)
		}
		if is := statusOf(t, f).Devices[0].Confined; is != c.want {
			t.Errorf("%s, %s: a worker has %v, not %v", c.mode, c.worker, is, c.want)
		}
	}
}
