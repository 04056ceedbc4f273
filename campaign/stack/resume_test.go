package stack

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between programs and a gateway. Its connections fail as plan says: after so many bytes,
// in both directions together, one breaks, or drops everything from then on.
type proxy struct {
	net.Listener
	to   string
	plan func(number int64) (after int64, drops bool)
	made atomic.Int64
	dead atomic.Bool // no connection carries anything any more
}

func newProxy(t testing.TB, to string, plan func(number int64) (int64, bool)) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{Listener: l, to: to, plan: plan}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(near)
		}
	}()
	return p
}

func (p *proxy) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	after, drops := p.plan(p.made.Add(1))
	var left atomic.Int64
	left.Store(after)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			b := make([]byte, 64<<10)
			for {
				n, err := way[0].Read(b)
				gone := left.Add(-int64(n)) < 0 || p.dead.Load()
				if err == nil && gone && (drops || p.dead.Load()) {
					continue
				}
				if err == nil && !gone {
					_, err = way[1].Write(b[:n])
				} else if err == nil {
					err = io.ErrClosedPipe
				}
				if err != nil {
					near.Close()
					far.Close()
					return
				}
			}
		})
	}
	both.Wait()
}

// briefly is a configuration of a node that takes the silent for gone soon.
func briefly(t testing.TB) string {
	config := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(config, []byte("connections: {silence: 2s, resume: 3s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// A program's connections break, or fall silent, again and again, in the midst of copies of all kinds:
// it is right all the same.
func TestRemoteProgramResumes(t *testing.T) {
	t.Parallel()
	if err := compile("copies"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w, "--config", briefly(t))
	p := newProxy(t, n.gateway, func(number int64) (int64, bool) {
		if number > 12 {
			return 1 << 40, false
		}
		return 8_000 + number*number*20_000, number%5 == 4
	})
	program := n.launchWith([]string{"--node", p.Addr().String(), "--tls-dir", users[0]}, made("copies"), "7", "16", "40")
	if got := program.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("it said %q", got)
	}
	if p.made.Load() < 5 {
		t.Errorf("there were only %d connections", p.made.Load())
	}
	n.idle()
}

// The network to a program's machine drops everything, without a word. The program is told, and its
// virtual GPU is free again, when the time for another connection is over.
func TestHalfOpenIsNoticed(t *testing.T) {
	t.Parallel()
	if err := compile("copies"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w, "--config", briefly(t))
	p := newProxy(t, n.gateway, func(int64) (int64, bool) { return 1 << 40, false })
	program := n.launchWith([]string{"--node", p.Addr().String(), "--tls-dir", users[0]}, made("copies"), "7", "16", fmt.Sprint(1<<20))
	program.says("round 20\n")
	p.dead.Store(true)
	n.idle()
	if program.wait() == 0 {
		t.Error("the program ended well")
	}
	if got := program.output.String(); !strings.Contains(got, "could not be made again within 3s") {
		t.Errorf("it was told %q", got)
	}
}
