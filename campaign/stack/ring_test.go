package stack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/wire"
	"muster/wire/client"
)

// vandal is a client that writes where it must not. It maps the same memory as a program's library.
type vandal struct {
	conn     *net.UnixConn
	attached wire.Attached
	shared   *wire.Shared
	producer *wire.Producer
	ring     []byte // all of it
	random   *rand.Rand
}

func newVandal(t *testing.T, socket string, random *rand.Rand) *vandal {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	v := &vandal{conn: conn, random: random}
	hello := client.Hello("vandal", 0)
	var welcome wire.Welcome
	err = errors.Join(wire.WriteRecord(conn, &hello), wire.ReadAs(conn, &welcome))
	for range welcome.Devices {
		err = errors.Join(err, wire.ReadAs(conn, &wire.Device{}))
	}
	if err = errors.Join(err, wire.WriteRecord(conn, &wire.Attach{})); err != nil {
		t.Fatal(err)
	}
	record := make([]byte, wire.MaxRecord)
	n, files, err := wire.ReceiveFiles(conn, record)
	if err != nil || len(files) != 2 {
		t.Fatal(len(files), err)
	}
	if err := wire.ReadAs(bytes.NewReader(record[:n]), &v.attached); err != nil {
		t.Fatal(err)
	}
	if v.shared, err = wire.Map(files[0], files[1]); err != nil {
		t.Fatal(err)
	}
	v.producer = wire.NewProducer(v.shared)
	size := ringAt + int(v.shared.Geometry().Ring)
	if v.ring, err = syscall.Mmap(int(files[0].Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	return v
}

func (v *vandal) leave() {
	v.conn.Close()
	_ = syscall.Munmap(v.ring)
	v.shared.Unmap()
}

// Offsets in the ring's memory, as in shim/lib/transport/wire.h.
const (
	atTail        = 64
	atWorkerWaits = 144
	slotsAt       = 4096
	ringAt        = slotsAt + 256*256
)

func (v *vandal) u64(at int, value uint64) { binary.LittleEndian.PutUint64(v.ring[at:], value) }

// message puts any bytes on the ring as a message, valid or not.
func (v *vandal) message(b []byte) {
	copy(v.ring[ringAt:], b)
	v.u64(atTail, uint64(len(b)+7)&^7)
}

// damages are what a vandal can do. Each must end its client.
var damages = []struct {
	name string
	do   func(*vandal)
}{
	{"tail far away", func(v *vandal) { v.u64(atTail, 1<<40) }},
	{"tail behind the head", func(v *vandal) { v.u64(atTail, ^uint64(7)) }},
	{"tail not at a word", func(v *vandal) { v.u64(atTail, 41) }},
	{"message without a size", func(v *vandal) { v.u64(ringAt, 0); v.u64(atTail, 64) }},
	{"message larger than the ring", func(v *vandal) { v.u64(ringAt, 1<<31); v.u64(atTail, 64) }},
	{"message longer than what is there", func(v *vandal) { v.u64(ringAt, 4096|uint64(wire.OpSynchronise)<<32); v.u64(atTail, 64) }},
	{"padding that fills the ring", func(v *vandal) {
		v.u64(ringAt, v.shared.Geometry().Ring|0xffff<<32)
		v.u64(atTail, v.shared.Geometry().Ring)
	}},
	{"unknown message", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: 999, Slot: -1}, nil))
	}},
	{"record of the set-up", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpHello, Slot: -1}, nil))
	}},
	{"out of order", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpSyncPoint, Slot: -1, Seq: 5}, nil))
	}},
	{"slot that is none", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpSynchronise, Slot: 300}, nil))
	}},
	{"call without a slot", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpSynchronise, Slot: -1}, nil))
	}},
	{"body too short", func(v *vandal) {
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpMemAlloc}, []byte{1, 2, 3}))
	}},
	{"length inside that is beyond the message", func(v *vandal) {
		body := (&wire.CopyInline{Data: make([]byte, 8)}).Append(nil)
		binary.LittleEndian.PutUint32(body[12:], 1<<31)
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpCopyInline, Slot: -1}, body))
	}},
	{"data beyond the arena", func(v *vandal) {
		body := (&wire.CopyIn{Dst: v.attached.ArenaBase}).Append(nil)
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 1 << 50, Length: 4096}, body))
	}},
	{"data that wrap around", func(v *vandal) {
		body := (&wire.CopyIn{Dst: v.attached.ArenaBase}).Append(nil)
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 4096, Length: ^uint64(0)}, body))
	}},
	{"answer beyond the arena", func(v *vandal) {
		body := (&wire.CopyOut{Src: v.attached.ArenaBase}).Append(nil)
		v.message(wire.AppendMessage(nil, wire.Header{Op: wire.OpCopyOut, Slot: 0, Data: ^uint64(0) - 100, Length: 4096}, body))
	}},
	{"garbage", func(v *vandal) {
		for i := ringAt; i < ringAt+1<<16; i++ {
			v.ring[i] = byte(v.random.Uint32())
		}
		v.u64(atTail, 1<<16)
	}},
	{"a header that is half garbage", func(v *vandal) {
		b := wire.AppendMessage(nil, wire.Header{Op: wire.Op(v.random.IntN(60)), Slot: v.random.IntN(256)}, make([]byte, 8*v.random.IntN(20)))
		for range 3 {
			b[8+v.random.IntN(len(b)-8)] = byte(v.random.Uint32())
		}
		b[12] = 1 // in any case
		v.message(b)
	}},
}

