package stack

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/ask"
	"muster/wire"
	"muster/wire/client"
)

// remoteNode starts a node that others can reach, and returns folders of users.
func remoteNode(w *world, args ...string) (n *theNode, users []string) {
	w.Helper()
	certs, user := certificates(w)
	w.muster("cert", filepath.Dir(certs), "--user", "other")
	args = append([]string{"--devices", "soft:memory=32M", "--listen", "127.0.0.1:0", "--tls-dir", certs}, args...)
	return w.start(args...), []string{user, filepath.Join(filepath.Dir(user), "user-other")}
}

// serves checks that a node serves all users.
func (n *theNode) serves(users ...string) {
	n.Helper()
	if got := n.muster("ps", "--socket", n.socket); !strings.Contains(got, "CLIENT") {
		n.Errorf("muster ps says %q", got)
	}
	n.launch(made("small"), "sums").right()
	for _, user := range users {
		n.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, made("small"), "sums").right()
	}
}

// greet says hello to a gateway and hears of its devices.
func greet(address string, config *tls.Config) (net.Conn, error) {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return nil, err
	}
	hello := client.Hello("hostile", 0)
	if err := wire.WriteRecord(conn, &hello); err != nil {
		return conn, err
	}
	return conn, wire.ReadAs(conn, &wire.Welcome{})
}

// A user of another machine says hello on many connections and never uses a device. That harms no
// one, not even that user.
func TestManyWhoOnlySayHello(t *testing.T) {
	t.Parallel()
	n, users := remoteNode(newWorld(t))
	config, err := client.LoadTLS(users[0])
	if err != nil {
		t.Fatal(err)
	}
	const many = 300
	greeted := 0
	for range many {
		conn, err := greet(n.gateway, config)
		if conn != nil {
			defer conn.Close()
		}
		if err == nil {
			greeted++
		}
	}
	n.serves(users...)
	if greeted < many/2 {
		t.Errorf("only %d of %d were greeted", greeted, many)
	}
	if got := len(n.descriptors()); got > many {
		t.Errorf("the node has %d descriptors for %d connections that do nothing", got, many)
	}
}

// Silent connections from another machine harm no other user.
func TestManyWhoSayNothing(t *testing.T) {
	t.Parallel()
	n, users := remoteNode(newWorld(t))
	for range 300 {
		conn, err := net.Dial("tcp", n.gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	n.serves(users...)
}

// descriptors lists the open descriptors of the daemon.
func (n *theNode) descriptors() []string {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.cmd.Process.Pid))
	return files
}

