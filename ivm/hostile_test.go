package ivm_test

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"muster/ivm"
	"muster/ivm/proto"
	"muster/wire"
)

// Elements and nodes that say anything hurt nobody else: the daemon goes on, and so do others.
func TestRandomFramesHurtNobodyElse(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes := cluster(t, 2)
	ctx, good := begin(t, nodes, "return")
	launch := proto.Launch{Executable: "/bin/true", Folder: "/", Args: []string{"true"}}
	for range 8 {
		conn, err := net.Dial("unix", nodes[0].socket.Addr().String())
		check(t, err)
		_, err = io.WriteString(conn, proto.Greeting)
		check(t, err)
		_, err = io.ReadFull(conn, make([]byte, len(proto.Welcome)))
		check(t, err)
		hello := proto.Frame{Op: proto.Enter, Args: [6]uint64{0, proto.Version}, Tail: launch.Append(nil)}
		check(t, wire.SendFiles(conn.(*net.UnixConn), hello.Append(nil), os.Stdout, os.Stderr))
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		for range 60 {
			if random(rng).Write(conn) != nil {
				break
			}
		}
		conn.Close()
	}
	for range 20 {
		conn, err := net.Dial("tcp", nodes[1].port.Addr().String())
		check(t, err)
		for range 4 {
			if random(rng).Write(conn) != nil {
				break
			}
		}
		conn.Close()
	}
	ids := must[[]ivm.ID](t)(good.CreatePEs(ctx, ivm.CPU(1), 1))
	check(t, good.Wait(ctx, ids[0]))
}

// random is a frame that may mean something.
func random(rng *rand.Rand) *proto.Frame {
	f := &proto.Frame{Op: proto.Op(rng.IntN(20)), Tag: rng.Uint64()}
	if rng.IntN(4) == 0 {
		f.Op = proto.Join + proto.Op(rng.IntN(10))
	}
	for i := range f.Args {
		f.Args[i] = []uint64{0, 1, 2, 1 << 40, ^uint64(0), rng.Uint64(), uint64(rng.IntN(5000))}[rng.IntN(7)]
	}
	f.Tail = []byte([]string{"", "A", "B", "\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", `{"kind":"Ended","is":{"Element":0}}`}[rng.IntN(5)])
	return f
}
