package delay

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// What is delayed arrives whole and in order, not earlier than it may, and its end as well.
func TestForward(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		conn, err := echo.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	const each = 20 * time.Millisecond
	go func() {
		defer close(done)
		Forward(t.Context(), listener, echo.Addr().String(), each)
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	began := time.Now()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, or others: %v", len(got), len(sent), err)
	}
	if took := time.Since(began); took < 2*each {
		t.Errorf("there and back took %v, and %v is due each way", took, each)
	}
	listener.Close()
	<-done
}

// The end does not wait for connections that stay open.
func TestForwardEnds(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Forward(ctx, listener, far.Addr().String(), time.Millisecond)
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	there, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	cancel()
	<-done
}
