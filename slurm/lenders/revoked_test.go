package lenders_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/node/gateway"
	"muster/slurm/lenders"
	"muster/wire/agent"
	"muster/wire/client"
	"muster/wire/dial"
	"muster/wire/trust"
)

// locked is a log that a test reads while it is written.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A node whose certificate is revoked while it lends is told so, and lends no more. A list that cannot
// be used is an error in the log, once, and no fault of the nodes that come.
func TestRevoked(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the pause between two pings")
	}
	a, _, err := gateway.OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := a.Head([]string{"127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := a.Node([]string{"n1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	own, err := trust.Load(filepath.Join(folder, gateway.FileHead), filepath.Join(folder, gateway.FileHeadKey), filepath.Join(folder, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	var log locked
	l, err := lenders.Listen(lenders.Config{Address: "127.0.0.1:0", Cluster: "slurm", TLS: own, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	to := dial.Config{Head: l.Address()}
	if to.TLS, err = gateway.LoadDir(nodes); err != nil {
		t.Fatal(err)
	}

	list := filepath.Join(folder, trust.FileRevoked)
	if err := os.WriteFile(list, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := dial.DialAgent(t.Context(), to); err == nil || !strings.Contains(err.Error(), "its administrator has to mend that") {
			t.Errorf("the node is told %v", err)
		}
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, list) {
		t.Errorf("the log has %q", text)
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}

	conn, err := dial.DialAgent(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text, err := agent.Encode(nil, agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1 << 30})
	if err == nil {
		_, err = conn.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	known(t, l, "n1")
	if _, _, err := a.Revoke([]string{"node-n1"}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(4 * time.Minute))
	for {
		m, err := agent.ReadToAgent(conn)
		if err != nil {
			t.Fatal(err)
		}
		if refused, ok := m.(agent.Refused); ok {
			if !strings.Contains(refused.Reason, "of node-n1 was revoked") {
				t.Errorf("the node is told %q", refused.Reason)
			}
			break
		}
	}
	known(t, l)
}
