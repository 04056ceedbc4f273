package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"muster/wire/borrow"
)

// answering is a daemon that answers what nodes ask, and notes what it was asked.
func answering(t *testing.T, reply string) (socket string, asked <-chan string) {
	t.Helper()
	socket = newSocket()
	l, lines := listen(t, socket), make(chan string, 16)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				lines <- line
				fmt.Fprintln(conn, reply)
			}
			conn.Close()
		}
	}()
	return socket, lines
}

// asNode connects as the node of the certificates does, or with others.
func (w *world) asNode(t *testing.T, change func(c *tls.Config)) net.Conn {
	t.Helper()
	own, err := LoadDir(w.dir + "/node-localhost")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: own.Certificates, RootCAs: own.ClientCAs, ServerName: "localhost", NextProtos: []string{borrow.Protocol}}
	if change != nil {
		change(config)
	}
	conn, err := tls.Dial("tcp", w.address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Questions of a node go to the daemon, several over one connection; its answers come back.
func TestNodesAsk(t *testing.T) {
	reply := fmt.Sprintf(`{"version":%d,"node":"localhost","slots":4,"free":2,"waiting":0}`, borrow.Version)
	socket, asked := answering(t, reply)
	w := &world{dir: certificates(t), socket: newSocket()}
	w.connect(t, socket, nil)
	conn := w.asNode(t, nil)
	in := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "{\"version\":%d,\"node\":\"localhost\",\"slots\":%d}\n", borrow.Version, i)
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != reply {
			t.Fatalf("got %q, %v", line, err)
		}
		var request struct {
			Request  string          `json:"request"`
			Question borrow.Question `json:"question"`
		}
		if err := json.Unmarshal([]byte(<-asked), &request); err != nil || request.Request != "peer" || request.Question.Slots != i {
			t.Errorf("the daemon was asked %+v, %v", request, err)
		}
	}
}

// Those who are no node, call themselves something else, or say nonsense are refused, and the daemon
// hears nothing of it.
func TestNodesThatAreNone(t *testing.T) {
	socket, asked := answering(t, `{"version":4,"node":"localhost","slots":0,"free":0,"waiting":0}`)
	w := &world{dir: certificates(t), socket: newSocket()}
	w.connect(t, socket, nil)
	for _, c := range []struct {
		name   string
		change func(c *tls.Config)
		say    string
		want   string
	}{
		{"nobody", func(c *tls.Config) { c.Certificates = nil }, `{"version":4,"node":"localhost","slots":1}`, "only nodes of the same authority"},
		{"a user", func(c *tls.Config) { c.Certificates = w.user.Certificates }, `{"version":4,"node":"localhost","slots":1}`, "not that of a node"},
		{"another node's name", nil, `{"version":4,"node":"other","slots":1}`, `not for node`},
		{"another version", nil, `{"version":7,"node":"localhost","slots":1}`, "speaks version 7"},
		{"nonsense", nil, `hello`, "not what nodes say to each other"},
		{"too long", nil, strings.Repeat("x", 2*borrow.MaxLine), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := w.asNode(t, c.change)
			fmt.Fprintln(conn, c.say)
			line, _ := bufio.NewReader(conn).ReadBytes('\n')
			if _, err := borrow.ReadAnswer(line); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q: %v, want %q", line, err, c.want)
			}
		})
	}
	select {
	case line := <-asked:
		t.Errorf("the daemon was asked %s", line)
	default:
	}
}
