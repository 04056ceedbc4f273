package gateway

import (
	"io"
	"log/slog"
	"net"
	"testing"
)

// Whoever connects without a certificate and is refused cannot fill the log.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	var log sessionLog
	w := newWorld(t, testGeometry, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 * mostRefusals {
		conn, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "this is no greeting of TLS\n")
		_, _ = io.Copy(io.Discard, conn) // it is refused by now
		conn.Close()
	}
	eventually(t, "refusals are logged", func() bool { return log.count("a connection was refused") >= mostRefusals })
	if lines := log.count("a connection was refused"); lines > mostRefusals {
		t.Errorf("%d lines of %d refusals", lines, 3*mostRefusals)
	}
}
