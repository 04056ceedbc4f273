package stack

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hosts is a cluster that muster cluster up makes of folders: an own ssh goes there, where commands find the
// addresses and devices of their host in the environment.
type hosts struct {
	*world
	dir, keys string
	up        []string
}

const ownSSH = `#!/bin/sh
host=${1#*@}
shift
echo "$host" >>"$HOSTS/asked"
if [ -e "$HOSTS/$host.dead" ]; then echo "no route to $host" >&2; exit 255; fi
mkdir -p "$HOSTS/$host"
chmod 755 "$HOSTS/$host"
cd "$HOSTS/$host"
export HOME="$PWD" MUSTER_HEAD_SOCKET="@$HOSTS-head" MUSTER_HEAD_PAGE=none MUSTER_NODE_SOCKET="@$HOSTS-$host" MUSTER_NODE_DEVICES=soft:memory=64M
exec sh -c "$*"
`

func newHosts(t *testing.T) *hosts {
	t.Helper()
	h := &hosts{world: newWorld(t), dir: t.TempDir(), keys: filepath.Join(t.TempDir(), "keys")}
	for d := h.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	ssh := filepath.Join(h.dir, "ssh")
	if err := os.WriteFile(ssh, []byte(ownSSH), 0o755); err != nil {
		t.Fatal(err)
	}
	ports := []string{}
	for range 2 {
		_, port, _ := net.SplitHostPort(anyPort(t))
		ports = append(ports, port)
	}
	h.up = []string{"cluster", "up", "--dir", h.keys, "--ssh", ssh, "--folder", "muster", "--head-port", ports[0], "--port", ports[1]}
	t.Cleanup(func() {
		if out, err := h.muster("cluster", "down", "--dir", h.keys); err != nil {
			t.Errorf("muster cluster down: %v\n%s", err, out)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(h.dir, "*", "muster", "*.log"))
			for _, path := range logs {
				text, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", path, text)
			}
		}
	})
	return h
}

// muster runs a command as who has made the cluster.
func (h *hosts) muster(args ...string) (string, error) {
	folders, _ := filepath.Glob(filepath.Join(h.keys, "user-*"))
	return h.call(made("muster"), append(folders, h.keys)[0], args...)
}

// call runs a program with the environment of the cluster, also when the test is over.
func (h *hosts) call(path, certificate string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = h.environment("HOSTS="+h.dir, "MUSTER_HEAD=127.0.0.2:"+h.up[9], "MUSTER_TLS_DIR="+certificate)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *hosts) must(args ...string) string {
	h.Helper()
	out, err := h.muster(args...)
	if err != nil {
		h.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// One command makes a cluster of hosts; a second one mends what does not run, and adds a host. A job of before goes on.
func TestClusterUp(t *testing.T) {
	t.Parallel()
	h := newHosts(t)
	out := h.must(append(h.up, "127.0.0.2", "admin@127.0.0.3")...)
	if !strings.Contains(out, "export MUSTER_HEAD=127.0.0.2:"+h.up[9]) || strings.Count(out, "started") != 3 {
		t.Errorf("it says\n%s", out)
	}
	if out := h.must("submit", "--wait", "--gres=gpu:1", "-w", "127.0.0.3", "-D", "/tmp", "-o", "/dev/null", "--wrap", "true"); !strings.Contains(out, "1") {
		t.Errorf("a job: %s", out)
	}
	h.must("submit", "-w", "127.0.0.2", "-D", "/tmp", "-o", "/dev/null", "--wrap", "until [ -e "+filepath.Join(h.dir, "go")+" ]; do sleep 0.1; done")
	if out := h.must(h.up...); strings.Contains(out, "started") || strings.Contains(out, "copying") {
		t.Errorf("again, nothing was missing: %s", out)
	}
	// A node's host has lost its processes, and there is another host.
	if out, err := h.call(filepath.Join(h.dir, "ssh"), "", "127.0.0.3", "kill -9 $(cat muster/node.pid)"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out := h.must(append(h.up, "127.0.0.4")...); strings.Count(out, "started") != 2 {
		t.Errorf("to mend, and to add: %s", out)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "127.0.0.5.dead"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := h.muster(append(h.up, "127.0.0.5")...); err == nil || !strings.Contains(out, "127.0.0.5: exit status 255: no route to 127.0.0.5") {
		t.Errorf("a host that is dead: %v, %s", err, out)
	}
	if out := h.must("queue", "-h"); !strings.Contains(out, " R ") {
		t.Errorf("the job does not go on: %s", out)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.eventually("the job has ended", func() bool { out, err := h.muster("queue", "-h"); return err == nil && !strings.Contains(out, " R ") })
	if out := h.must("cluster", "down", "--dir", h.keys); strings.Count(out, "stopped") != 4 {
		t.Errorf("down: %s", out)
	}
}
