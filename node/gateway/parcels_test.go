package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"muster/internal/seeds"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/parcel"
)

// guestHello is what another node says that has a device of this one.
func guestHello() wire.Hello {
	hello := client.Hello("a node's device", 0)
	hello.Guest = wire.Guest
	return hello
}

// Who may not leave or fetch parcels, or describes them wrongly, is ended; one that names a node which
// is no peer is only refused, and nothing is copied.
func TestParcelsThatAreWrong(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	long := make([]byte, 32)
	at := testGeometry.Staging
	give := func(m wire.ParcelGive, length uint64) []byte { return frameOf(0, 0, &m, at, length) }
	take := func(m wire.ParcelTake) []byte { return frameOf(0, 0, &m, 0, 0) }
	good := wire.ParcelTake{Dst: deviceBase, Size: 4, Key: long, Giver: long, Address: "127.0.0.1:1"}
	for _, c := range []struct {
		name  string
		hello wire.Hello
		send  []byte
		want  string
	}{
		{"a program gives", client.Hello("test", 0), give(wire.ParcelGive{Src: deviceBase, Key: long, Taker: long}, 4), errNoGuest.Error()},
		{"a program takes", client.Hello("test", 0), take(good), errNoGuest.Error()},
		{"a short key", guestHello(), give(wire.ParcelGive{Src: deviceBase, Key: long[1:], Taker: long}, 4), "with a key of 31"},
		{"a long key", guestHello(), take(wire.ParcelTake{Size: 4, Key: make([]byte, 33), Giver: long}), "with a key of 33"},
		{"no taker", guestHello(), give(wire.ParcelGive{Src: deviceBase, Key: long}, 4), "a taker of 0"},
		{"nothing", guestHello(), give(wire.ParcelGive{Src: deviceBase, Key: long, Taker: long}, 0), "of 0 bytes"},
		{"too much", guestHello(), take(wire.ParcelTake{Size: parcel.Most + 1, Key: long, Giver: long}), "of 1048577 bytes"},
		{"in staging memory", guestHello(), frameOf(0, 0, &wire.ParcelGive{Key: long, Taker: long}, 0, 4), "in staging memory"},
		{"a stranger", guestHello(), take(good), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t, w, func() {
				conn, frames := conversationAs(t, w, c.hello)
				defer conn.Close()
				if _, err := conn.Write(c.send); err != nil {
					t.Fatal(err)
				}
				f, err := frames.Next()
				switch {
				case err != nil:
					t.Fatal(err)
				case c.want == "" && (f.Kind != wire.FrameReply || f.Result != resultNotReady):
					t.Errorf("got %v with %d", f.Kind, f.Result)
				case c.want != "" && (f.Kind != wire.FrameClosed || !strings.Contains(f.Reason, c.want)):
					t.Errorf("got %v: %s", f.Kind, f.Reason)
				}
			})
		})
	}
}

// parcelNumber makes keys that differ.
func parcelNumber(r *rand.Rand) []byte {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return key
}

// A guest that leaves parcels for its own node's gateway and fetches them has its memory copied, in
// any order of the two messages; keys that were used, or are another's, are worth nothing.
func TestParcelsWithinOneNode(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 0))
	own := w.gateway.own()
	giver, given := conversationAs(t, w, guestHello())
	taker, taken := conversationAs(t, w, guestHello())
	send := func(conn io.Writer, seq uint32, slot int, m wire.Message, length uint64) {
		t.Helper()
		data := uint64(0)
		if length > 0 {
			data = testGeometry.Staging
		}
		if _, err := conn.Write(frameOf(seq, slot, m, data, length)); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(frames *wire.FrameReader, slot int) int32 {
		t.Helper()
		f, err := frames.Next()
		if err != nil || f.Kind != wire.FrameReply || f.Slot != slot {
			t.Fatalf("got %v %q in slot %d, %v", f.Kind, f.Reason, f.Slot, err)
		}
		return f.Result
	}
	const size = 1000
	want := bytes.Repeat([]byte{0xab}, size)
	send(giver, 0, -1, &wire.CopyInline{Dst: deviceBase, Data: want}, 0)
	for i := range uint32(4) {
		key := parcelNumber(r)
		give := func() { send(giver, 1+i, 0, &wire.ParcelGive{Src: deviceBase, Key: key, Taker: own[:]}, size) }
		take := func() {
			send(taker, 2*i, 0, &wire.ParcelTake{Dst: deviceBase + 4096*uint64(i), Size: size, Key: key, Giver: own[:]}, 0)
		}
		for _, first := range [][2]func(){{give, take}, {take, give}}[i%2] {
			first()
		}
		if result := answer(given, 0); result != 0 {
			t.Fatalf("giving: %d", result)
		}
		if result := answer(taken, 0); result != 0 {
			t.Fatalf("taking: %d", result)
		}
		send(taker, 2*i+1, 1, &wire.Synchronise{}, 0)
		if result := answer(taken, 1); result != 0 {
			t.Fatalf("synchronising: %d", result)
		}
	}
	for i := range uint32(4) {
		send(taker, 8+i, 0, &wire.CopyOut{Src: deviceBase + 4096*uint64(i)}, size)
		f, err := taken.Next()
		got := make([]byte, size)
		if err != nil || f.Kind != wire.FrameData || f.Bytes != size || taken.ReadBytes(got) != nil || !bytes.Equal(got, want) {
			t.Errorf("parcel %d is not there: %v of %d bytes, %v", i, f.Kind, f.Bytes, err)
		}
		if result := answer(taken, 0); result != 0 {
			t.Fatalf("copying: %d", result)
		}
	}
	if a, b := w.gateway.Parcels(); a != 4*size || b != 4*size {
		t.Errorf("%d bytes were given, and %d fetched", a, b)
	}
}

