package node

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/ask"
	"muster/node/requests"
	"muster/node/settings"
	"muster/wire"
	"muster/wire/grant"
)

// connected is both ends of a connection of a program to another process, such as the one that serves
// its job.
func connected(t *testing.T) (program, other *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return near.(*net.UnixConn), accepted.(*net.UnixConn)
}

// pass asks for a service under a grant, and passes a program's connection on. It returns what the
// node says if it refuses.
func pass(t *testing.T, f *fixture, id string, secret grant.Credential, other *net.UnixConn) string {
	t.Helper()
	dialled, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	if err := json.NewEncoder(dialled).Encode(map[string]string{"request": "chat", "id": id, "grant": string(secret)}); err != nil {
		t.Fatal(err)
	}
	var ready [3]byte
	if _, err := io.ReadFull(dialled, ready[:]); err != nil {
		t.Fatal(err)
	}
	if string(ready[:]) == "{}\n" {
		file, err := other.File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := wire.SendFiles(dialled.(*net.UnixConn), []byte{0}, file); err != nil {
			t.Fatal(err)
		}
		ready = [3]byte{}
	}
	said, _ := io.ReadAll(dialled)
	return strings.Trim(string(ready[:]), "\x00") + string(said)
}

// A service is told under which grant a program is whose connection the job passes on. Processes that
// the service has started for it have that grant on this node, or the part of the same job that has
// devices here, and no other device.
func TestProcessesOfServicesHaveTheGrantOfTheirProgram(t *testing.T) {
	var claim atomic.Value // what the service says of this process
	claim.Store("")
	opts, cfg := testOptions(), testConfig()
	cfg.Grants = settings.GrantsRequired
	heard := make(chan requests.Peer, 1)
	opts.Services = map[string]requests.Service{"chat": {
		Serve: func(conn *net.UnixConn, who requests.Peer) { heard <- who; _, _ = io.WriteString(conn, "ready") },
		Stop:  func() {},
		Grant: func(pid int) string {
			if pid != os.Getpid() {
				t.Errorf("process %d was asked for", pid)
			}
			return claim.Load().(string)
		},
	}}
	f := runWith(t, cfg, opts)
	g := testGrant("7.1.0", grant.Device{Device: 1, Memory: 32 << 20})
	mustAdmit(t, f, g)

	program, other := connected(t)
	if said := pass(t, f, "any", g.Secret, other); said != "" {
		t.Fatal(said)
	}
	other.Close()
	if text, err := io.ReadAll(program); err != nil || string(text) != "ready" {
		t.Errorf("the program heard %q, %v", text, err)
	}
	who := <-heard
	if want := (grant.Claim{ID: "7.1.0", Hash: g.Secret.Hash()}); who.Grant != want.String() || who.UID != uint32(os.Getuid()) {
		t.Errorf("%+v", who)
	}

	if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "grants: required") {
		t.Errorf("without a grant: %v", err)
	}
	sibling := grant.Claim{ID: "7.1.3", Hash: grant.NewCredential().Hash()} // another node's part of the job
	for _, is := range []string{who.Grant, sibling.String()} {
		claim.Store(is)
		p, err := connect(f.socket, hello(), 0)
		if err != nil {
			t.Fatalf("%s: %v", is, err)
		}
		if len(p.devices) != 1 || p.devices[0].Name != "Small" || p.attached.Memory != 32<<20 {
			t.Errorf("%s: %+v", is, p.devices)
		}
		if c := statusOf(t, f).Clients[0]; c.Grant != "7.1.0" {
			t.Errorf("%s: %+v", is, c)
		}
		p.leave()
		eventually(t, "the client has gone", func() bool { return len(statusOf(t, f).Clients) == 0 })
		if n, err := ask.GrantClaimed(f.socket, is, g.User); n != 1 || err != nil {
			t.Errorf("%s: %d devices, %v", is, n, err)
		}
		if n, err := ask.GrantClaimed(f.socket, is, "another"); n != 0 || err != nil {
			t.Errorf("%s of another user: %d devices, %v", is, n, err)
		}
	}
	for _, no := range []grant.Claim{{ID: "7.2.0", Hash: sibling.Hash}, {ID: "mine", Hash: sibling.Hash}} {
		claim.Store(no.String())
		if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "under grant "+no.ID) {
			t.Errorf("%s: %v", no.ID, err)
		}
	}
	// A name without the credential is worth nothing.
	program, other = connected(t)
	if said := pass(t, f, "7.1.5", grant.NewCredential(), other); said != "" {
		t.Fatal(said)
	}
	liar := <-heard
	claim.Store(liar.Grant)
	if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "under grant unknown:7.1.5") {
		t.Errorf("%s: %v", liar.Grant, err)
	}
	program.Close()
	if _, err := ask.RevokeGrant(f.socket, "7.1.0", "the job has ended"); err != nil {
		t.Fatal(err)
	}
	claim.Store(who.Grant)
	if _, err := connect(f.socket, hello(), 0); err == nil || !strings.Contains(err.Error(), "under grant 7.1.0") {
		t.Errorf("after the grant: %v", err)
	}
}

