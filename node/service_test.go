package node

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"muster/node/requests"
)

// A service has the connection of whoever asks for it, and is told to stop when the node ends. What is not a request for it is refused.
func TestServicesHoldConversations(t *testing.T) {
	stopped := make(chan struct{})
	opts := testOptions()
	opts.Services = map[string]requests.Service{"chat": {
		Serve: func(conn *net.UnixConn, who requests.Peer) {
			if who.UID != uint32(os.Geteuid()) {
				t.Errorf("it is user %d who talks", who.UID)
			}
			_, _ = io.WriteString(conn, "ready ")
			said, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte("heard "), said...))
		},
		Stop: func() { close(stopped) },
	}}
	f := runWith(t, testConfig(), opts)
	for _, c := range []struct{ request, more, want string }{
		{`{"request":"chat"}`, "this", "ready heard this"},
		{`{"request":"chat","more":1}`, "", `{"error":"the request cannot be read: unknown field \"more\""}`},
	} {
		conn, err := net.Dial("unix", f.socket)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, c.request)
		var first [len("ready ")]byte
		if err == nil && c.more != "" {
			if _, err = io.ReadFull(conn, first[:]); err == nil {
				_, err = io.WriteString(conn, c.more)
			}
		}
		if err == nil {
			err = conn.(*net.UnixConn).CloseWrite()
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(conn)
		conn.Close()
		got = append(bytes.Trim(first[:], "\x00"), got...)
		if strings.TrimSpace(string(got)) != c.want {
			t.Errorf("%s: got %q, want %q", c.request, got, c.want)
		}
	}
	f.stop()
	<-stopped
}
