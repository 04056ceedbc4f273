package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"muster/wire"
)

var benchGeometry = wire.Geometry{Ring: 1 << 20, Staging: 16 << 20, Bounce: 16 << 20, Pinned: 256 << 20}

// benchWorld has workers that do as little as they can, and returns the relay's
// socket.
func benchWorld(b *testing.B) string {
	w := newWorld(b, benchGeometry, nil)
	w.daemon.atOnce = true
	return w.socket
}

// A synchronous call over TCP and TLS, there and back.
func BenchmarkCall(b *testing.B) {
	s := attachTo(b, benchWorld(b))
	defer s.Close()
	for b.Loop() {
		if _, err := s.Producer.Call(&wire.MemAlloc{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What the program waits for when nothing is answered.
func BenchmarkPost(b *testing.B) {
	s := attachTo(b, benchWorld(b))
	defer s.Close()
	for b.Loop() {
		if err := s.Producer.Post(&wire.Fill{Dst: deviceBase, Count: 1}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		b.Fatal(err)
	}
}

// Copies of a mebibyte, as the library in C cuts them, against the same bytes
// through a connection of TLS alone, from and to as much memory.
func BenchmarkCopy(b *testing.B) {
	b.Run("in", func(b *testing.B) {
		s := attachTo(b, benchWorld(b))
		defer s.Close()
		data, m := make([]byte, wire.MaxPiece), (&wire.CopyIn{Dst: deviceBase}).Append(nil)
		b.SetBytes(wire.MaxPiece)
		for b.Loop() {
			if err := s.Producer.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, m, data); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("out", func(b *testing.B) {
		s := attachTo(b, benchWorld(b))
		defer s.Close()
		m := (&wire.CopyOut{Src: deviceBase}).Append(nil)
		b.SetBytes(wire.MaxPiece)
		// As many on their way as there are buffers.
		var onTheWay []*wire.Pending
		wait := func() {
			if _, _, err := onTheWay[0].Wait(); err != nil {
				b.Fatal(err)
			}
			onTheWay = onTheWay[1:]
		}
		for i := uint64(0); b.Loop(); i++ {
			if len(onTheWay) == 16 {
				wait()
			}
			p, err := s.Producer.Start(wire.Header{Op: wire.OpCopyOut, Data: benchGeometry.Staging + i%16*wire.BounceBuffer, Length: wire.MaxPiece}, m)
			if err != nil {
				b.Fatal(err)
			}
			onTheWay = append(onTheWay, p)
		}
		for len(onTheWay) > 0 {
			wait()
		}
	})
	b.Run("tls", func(b *testing.B) {
		dir := certificates(b)
		nodeTLS, err := LoadDir(dir + "/node-localhost")
		if err != nil {
			b.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer listener.Close()
		done := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				done <- err
				return
			}
			defer conn.Close()
			from := tls.Server(conn, strict(nodeTLS))
			to := make([]byte, 16*wire.MaxPiece)
			for i := 0; err == nil; i = (i + 1) % 16 {
				_, err = io.ReadFull(from, to[i*wire.MaxPiece:][:wire.MaxPiece])
			}
			if err == io.EOF {
				err = nil
			}
			done <- err
		}()
		w := world{dir: dir}
		conn, err := tls.Dial("tcp", listener.Addr().String(), w.userTLS(b))
		if err != nil {
			b.Fatal(err)
		}
		data := make([]byte, 16*wire.MaxPiece)
		b.SetBytes(wire.MaxPiece)
		for i := 0; b.Loop(); i = (i + 1) % 16 {
			if _, err := conn.Write(data[i*wire.MaxPiece:][:wire.MaxPiece]); err != nil {
				b.Fatal(err)
			}
		}
		conn.Close()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	})
}
