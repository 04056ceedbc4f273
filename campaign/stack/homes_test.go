package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/gateway"
	"muster/wire/api"
)

// headed is a cluster with a head: a node without a device, home, and two that lend theirs.
type headed struct {
	*world
	dir, port, config string
	head              *program
	home              *theNode
	lenders           map[string]*theNode
	begun             map[string][]string // how nodes were started
	out               string
	in                *os.File // of the job that runs
	said              int
}

func newHeaded(t *testing.T, settings string) *headed {
	t.Helper()
	if err := buildDevices(); err != nil {
		t.Fatal(err)
	}
	h := &headed{world: newWorld(t), dir: t.TempDir(), port: anyPort(t), lenders: map[string]*theNode{}, begun: map[string][]string{}}
	for d := h.dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // users reach their scripts
	}
	authority, _, err := gateway.OpenAuthority(h.certs(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"home", "nb", "nc"} {
		if _, err := authority.Node([]string{name, "127.0.0.1"}, 1); err != nil {
			t.Fatal(err)
		}
	}
	h.config = filepath.Join(h.dir, "head.yaml")
	if err := os.WriteFile(h.config, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	h.lead()
	for _, name := range []string{"nb", "nc"} {
		h.lenders[name] = h.join(name, "--devices", "soft:memory=64M", "--listen", anyPort(t))
	}
	h.home = h.join("home", "--devices", "none", "--peers", "head")
	h.eventually("the home knows the others", func() bool { return len(h.home.status().Peers) == 2 })
	return h
}

func (h *headed) certs() string { return filepath.Join(h.dir, "certs") }

// lead starts the head.
func (h *headed) lead() {
	h.Helper()
	head := h.execute(made("muster"), "head", "--config", h.config, "--policy", "easy", "--page", "none", "--socket", h.socket(), "--listen", h.port,
		"--tls-dir", filepath.Join(h.certs(), "head-localhost"), "--state", filepath.Join(h.dir, "head"))
	h.head = head
	h.Cleanup(func() {
		if h.Failed() {
			h.Logf("the head's log:\n%s", head.output)
		}
	})
	h.eventually("the head answers", func() bool { _, err := h.tryAsk("nodes"); return err == nil })
}

func (h *headed) socket() string { return filepath.Join(h.dir, "head.socket") }

func (h *headed) join(name string, args ...string) *theNode {
	h.Helper()
	h.begun[name] = append([]string{
		"--name", name, "--tls-dir", filepath.Join(h.certs(), "node-"+name), "--state", filepath.Join(h.dir, name), "--orphan-grace", "1m",
		"--head", h.port, "--spool", filepath.Join(h.dir, name+"-spool"),
	}, args...)
	return h.start(h.begun[name]...)
}

// tryAsk runs a command that asks the head.
func (h *headed) tryAsk(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, made("muster"), args...)
	cmd.Env = h.environment("MUSTER_HEAD=unix:" + h.socket())
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("muster %s: %w\n%s", strings.Join(args, " "), err, &wrong)
	}
	return string(out), err
}

func (h *headed) ask(args ...string) string {
	h.Helper()
	out, err := h.tryAsk(args...)
	if err != nil {
		h.Fatal(err)
	}
	return out
}

func (h *headed) job() (j api.Job) {
	h.Helper()
	if err := json.Unmarshal([]byte(h.ask("job", "1", "--json")), &j); err != nil {
		h.Fatal(err)
	}
	return j
}

// submit submits a job whose program executes commands, on the home, and waits until it has begun.
func (h *headed) submit(options ...string) {
	h.Helper()
	in, script := filepath.Join(h.dir, "in"), filepath.Join(h.dir, "script")
	h.out = filepath.Join(h.dir, "out")
	err := syscall.Mkfifo(in, 0o600)
	if err == nil {
		h.in, err = os.OpenFile(in, os.O_RDWR, 0)
	}
	if err == nil {
		err = os.WriteFile(script, []byte("#!/bin/sh\nexec "+made("devices")+" <"+in+"\n"), 0o755)
	}
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { h.in.Close() }) // the program's input ends
	h.ask(append(append([]string{"submit", "-w", "home", "-n1", "-t30", "-D", h.dir, "-o", "out"}, options...), script)...)
	h.hears("init 0\n")
}

// do has the job's program do something, and waits for what it says to that.
func (h *headed) do(what, want string) {
	h.Helper()
	h.begin(what)
	h.hears(want)
}

func (h *headed) begin(what string) {
	h.Helper()
	if _, err := io.WriteString(h.in, what+"\n"); err != nil {
		h.Fatal(err)
	}
}

