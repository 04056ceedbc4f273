package ivm_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/ivm"
	"muster/ivm/daemon"
)

// The test program is also its elements: processes that a daemon starts run a scenario.
const scenarioVariable = "MUSTER_IVM_SCENARIO"

// scenarios are what elements do, by name.
var scenarios = map[string]func(ctx context.Context, e *ivm.Element) error{}

func TestMain(m *testing.M) {
	scenario := os.Getenv(scenarioVariable)
	if os.Getenv("MUSTER_IVM") == "" || scenario == "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	e, err := ivm.Enter(ctx)
	if err == nil {
		if err = scenarios[scenario](ctx, e); err == nil {
			err = e.Exit()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "element:", err)
		os.Exit(1)
	}
}

// testNode is a node's service, with a socket for elements and a port for other nodes.
type testNode struct {
	service *daemon.Service
	socket  net.Listener
	port    net.Listener
	mu      sync.Mutex
	conns   []net.Conn
}

// cluster makes nodes on this machine. Their connections have no TLS: campaign/stack has.
func cluster(t testing.TB, n int) []*testNode {
	t.Helper()
	return clusterOver(t, n, func(c net.Conn, server bool) net.Conn { return c })
}

// clusterOver makes nodes whose connections are made of plain ones.
func clusterOver(t testing.TB, n int, over func(c net.Conn, server bool) net.Conn) []*testNode {
	t.Helper()
	var nodes []*testNode
	for i := range n {
		socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
		if err != nil {
			t.Fatal(err)
		}
		port, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		x := &testNode{socket: socket, port: port}
		x.service = daemon.New(daemon.Config{
			Name: fmt.Sprint("n", i), Socket: socket.Addr().String(), Address: port.Addr().String,
			Info: func(string, string) (int, int) { return 4, 1 }, Memory: 4 << 30, Silence: testSilence,
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				return over(c, false), nil
			},
			Account: func(user string) (*syscall.Credential, error) {
				if user == "mallory" {
					return nil, fmt.Errorf("user mallory is not known here")
				}
				return nil, nil
			},
			Log: slog.New(slog.DiscardHandler),
		})
		x.serve(over)
		t.Cleanup(x.stop)
		nodes = append(nodes, x)
	}
	return nodes
}

func (x *testNode) serve(over func(net.Conn, bool) net.Conn) {
	go x.accept(x.socket, func(c net.Conn) {
		line, err := bufio.NewReaderSize(c, 16).ReadString('\n') // nothing comes behind it before the answer
		if err != nil || line == "" {
			c.Close()
			return
		}
		x.service.Element(c.(*net.UnixConn), daemon.Who{Name: "tester"})
	})
	go x.accept(x.port, func(c net.Conn) { x.service.Peer(context.Background(), over(c, true)) })
}

func (x *testNode) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		x.mu.Lock()
		x.conns = append(x.conns, c)
		x.mu.Unlock()
		go serve(c)
	}
}

// die ends a node as a crash of its machine does: all its connections break. Its elements die too.
func (x *testNode) die() {
	x.socket.Close()
	x.port.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		c.Close()
	}
}

func (x *testNode) stop() {
	x.service.Close()
	x.die()
}

// begin begins a program on the first node: this process is its first element.
func begin(t testing.TB, nodes []*testNode, scenario string) (context.Context, *ivm.Element) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a bound for a test that hangs
	t.Cleanup(cancel)
	var others []string
	for _, x := range nodes[1:] {
		others = append(others, x.port.Addr().String())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e, err := ivm.EnterWith(ctx, ivm.Options{
		Socket: nodes[0].socket.Addr().String(), Nodes: others, Executable: self, Args: []string{self},
		Environment: append(os.Environ(), scenarioVariable+"="+scenario),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Exit() })
	return ctx, e
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
