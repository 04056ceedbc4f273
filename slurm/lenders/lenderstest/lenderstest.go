// Package lenderstest is a lending node for tests: it sends and expects the messages that a test
// chooses, and has no GPU.
package lenderstest

import (
	"net"
	"testing"
	"time"

	"muster/wire/agent"
	"muster/wire/dial"
)

// Node is the connection of a node.
type Node struct {
	t testing.TB
	net.Conn
}

// Dial connects a node that has sent nothing yet.
func Dial(t testing.TB, address string) *Node {
	t.Helper()
	conn, err := dial.DialAgent(t.Context(), dial.Config{Head: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &Node{t, conn}
}

// Greet connects a node with one GPU of 1 GiB, which says that it already has some loans.
func Greet(t testing.TB, address, name string, loans ...string) *Node {
	t.Helper()
	n := Dial(t, address)
	n.Say(agent.Hello{Version: agent.Version, Node: name, Incarnation: "x", Cores: 1, Memory: 1 << 30, Gateway: name + ":9421", Loans: loans,
		Devices: []agent.Device{{Name: "gpu", Memory: 1 << 30, Speed: 1, Up: true}}})
	n.Hears("welcome")
	return n
}

// Say sends a message.
func (n *Node) Say(m agent.ToHead) {
	n.t.Helper()
	text, err := agent.Encode(nil, m)
	if err == nil {
		_, err = n.Write(text)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// Hear reads a message.
func (n *Node) Hear() agent.ToAgent {
	n.t.Helper()
	_ = n.SetReadDeadline(time.Now().Add(time.Minute))
	m, err := agent.ReadToAgent(n)
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

// Hears reads messages, which must be those given: their kind, and the ID of the loan.
func (n *Node) Hears(want ...string) {
	n.t.Helper()
	for _, w := range want {
		m := n.Hear()
		got := m.Kind()
		switch m := m.(type) {
		case agent.Lend:
			got += " " + m.Loan.ID
		case agent.Unlend:
			got += " " + m.ID
		}
		if got != w {
			n.t.Fatalf("the node is told %q, not %q", got, w)
		}
	}
}
