package dial

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

func TestAddress(t *testing.T) {
	for name, want := range map[string]string{
		"head": "tcp head:9422", "head:1": "tcp head:1", "10.0.0.7": "tcp 10.0.0.7:9422", "[::1]:7": "tcp [::1]:7", "::1": "tcp [::1]:9422", "[::1]": "tcp [::1]:9422",
		"a,b:1": "tcp a:9422,b:1", "a, ::1": "tcp a:9422,[::1]:9422", "a,": "", "a,unix:@x": "",
		"unix:@muster-head": "unix @muster-head", "unix:/run/head": "unix /run/head",
		"": "", ":9422": "", "unix:": "", "unix:@": "", "a b": "", "http://head": "", "head:": "",
	} {
		network, address, err := Address(name)
		if got := strings.TrimSpace(network + " " + address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}

// answering is a socket that answers each request with a text.
func answering(t *testing.T, text string) Config {
	t.Helper()
	name := fmt.Sprintf("@muster-dial-test-%d-%s", os.Getpid(), t.Name())
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, text)
			}
			_ = conn.Close()
		}
	}()
	return Config{Head: "unix:" + name}
}

func TestUpgrade(t *testing.T) {
	for _, c := range []struct{ name, answer, want, reads string }{
		{"taken", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: muster-agent\r\n\r\nfirst bytes", "", "first bytes"},
		{"refused", "HTTP/1.1 403 Forbidden\r\nContent-Length: 17\r\n\r\n{\"error\":\"no, x\"}", "no, x", ""},
		{"without words", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno", "the head answered 502 Bad Gateway", ""},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", `the head speaks "websocket"`, ""},
		{"no head", "SSH-2.0-OpenSSH\r\n", "what answered is no head", ""},
		{"nothing", "", "what answered is no head", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := DialAgent(context.Background(), answering(t, c.answer))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(conn); string(text) != c.reads || err != nil {
				t.Errorf("read %q, %v", text, err)
			}
		})
	}
}

func TestDialTrouble(t *testing.T) {
	ctx := context.Background()
	if _, err := Dial(ctx, Config{Head: "unix:@muster-nobody-is-here"}); err == nil || !strings.Contains(err.Error(), "no head answers at @muster-nobody-is-here: start muster head there") {
		t.Errorf("got %v", err)
	}
	if _, err := Dial(ctx, Config{Head: "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "wants a certificate") {
		t.Errorf("got %v", err)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		if conn, err := other.Accept(); err == nil {
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n")
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	if _, err := Dial(ctx, Config{Head: other.Addr().String(), TLS: &tls.Config{}}); err == nil || !strings.Contains(err.Error(), "does not speak TLS: is that the port of a head?") {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := DialAgent(ended, answering(t, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestImpostor: a process that takes the name of a head's socket is not trusted.
func TestImpostor(t *testing.T) {
	l, err := net.Listen("unix", "@muster-test-"+rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := Dial(context.Background(), Config{Head: "unix:" + l.Addr().String()})
	if err != nil {
		t.Fatal(err) // the user who runs the test is
	}
	defer conn.Close()
	self := os.Getuid()
	if err := trusted(conn.(*net.UnixConn), self); err != nil {
		t.Error(err)
	}
	// To another user, it is one unless it is root.
	if err := trusted(conn.(*net.UnixConn), self+1); (err == nil) != (self == 0) {
		t.Errorf("user %d: got %v", self, err)
	}
}

// TestImpostorOfAnotherUser has a socket that another user made. Only root can try that.
func TestImpostorOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		need.Missing(t, need.Root, "only root can be another user")
	}
	name := "@muster-test-" + rand.Text()
	made := make(chan net.Listener)
	go func() { // the thread ends with the goroutine, since it is never unlocked
		runtime.LockOSThread()
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); errno != 0 {
			t.Error(errno)
		}
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Error(err)
		}
		made <- l
	}()
	l := <-made
	defer l.Close()
	conn, err := Dial(context.Background(), Config{Head: "unix:" + name})
	if err == nil || !strings.Contains(err.Error(), "neither root nor you") {
		t.Errorf("got %v, %v", conn, err)
	}
}