// A client damages the memory that it shares with its worker, in every way, while others compute.
// The node ends it with a reason, and no other client is affected.
func TestDamagedRing(t *testing.T) {
	t.Parallel()
	const seed = 1
	n := newWorld(t).start("--devices", "soft:memory=32M,workers=1;soft:memory=16M,workers=1", "--vgpus", "4")
	var others []*program
	for i := range 10 {
		others = append(others, n.launch(made("small"), "endless", fmt.Sprint(1000*(i+1))))
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for _, damage := range damages {
		t.Run(damage.name, func(t *testing.T) {
			v := newVandal(t, n.socket, random)
			defer v.leave()
			damage.do(v)
			v.wakeWorker()
			_ = v.conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := v.conn.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("it is not ended: %v", err)
			}
			reason, _ := v.shared.Closed()
			if !slices.ContainsFunc([]string{"what it must not", "not what a program may send", "damaged"}, func(s string) bool { return strings.Contains(reason, s) }) {
				t.Errorf("the reason is %q", reason)
			}
		})
	}
	for _, p := range others {
		select {
		case <-p.exited:
			t.Errorf("another program ended: %s", p.output)
		default:
			p.kill()
		}
	}
	n.idle()
}

// The worker does not trust its own values in the shared memory either: heads, sizes, states of
// slots, status. A client that changes them harms only itself.
func TestScribbledRing(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=32M", "--vgpus", "4")
	beside := n.launch(made("small"), "endless", "100000")
	for seed := range uint64(need.Rounds(15, 300)) {
		v := newVandal(t, n.socket, rand.New(rand.NewPCG(seed, 0)))
		base := v.attached.ArenaBase
		messages := []wire.Message{
			&wire.SyncPoint{}, &wire.StreamCreate{Stream: 1}, &wire.EventCreate{Event: 1}, &wire.EventRecord{Event: 1, Stream: 1},
			&wire.Fill{Dst: base, Width: 1, Count: 100, Height: 1}, &wire.MemFree{Addr: base}, &wire.HostStop{}, &wire.CopyInline{Dst: base, Data: make([]byte, 100)},
			&wire.CopyWithin2D{Dst: base, DstPitch: 1 << 60, Src: base, SrcPitch: 1 << 60, Width: 1 << 60, Height: 1 << 60},
		}
		for range 30 {
			v.u64(128, 0) // the head: there is always room
			if err := v.producer.Post(messages[v.random.IntN(len(messages))]); err != nil {
				break // it was ended
			}
			for range 1 + v.random.IntN(4) {
				at := v.random.IntN(512)
				if v.random.IntN(2) == 0 {
					at = slotsAt + v.random.IntN(ringAt-slotsAt)
				}
				v.ring[at] = byte(v.random.Uint32())
			}
			if v.random.IntN(5) == 0 {
				v.ring[ringAt+v.random.IntN(4096)] ^= 1 << v.random.IntN(8)
			}
		}
		v.wakeWorker()
		v.leave()
	}
	select {
	case <-beside.exited:
		t.Errorf("another program ended: %s", beside.output)
	default:
		beside.kill()
	}
	n.idle()
}