// Nobody's connection can be passed on under another user's grant, and only connections can be.
func TestWhatCannotBePassedOn(t *testing.T) {
	opts := testOptions()
	opts.Services = map[string]requests.Service{"chat": {Serve: func(*net.UnixConn, requests.Peer) { t.Error("served") }, Stop: func() {}}}
	f := runWith(t, testConfig(), opts)
	g := testGrant("g", grant.Device{Device: 0, Memory: 32 << 20})
	g.User = "another"
	if _, err := ask.Admit(f.socket, g, g.Devices, g.Limit, time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, other := connected(t)
	if said := pass(t, f, "g", g.Secret, other); !strings.Contains(said, "may not use it") {
		t.Errorf("the node said %q", said)
	}
	if said := pass(t, f, "a b", g.Secret, other); !strings.Contains(said, "has characters that no name has") {
		t.Errorf("the node said %q", said)
	}
}

// A user who got hold of another one's connection cannot act for them.
func TestOnlyOnesOwnConnectionsArePassedOn(t *testing.T) {
	if os.Getuid() != 0 {
		need.Missing(t, need.Root, "needs root, to be another user")
	}
	opts := testOptions()
	opts.Services = map[string]requests.Service{"chat": {Serve: func(*net.UnixConn, requests.Peer) { t.Error("served") }, Stop: func() {}}}
	f := runWith(t, testConfig(), opts)
	_, roots := connected(t)
	said := make(chan string, 1)
	go func() {
		defer close(said)
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Error(errno)
			return
		}
		said <- pass(t, f, "g", grant.NewCredential(), roots)
	}()
	if text := <-said; !strings.Contains(text, "may not pass on what user root has connected") {
		t.Errorf("the node said %q", text)
	}
}

// A request may be passed on by relays of jobs within each other, but not for ever: the daemon remembers
// each pass until the last is answered.
func TestRequestsAreNotPassedOnForEver(t *testing.T) {
	f := run(t, testConfig())
	dialled, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	conn := dialled.(*net.UnixConn)
	defer func() { conn.Close() }()
	for passes := 0; ; passes++ {
		// What is passed on goes on to pass another connection on.
		if err := json.NewEncoder(conn).Encode(map[string]string{"request": "status", "id": "any", "grant": "any", "line": " "}); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if answer != "{}\n" {
			if !strings.Contains(answer, "passed on 8 times") || passes != requests.MaxPasses {
				t.Errorf("after %d passes: %q", passes, answer)
			}
			return
		}
		if passes == requests.MaxPasses {
			t.Fatalf("%d passes were not enough", passes)
		}
		program, other := connected(t)
		file, err := other.File()
		if err != nil {
			t.Fatal(err)
		}
		err = wire.SendFiles(conn, []byte{0}, file)
		file.Close()
		other.Close()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		conn = program
	}
}
