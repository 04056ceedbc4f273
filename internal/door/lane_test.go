package door

import (
	"net"
	"syscall"
	"testing"
)

// A connection that the system gives up after a minute need not stay so.
func TestGiveUpNever(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	plain, err := (&net.Dialer{Control: GiveUpAfterAMinute}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	after := func() (is int) {
		raw, err := plain.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { is, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 18) })
		}
		if err != nil {
			t.Error(err)
		}
		return is
	}
	if is := after(); is != 60_000 {
		t.Errorf("it is given up after %d ms", is)
	}
	GiveUpNever(NewEager(plain))
	if is := after(); is != 0 {
		t.Errorf("it is still given up after %d ms", is)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	GiveUpNever(near) // which the system never gives up
}
