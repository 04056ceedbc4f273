package remote

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/device"
	"muster/device/curesult"
	"muster/wire"
	"muster/wire/client"
)

// Data go from one lender's device to another's without passing through this process: this side says
// to both of them which bytes are meant, and the one that needs them fetches them (wire/parcel). The
// lenders need to know each other, so it may fail at any time; then nothing was copied, and the
// caller carries the bytes.

// Peers is the group of all lent devices whose lenders are known by their certificates. Whether two
// lenders reach each other turns out when they try.
const Peers = "lent"

const (
	// parcelWindow is how many parcels are under way at a time. The giver's other bounce buffers are
	// left for copies of the host.
	parcelWindow = 8
	// parcelAgain is how long after a failure the same two lenders are not tried again. It doubles with
	// each further failure, since each may cost the program some seconds.
	parcelAgain   = 30 * time.Second
	parcelSeldom  = time.Hour
	mostDoublings = 7
)

// apart notes which lenders could not send a device data, and when that turned out, and which could.
type apart struct {
	mu    sync.Mutex
	pairs map[string]separation // by the giver's address
}

// separation says that a lender could not send data. The zero value says that it could.
type separation struct {
	since time.Time
	times int // in a row
}

// until is when the lender is tried again.
func (s separation) until() time.Time {
	return s.since.Add(min(parcelAgain<<min(s.times-1, mostDoublings), parcelSeldom))
}

func (a *apart) lately(giver string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.pairs[giver]
	return s.times > 0 && time.Now().Before(s.until())
}

// window is how many parcels may be under way: one, until one has arrived.
func (a *apart) window(giver string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, known := a.pairs[giver]; known && s.times == 0 {
		return parcelWindow
	}
	return 1
}

// note notes whether a parcel has come from a lender.
func (a *apart) note(giver string, came bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pairs == nil {
		a.pairs = map[string]separation{}
	}
	if came {
		a.pairs[giver] = separation{}
	} else if s := a.pairs[giver]; s.times == 0 || !time.Now().Before(s.until()) { // several parcels may fail at once
		a.pairs[giver] = separation{time.Now(), s.times + 1}
	}
}

// errApart says that two lenders do not send each other data.
var errApart = fmt.Errorf("the two lenders cannot send each other data: %w", device.ErrNotSupported)

// copyFrom copies from another lent device. It waits until the copy is submitted at this device's
// lender, or until it is known that it is not, with device.ErrNotSupported.
func (s *stream) copyFrom(dst uint64, from device.Context, src, size uint64) error {
	giver, ok := from.Can().Self.(*Context)
	c := s.c
	if !ok || giver == c {
		return errApart
	}
	address := giver.dev.options.Gateway
	if address == "" || c.dev.options.Gateway == "" || !giver.guest.Known || !c.guest.Known || c.dev.apart.lately(address) {
		return errApart
	}
	if err := errors.Join(giver.memory.check(src, size), c.memory.check(dst, size)); err != nil {
		return err
	}
	if size == 0 {
		return nil
	}
	via, err := giver.parcelStream()
	if err != nil {
		return errApart // the copy by the host finds out what is wrong with the giver
	}
	moved := make(chan error, 1)
	err = func() error {
		s.order.Lock()
		defer s.order.Unlock()
		if err := s.usable(); err != nil {
			return err
		}
		s.number()
		return s.submit(job{send: func() error {
			err := s.moveParcels(dst, giver, via, src, size)
			moved <- err
			if errors.Is(err, device.ErrNotSupported) {
				return nil // the stream can go on
			}
			return err
		}}, true)
	}()
	if err != nil {
		return err
	}
	select {
	case err = <-moved:
	case <-c.over:
		return c.ended()
	}
	if errors.Is(err, device.ErrNotSupported) {
		// The giver may still be reading bytes that nobody fetches, and the caller may unmap them. If it
		// does not answer, the copy by the host finds out what is wrong.
		_, _ = giver.call(&wire.StreamSynchronise{Stream: via}, nil)
	}
	return err
}

// parcelStream is the stream at the giver in which it reads its memory.
func (c *Context) parcelStream() (uint32, error) {
	c.mu.Lock()
	have := c.parcels
	c.mu.Unlock()
	if have != 0 {
		return have, nil
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	const nonBlocking = 1
	id := c.last.Add(1)
	if err := c.post(&wire.StreamCreate{Stream: id, Flags: nonBlocking}); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parcels == 0 {
		c.parcels = id
	}
	return c.parcels, nil
}

// moveParcels has all bytes of a copy moved, several parcels at a time. When it returns, the taker has
// answered all of them, or its context has ended. The taker may take long: its worker may be waiting for
// a turn on the device.
func (s *stream) moveParcels(dst uint64, giver *Context, via uint32, src, size uint64) error {
	c := s.c
	answers := make(chan int32, parcelWindow)
	address := giver.dev.options.Gateway
	window, apart := c.dev.apart.window(address), false
	for open := 0; size > 0 && !apart || open > 0; {
		for ; size > 0 && !apart && open < window; open++ {
			n := min(size, wire.BounceBuffer)
			sent, err := s.sendParcel(dst, giver, via, src, n, answers)
			if err != nil {
				return err
			}
			if !sent {
				apart = true
				break
			}
			dst, src, size = dst+n, src+n, size-n
		}
		if open == 0 {
			break
		}
		select {
		case result := <-answers:
			open--
			if came := result == curesult.Success; !came || window < parcelWindow {
				apart = apart || !came
				c.dev.apart.note(address, came)
			}
			window = parcelWindow
		case <-c.over:
			return c.ended()
		}
	}
	if apart {
		return errApart
	}
	return nil
}

// sendParcel tells both lenders of a parcel; false if the giver cannot be told. The taker's answer goes
// to answers.
func (s *stream) sendParcel(dst uint64, giver *Context, via uint32, src, n uint64, answers chan<- int32) (bool, error) {
	c := s.c
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return false, nil
	}
	var at uint64
	select {
	case at = <-giver.bounce:
	case <-giver.over:
		return false, nil
	case <-c.over:
		return false, c.ended()
	}
	give := &wire.ParcelGive{Src: src, Stream: via, Key: key[:], Taker: c.guest.Holder[:]}
	if giver.start(give, span{at, n}, func(client.Answer) { giver.bounce <- at }) != nil {
		giver.bounce <- at
		return false, nil
	}
	take := &wire.ParcelTake{Dst: dst, Stream: s.id, Size: uint32(n), Key: key[:], Giver: giver.guest.Holder[:], Address: giver.dev.options.Gateway}
	return true, c.start(take, span{}, func(a client.Answer) {
		if a.Err == nil { // otherwise the context ends
			answers <- a.Result
		}
	})
}
