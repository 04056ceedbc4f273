package become

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

func start(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	result, err := Prepare(cmd)
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	result.Started()
	if err != nil {
		t.Fatal(err)
	}
	return result.Wait()
}

func TestBecomesTheProgram(t *testing.T) {
	var out strings.Builder
	folder := t.TempDir()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: []string{"a name", "-c", `echo "$0 $1 $A $(pwd)"`, "zero", "one"}, Dir: folder, Env: []string{"A=b"}, Stdout: &out}
	if err := start(t, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := "zero one b " + folder + "\n"; out.String() != want {
		t.Errorf("%q, not %q", out.String(), want)
	}
}

func TestSaysWhyNot(t *testing.T) {
	for _, c := range []struct{ path, folder, want string }{
		{"/no/such/program", "/", "executing /no/such/program: no such file or directory"},
		{"/bin/sh", "/no/such/folder", "changing to /no/such/folder: no such file or directory"},
	} {
		cmd := &exec.Cmd{Path: c.path, Args: []string{"x"}, Dir: c.folder}
		if err := start(t, cmd); err == nil || !strings.EqualFold(err.Error(), c.want) { // C begins the reason with a capital
			t.Errorf("%v, not %s", err, c.want)
		}
		_ = cmd.Wait()
	}
}

// An executable that somebody has made setuid lets nobody execute other programs with its owner's
// rights.
func TestNotForOthersRights(t *testing.T) {
	const nobody, noSetuid = 65534, 2
	var is syscall.Statfs_t
	folder := t.TempDir()
	status, _ := os.ReadFile("/proc/self/status")
	if os.Getuid() != 0 || syscall.Statfs(folder, &is) != nil || is.Flags&noSetuid != 0 || strings.Contains(string(status), "NoNewPrivs:\t1") {
		need.Missing(t, need.Root, "this needs root, and a file system and a container with setuid")
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(folder, "muster")
	for _, err := range []error{os.WriteFile(copied, code, 0o755), os.Chown(copied, nobody, nobody), os.Chmod(copied, 0o755|os.ModeSetuid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := &exec.Cmd{Path: "/bin/true", Args: []string{"true"}}
	result, err := Prepare(cmd)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = copied
	err = cmd.Start()
	result.Started()
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Wait(); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("it became another program: %v", err)
	}
	_ = cmd.Wait()
}

// A file system that does not answer holds up the process that needs it, and nothing else. This one
// has no server: whoever holds /dev/fuse never reads what is asked.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		need.Missing(t, need.Mount, "this needs /dev/fuse: ", err)
	}
	closed := false
	end := func() {
		if !closed {
			device.Close()
		}
		closed = true
	}
	defer end()
	folder := t.TempDir()
	if err := syscall.Mount("none", folder, "fuse.none", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", device.Fd(), os.Getuid(), os.Getgid())); err != nil {
		need.Missing(t, need.Mount, "this needs the right to mount: ", err)
	}
	defer syscall.Unmount(folder, syscall.MNT_DETACH)
	cmd := &exec.Cmd{Path: filepath.Join(folder, "program"), Args: []string{"program"}, Dir: folder}
	result, err := Prepare(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	result.Started()
	runtime.GC() // stops all threads, which one that waits for a file system in a child would not
	if err := start(t, &exec.Cmd{Path: "/bin/true", Args: []string{"true"}}); err != nil {
		t.Error(err)
	}
	end() // without the device all that waits fails
	if err := result.Wait(); err == nil {
		t.Error("a program became what is not there")
	}
	_ = cmd.Wait()
}