// While parcels wait for room in a client's staging memory, its calls go on, and each gets one answer.
func TestCallsBesideParcels(t *testing.T) {
	geometry := testGeometry
	geometry.Staging = 2 * parcel.Most // the least that there may be
	w := newWorld(t, geometry, nil)
	w.daemon.atOnce = true // so that it is full most of the time
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 0))
	own := w.gateway.own()
	giver, given := conversationAs(t, w, guestHello())
	taker, taken := conversationAs(t, w, guestHello())
	const parcels, atATime, calls, slots = 64, 8, 4000, 16
	keys := make([][]byte, parcels)
	for i := range keys {
		keys[i] = parcelNumber(r)
	}
	var all sync.WaitGroup
	all.Go(func() {
		give := func(i, slot int) error {
			if i >= parcels {
				return nil
			}
			_, err := giver.Write(frameOf(uint32(i), slot, &wire.ParcelGive{Src: deviceBase, Key: keys[i], Taker: own[:]}, geometry.Staging+uint64(slot)*parcel.Most, parcel.Most))
			return err
		}
		err := errors.Join(give(0, 0), give(1, 1))
		for i := 0; i < parcels && err == nil; i++ {
			var f wire.Frame
			if f, err = given.Next(); err == nil && (f.Kind != wire.FrameReply || f.Result != 0) {
				err = fmt.Errorf("%v %q with %d", f.Kind, f.Reason, f.Result)
			}
			if err == nil {
				err = give(i+2, f.Slot)
			}
		}
		if err != nil {
			t.Errorf("giving: %v", err)
		}
	})
	// Some slots are for parcels, and some for calls; each is used again when its answer has come.
	forCalls, forParcels := make(chan int, slots), make(chan int, atATime)
	for i := range slots {
		forCalls <- atATime + i
	}
	for i := range atATime {
		forParcels <- i
	}
	all.Go(func() {
		for seq, sent, called := uint32(0), 0, 0; sent < parcels || called < calls; seq++ {
			var frame []byte
			mayCall, maySend := forCalls, forParcels
			if called == calls {
				mayCall = nil
			}
			if sent == parcels {
				maySend = nil
			}
			select {
			case slot := <-maySend:
				frame = frameOf(seq, slot, &wire.ParcelTake{Dst: deviceBase, Size: parcel.Most, Key: keys[sent], Giver: own[:]}, 0, 0)
				sent++
			case slot := <-mayCall:
				frame = frameOf(seq, slot, &wire.StreamQuery{}, 0, 0)
				called++
			}
			if _, err := taker.Write(frame); err != nil {
				t.Error(err)
				return
			}
		}
	})
	fetched := 0
	for range parcels + calls {
		f, err := taken.Next()
		if err != nil || f.Kind != wire.FrameReply || f.Result != 0 {
			t.Fatalf("got %v %q with %d in slot %d, %v", f.Kind, f.Reason, f.Result, f.Slot, err)
		}
		if f.Slot < atATime {
			fetched++
			forParcels <- f.Slot
		} else {
			forCalls <- f.Slot
		}
	}
	all.Wait()
	if fetched != parcels {
		t.Errorf("%d answers to %d parcels", fetched, parcels)
	}
}
