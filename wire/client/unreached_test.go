package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// Who calls a node that is not there is told what may be wrong.
func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, err = Dialler(address, &tls.Config{})(context.Background())
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "is this its port?") {
		t.Errorf("got %v", err)
	}
	err = unreached(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "gpu1"}})
	if !strings.Contains(err.Error(), "no address is known for this name") {
		t.Errorf("got %v", err)
	}
}
