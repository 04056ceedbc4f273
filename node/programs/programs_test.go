package programs

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/checkpoint"
	"muster/wire/status"
)

// sleeper starts a process that has a child, and waits until both are there.
func sleeper(t *testing.T, environment ...string) (root int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo; wait")
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestTree(t *testing.T) {
	root := sleeper(t)
	all, err := tree(root)
	if err != nil || len(all) != 2 || !slices.Contains(all, root) {
		t.Errorf("%v, %v", all, err)
	}
	if own, err := tree(os.Getpid()); err != nil || !slices.Contains(own, root) || !slices.Contains(own, all[1]) {
		t.Errorf("%v, %v", own, err)
	}
	if _, err := tree(1 << 30); err == nil || err.Error() != "there is no process 1073741824" {
		t.Error(err)
	}
	if !inSessionOfOthers(root, all) {
		t.Error("it is said to have a session of its own")
	}
	if got := stdio(root); len(got) != 3 || !strings.HasPrefix(got[1], "pipe:[") {
		t.Errorf("%v", got)
	}
}

// The kernel tells which socket is at the other end of one.
func TestPeers(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	inode := func(c net.Conn) uint64 {
		f, err := c.(*net.UnixConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	all, err := peers()
	if err != nil {
		need.Missing(t, need.System, "this system does not tell:", err)
	}
	if all[inode(one)] != inode(two) || all[inode(two)] != inode(one) {
		t.Errorf("%d and %d: %d and %d", inode(one), inode(two), all[inode(one)], all[inode(two)])
	}
	if own := sockets(os.Getpid()); !slices.Contains(own, inode(one)) || !slices.Contains(own, inode(two)) {
		t.Errorf("%v", own)
	}
}

func FuzzPeerOf(f *testing.F) {
	f.Add([]byte{1, 1, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 2, 0, 9, 0, 0, 0})
	f.Add([]byte{1, 1, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0, 9, 0, 0, 0, 8, 0, 2, 0, 9, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { peerOf(b) })
}

func TestDevicesOfOtherNodes(t *testing.T) {
	remote, plain := sleeper(t, "MUSTER_SOCKET=@muster-remote-1-X"), sleeper(t, "MUSTER_SOCKET=@muster-nowhere")
	if err := servedHere([]int{plain, remote}, nil, "@muster"); err == nil || !strings.Contains(err.Error(), "has its device on another machine (muster run --node)") {
		t.Error(err)
	}
	if err := servedHere([]int{plain}, nil, "@muster"); err != nil {
		t.Error(err)
	}
	if err := servedHere([]int{plain}, []status.Client{{Pid: int32(plain)}}, "@muster"); err != nil {
		t.Error(err)
	}
}

// CRIU wants one file for its hook, whatever the command's words are.
func TestHookScript(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "hook")
	if err := os.WriteFile(script, []byte(hookScript([]string{"/bin/echo", "it's", "a b", `$HOME"`})), 0o700); err != nil {
		t.Fatal(err)
	}
	for action, want := range map[string]string{"pre-dump": "", "post-dump": "it's a b $HOME\"\n"} {
		cmd := exec.Command(script)
		cmd.Env = []string{"CRTOOLS_SCRIPT_ACTION=" + action}
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", action, out, err)
		}
	}
}

// The hook fails if whoever saves is gone, or could not save: then CRIU gives up.
func TestHookWithoutASaver(t *testing.T) {
	t.Setenv(hookVariable, "@muster-nobody-is-here")
	if err := Hook(); err == nil {
		t.Error("it is content")
	}
	p := &saving{Saving: Saving{Pid: os.Getpid(), Socket: "@muster-nowhere"}}
	h, err := p.listen([]int{1, 2, 3}) // not the processes that there are
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(hookVariable, h.name)
	if err := Hook(); err == nil {
		t.Error("it is content")
	}
	h.close()
	if err := h.outcome(errors.New("exit status 1")); err == nil || !strings.Contains(err.Error(), "has started or ended processes") {
		t.Error(err)
	}
}

func TestComplaints(t *testing.T) {
	log := filepath.Join(t.TempDir(), "dump.log")
	text := "(00.1) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n(00.2) Warn  (criu/x.c:1): something\n(00.3) Error (criu/sk-unix.c:9): unix: no way\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ log, output, want string }{
		{log, "noise", "unix: no way"},
		{"nowhere", "Warn (x): y\nunknown option\n", "unknown option"},
		{"nowhere", "", "it does not say why"},
		{"nowhere", "A session leader of 7(7) is outside of its pid namespace\n", "A session leader of 7(7) is outside of its pid namespace; start the program with setsid"},
	} {
		if got := complaint(c.log, c.output); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A program that is there is not restored beside itself, and nothing is begun.
func TestNumbersAreTaken(t *testing.T) {
	defer func(was time.Duration) { endingTime = was }(endingTime)
	endingTime = 0
	dir := filepath.Join(t.TempDir(), "saved")
	d, err := checkpoint.Begin(dir, checkpoint.OfProgram, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	name, _, err := d.Images()
	if err != nil {
		t.Fatal(err)
	}
	d.Manifest.Program = &checkpoint.Program{Images: name, Root: os.Getpid(), Pids: []int{os.Getpid()}}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	_, err = Restore(context.Background(), Restoring{Socket: "@muster-nowhere", Dir: dir, CRIU: &CRIU{Path: "/bin/false", Patience: time.Minute}})
	if err == nil || !strings.Contains(err.Error(), "get their old numbers") {
		t.Error(err)
	}
}

// CRIU that does not come to an end is ended.
func TestCRIUHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &CRIU{Path: path, Patience: 50 * time.Millisecond}
	if err := c.run(context.Background(), t.TempDir(), "restore", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "did not come to an end") {
		t.Error(err)
	}
}
