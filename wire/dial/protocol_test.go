package dial

import (
	"bufio"
	"io"
	"net"
	"testing"
)

// What a reader has read ahead is not lost, and comes first.
func TestRest(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		io.WriteString(far, "line\nearly")
		io.WriteString(far, " late")
		far.Close()
	}()
	in := bufio.NewReader(near)
	if line, err := in.ReadString('\n'); line != "line\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	conn := Rest(near, in)
	if got, err := io.ReadAll(conn); string(got) != "early late" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if conn := Rest(near, bufio.NewReader(near)); conn != near {
		t.Error("a reader that has read nothing is in the way")
	}
	if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Error("the sending direction cannot be closed")
	}
}