func (h *headed) hears(want string) {
	h.Helper()
	h.eventually(fmt.Sprintf("the job's program says %q", want), func() bool {
		text, _ := os.ReadFile(h.out)
		at := strings.Index(string(text[min(h.said, len(text)):]), want)
		if at < 0 {
			var j api.Job
			if out, err := h.tryAsk("job", "1", "--json"); err == nil && json.Unmarshal([]byte(out), &j) == nil && j.State.Over() { // there may be no head
				h.Fatalf("the job is %s (%s), and its program did not say %q:\n%s", j.State, j.Why, want, text)
			}
			return false
		}
		h.said += at + len(want)
		return true
	})
}

// lender is the node where the job has its device.
func (h *headed) lender() string {
	h.Helper()
	j := h.job()
	if len(j.Devices) != 1 {
		h.Fatalf("the job has the devices %+v", j.Devices)
	}
	return j.Devices[0].Node
}

// borrowed is the node whose device serves the job's only client at home; "" if none does.
func (h *headed) borrowed() string {
	h.Helper()
	s := h.home.status()
	if len(s.Clients) != 1 || s.Clients[0].Device == nil {
		return ""
	}
	return s.Devices[*s.Clients[0].Device].Lender
}

// over waits until the job has ended well, and nothing is left of it anywhere.
func (h *headed) over() {
	h.Helper()
	h.in.Close()
	h.eventually("the job has ended", func() bool { return h.job().State.Over() })
	if j := h.job(); j.State != api.Completed {
		h.Errorf("the job is %s: %s", j.State, j.Why)
	}
	for name, n := range map[string]*theNode{"home": h.home, "nb": h.lenders["nb"], "nc": h.lenders["nc"]} {
		if n.killed {
			continue
		}
		h.eventually("nothing is left of it on node "+name, func() bool {
			grants, err := ask.Grants(n.socket)
			left, _ := os.ReadDir(filepath.Join(h.dir, name+"-spool", "loans"))
			return err == nil && len(grants.Grants) == 0 && len(left) == 0
		})
		n.idle()
	}
}

// A job of the head has a GPU of another node. That node is killed: the job's program goes on on a third one, the
// head does not stop it, and says what is missing. When the node is back, the home has its GPU again.
func TestJobOutlivesItsLender(t *testing.T) {
	t.Parallel()
	h := newHeaded(t, "silence: 20s\nnode_timeout: 20s\n")
	h.submit("--gres=rgpu:1", "--gpu-reach=cluster")
	lender := h.lender()
	h.do("use 0", "use 0: 0\n")
	h.do("add 0 5", "add 0: 0\n")
	if at := h.borrowed(); at == "" || len(h.home.status().Clients) != 1 {
		t.Errorf("its client is not at home on a device of %s, but on one of %q", lender, at)
	}
	h.lenders[lender].kill()
	h.do("add 0 6", "add 0: 0\n")
	h.do("show 0", "value 11 show 0: 0\n")
	h.eventually("the head knows", func() bool { return strings.Contains(h.job().Why, "node "+lender+" does not lend its GPU now") })
	if j := h.job(); j.State != api.Running {
		t.Fatalf("the job is %s: %s", j.State, j.Why)
	}
	h.lenders[lender] = h.lenders[lender].again(h.begun[lender]...)
	h.eventually("the node lends again", func() bool { return h.job().Why == "" || !strings.Contains(h.job().Why, "does not lend") })
	h.eventually("the home has the device again", func() bool {
		for _, d := range h.home.status().Devices {
			if d.Lost {
				return false
			}
		}
		return true
	})
	h.do("add 0 7", "add 0: 0\n")
	h.do("show 0", "value 18 show 0: 0\n")
	h.over()
}

// A head that is killed and started again leaves a job with a GPU of another node as it is, and ends and suspends
// it as before. So does the agent of the job's node, with the daemon.
func TestHeadIsRestartedUnderALoan(t *testing.T) {
	t.Parallel()
	h := newHeaded(t, "policy: easy\n")
	h.submit("--gres=rgpu:1", "--gpu-reach=cluster")
	h.do("use 0", "use 0: 0\n")
	h.do("add 0 5", "add 0: 0\n")
	h.head.kill()
	h.do("add 0 6", "add 0: 0\n")
	h.lead()
	h.do("show 0", "value 11 show 0: 0\n")
	h.ask("job", "suspend", "1")
	h.eventually("it is suspended", func() bool { return h.job().State == api.Suspended })
	for _, n := range append([]*theNode{h.home}, h.lenders["nb"], h.lenders["nc"]) {
		h.eventually("nobody is on a device", func() bool {
			for _, c := range n.status().Clients {
				if c.Device != nil {
					return false
				}
			}
			return true
		})
	}
	h.ask("job", "resume", "1")
	h.do("add 0 7", "add 0: 0\n")
	h.home.kill() // its daemon and its agent
	h.home = h.home.again(h.begun["home"]...)
	h.do("show 0", "value 18 show 0: 0\n")
	h.over()
}
