package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"syscall"
	"testing"
)

// givenUpAfter is for how long the other side of a connection may take nothing, in milliseconds; 0 for ever.
func givenUpAfter(t *testing.T, conn net.Conn) (after int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			const userTimeout = 18
			after, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout)
		})
	}
	if err != nil {
		t.Error(err)
	}
	return after
}

// Conversations of nodes are for nodes: a user's certificate, or none, is not enough.
func TestOnlyNodesHoldTheConversationsOfNodes(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) {
		c.Nodes = map[string]func(context.Context, net.Conn){"test/1": func(_ context.Context, conn net.Conn) {
			if after := givenUpAfter(t, conn.(*tls.Conn).NetConn()); after != 0 {
				t.Errorf("a node that reads nothing is given up after %d ms, though it may say that it is there", after)
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}}
	})
	node, err := tls.LoadX509KeyPair(w.dir+"/node-localhost/"+FileNode, w.dir+"/node-localhost/"+FileNodeKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		show     []tls.Certificate
		protocol string
		want     string
	}{
		{"a node", []tls.Certificate{node}, "test/1", "hello"},
		{"a user", w.user.Certificates, "test/1", ""},
		{"nobody", nil, "test/1", ""},
	} {
		conn, err := tls.Dial("tcp", w.address, &tls.Config{RootCAs: w.user.RootCAs, ServerName: "localhost", Certificates: c.show, NextProtos: []string{c.protocol}})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(conn)
		conn.Close()
		if string(got) != c.want {
			t.Errorf("%s heard %q, want %q", c.name, got, c.want)
		}
	}
}