// A user of this machine fills all places of the user. The user's programs are still served: one
// whose connection was closed meanwhile reconnects.
func TestManyLocalConnections(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=32M")
	later := n.launch(made("small"), "later")
	later.says("waiting")
	for range 300 {
		s, err := client.Dial(n.socket, client.Hello("hostile", 0))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	n.serves()
	later.right()
}

// A remote program that has been idle so long that its connection was closed reconnects when it
// uses a device.
func TestRemoteProgramComesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	config := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(config, []byte("connections: {user: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := w.start("--config", config, "--devices", "soft:memory=32M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	way := []string{"--node", n.gateway, "--tls-dir", user}
	var later []*program
	for range 5 {
		p := w.launchWith(way, made("small"), "later")
		p.says("waiting")
		later = append(later, p)
	}
	for _, p := range later {
		p.right()
	}
	n.idle()
}

// health asks a node for its health, over an HTTP client's connection.
func health(t *testing.T, web *http.Client, n *theNode) (status int, text string) {
	t.Helper()
	reply, err := web.Get(n.web + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// The node runs out of descriptors. It reports that, still answers health requests, and continues
// when there are some again.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	n, users := remoteNode(newWorld(t), "--warm", "0")
	before := len(n.descriptors())
	kept := &http.Client{Timeout: patience}
	if status, text := health(t, kept, n); status != http.StatusOK || text != "ok\n" {
		t.Fatal(status, text)
	}
	restore := exhaust(t, n.cmd.Process.Pid)
	// One connection waits at each listener, where it cannot be accepted.
	remote, err := net.Dial("tcp", n.gateway)
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("the node notices at the gateway", func() bool {
		status, text := health(t, kept, n)
		return status == http.StatusServiceUnavailable && strings.Contains(text, "gateway: no connection can be accepted: ")
	})
	local, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("the node notices at the socket", func() bool {
		_, text := health(t, kept, n)
		return strings.Contains(text, "socket: no connection can be accepted: ") && strings.Contains(text, "too many open files")
	})
	local.Close()
	// A new connection gets the same answer, and so does a request at the socket.
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	if status, text := health(t, fresh, n); status != http.StatusServiceUnavailable || !strings.Contains(text, "too many open files") {
		t.Error(status, text)
	}
	if got := n.muster("ps", "--socket", n.socket); !strings.Contains(got, "CLIENT") || !strings.Contains(got, "too many open files") {
		t.Errorf("muster ps says %q", got)
	}
	// A descriptor that the node used temporarily may become free at any time. Connections that
	// only say hello use those up, before each try.
	const none = "the node has no file descriptors left"
	var fillers []*client.Session
	isNone := func(err error) bool { return err != nil && strings.Contains(err.Error(), none) }
	fill := func() {
		n.eventually("no descriptor is left", func() bool {
			session, err := client.Dial(n.socket, client.Hello("filler", 0))
			if err == nil {
				fillers = append(fillers, session)
			}
			return isNone(err)
		})
	}
	n.eventually("a program is told", func() bool {
		fill()
		refused := n.launch(made("small"), "sums")
		return refused.wait() == 1 && strings.Contains(refused.output.String(), none)
	})
	if os.Geteuid() == 0 {
		n.eventually("another user is told", func() (told bool) {
			fill()
			asUser(t, 4321, func() {
				session, err := client.Dial(n.socket, client.Hello("stranger", 0))
				if err == nil {
					session.Close()
				}
				told = isNone(err)
			})
			return told
		})
	}
	restore()
	remote.Close()
	for _, f := range fillers {
		f.Close()
	}
	n.eventually("the node is well again", func() bool {
		status, text := health(t, kept, n)
		return status == http.StatusOK && text == "ok\n"
	})
	n.serves(users...)
	n.idle()
	kept.CloseIdleConnections()
	n.eventually("no descriptors are left", func() bool { return len(n.descriptors()) <= before })
}

// Programs do not bypass a node that is shutting down by starting a private one: they are told, and
// can wait for the next node.
func TestRunWhileTheNodeShutsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, users := remoteNode(w)
	held := n.launch(made("small"), "hold", "1000")
	held.says("holding")
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	n.eventually("it shuts down", func() bool { return n.logged("the node is shutting down", "grace") != "" })
	run := func(environment string, args ...string) *program {
		p := w.executeWith([]string{environment}, made("muster"), append([]string{"run"}, args...)...)
		return p
	}
	for name, p := range map[string]*program{
		"found":     run("MUSTER_SOCKET="+n.socket, "--", made("small"), "sums"),
		"named":     run("MUSTER_SOCKET=", "--socket", n.socket, "--", made("small"), "sums"),
		"elsewhere": run("MUSTER_SOCKET=", "--node", n.gateway, "--tls-dir", users[0], "--", made("small"), "sums"),
	} {
		if code := p.wait(); code != 1 || !strings.Contains(p.output.String(), "is shutting down") || strings.Contains(p.output.String(), "started a node") {
			t.Errorf("%s: muster run ended with %d: %s", name, code, p.output)
		}
	}
	// A program that has already waited is not advised to wait.
	late := run("MUSTER_SOCKET="+n.socket, "--wait", "10ms", "--", made("small"), "sums")
	want := "muster run: after a wait of 10ms, the node at " + n.socket + " is shutting down: wait longer, or use --private\n"
	if code := late.wait(); code != 1 || !strings.Contains(late.output.String(), want) || strings.Contains(late.output.String(), "with --wait") {
		t.Errorf("after a wait muster run ended with %d: %s", code, late.output)
	}
	// A program that finds the node by itself is told too.
	direct := w.executeWith([]string{"MUSTER_SOCKET=" + n.socket, "LD_LIBRARY_PATH=" + made("lib")}, made("small"), "sums")
	if code := direct.wait(); code != 1 || !strings.Contains(direct.output.String(), "muster: the node is shutting down") {
		t.Errorf("the program ended with %d: %s", code, direct.output)
	}
	if got := n.muster("ps", "--socket", n.socket); !strings.Contains(got, "small") || !strings.Contains(got, "the node is shutting down") {
		t.Errorf("muster ps says %q", got)
	}
	// One that waits is served by the next node there.
	waits := run("MUSTER_SOCKET="+n.socket, "--wait", "1m", "--", made("small"), "sums")
	waits.says("waiting for a node")
	held.right()
	<-n.exited
	next := w.start("--devices", "soft:memory=32M", "--socket", n.socket)
	next.socket = n.socket
	waits.right()
}

// A private node is only for its user and root.
func TestPrivateNodeIsPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.launchWith([]string{"--private"}, "/bin/sh", "-c", `echo "socket $MUSTER_SOCKET."; read line; true`)
	p.says(".\n")
	_, socket, _ := strings.Cut(p.output.String(), "socket ")
	socket, _, _ = strings.Cut(socket, ".\n")
	if _, err := ask.Status(socket); err != nil { // its own user
		t.Fatal(err)
	}
	asUser(t, 4321, func() {
		var refused *wire.Refused
		s, err := client.Attach(socket, client.Hello("stranger", 0), 0)
		if err == nil {
			s.Close()
		}
		if !errors.As(err, &refused) || refused.Result != 800 || !strings.Contains(refused.Reason, "user 4321 may not use it") {
			t.Errorf("a stranger was told %v", err)
		}
		if _, err := ask.Status(socket); err == nil || !strings.Contains(err.Error(), "user 4321 may not use it") {
			t.Errorf("a stranger who asks was told %v", err)
		}
	})
	p.right()
}

// A node that is not root's is for its user and root, unless it is told otherwise.
func TestNodeOfAUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can be somebody else")
	}
	w := newWorld(t)
	for _, dir := range []string{built.dir, w.temp, filepath.Dir(w.temp)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	owner := &syscall.Credential{Uid: 4321, Gid: 4321}
	attach := func(n *theNode, uid int) (err error) {
		asUser(t, uid, func() {
			var s *client.Session
			if s, err = client.Attach(n.socket, client.Hello("test", 0), 0); err == nil {
				s.Close()
			}
		})
		return err
	}
	n := w.startAs(owner, "--devices", "soft:memory=32M")
	for uid, want := range map[int]string{0: "<nil>", 4321: "<nil>",
		4322: "this node is user 4321's, and user 4322 may not use it: run a node of your own (muster run --private), or have its owner allow you (allow: in its configuration)"} {
		if err := attach(n, uid); fmt.Sprint(err) != want {
			t.Errorf("user %d: %v", uid, err)
		}
	}
	n = w.startAs(owner, "--devices", "soft:memory=32M", "--allow", "4322")
	if err := attach(n, 4322); err != nil {
		t.Errorf("one who is allowed: %v", err)
	}
	if err := attach(n, 4323); err == nil {
		t.Error("one who is not was served")
	}
}

// A connection whose other side does nothing is closed after a time.
func TestHalfOpenConnectionsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	config := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(config, []byte("connections: {greet: 1s, idle: 50ms, silence: 50ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := w.start("--config", config, "--devices", "soft:memory=32M", "--warm", "0", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	before := len(n.descriptors())
	keys, err := client.LoadTLS(user)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", n.gateway)
	if err != nil {
		t.Fatal(err)
	}
	local, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	shaken, err := tls.Dial("tcp", n.gateway, keys)
	if err != nil {
		t.Fatal(err)
	}
	greeted, err := greet(n.gateway, keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, conn := range []net.Conn{silent, local, shaken, greeted} {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is kept for ever", i)
		}
		conn.Close()
	}
	n.eventually("no descriptors are left", func() bool { return len(n.descriptors()) <= before })
}
