package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/cmd/muster/cli"
	"muster/wire/status"
)

// Ctrl-C ends a checkpoint that waits for a kernel: nothing is left of it, and the node hears that the
// command hung up.
func TestCheckpointIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "node")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hungUp := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			n, err := conn.Read(b)
			if err != nil || strings.Contains(string(b[:n]), `"status"`) {
				answer, _ := json.Marshal(status.Node{})
				_, _ = conn.Write(append(answer, '\n'))
				conn.Close()
				continue
			}
			_, _ = conn.Write([]byte(`{"send":"file"}` + "\n"))
			if _, err = conn.Read(b); err == nil { // it has the file, and waits
				err = syscall.Kill(os.Getpid(), syscall.SIGINT)
			}
			if err == nil {
				_, err = conn.Read(b)
			}
			hungUp <- err
		}
	}()
	var out, complaint bytes.Buffer
	folder := filepath.Join(dir, "saved")
	if got := run([]string{"checkpoint", "--socket", socket, "3", folder}, nil, &out, &complaint, func(string) string { return "" }); got != cli.ExitInterrupted {
		t.Errorf("exit status %d", got)
	}
	if want := "muster checkpoint: interrupted: nothing was saved, and the program goes on\n"; complaint.String() != want || out.Len() > 0 {
		t.Errorf("%q, %q: want %q", out.String(), complaint.String(), want)
	}
	if err := <-hungUp; err == nil || err.Error() != "EOF" {
		t.Errorf("the node sees %v", err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("something is left of the checkpoint: %v", err)
	}
}
