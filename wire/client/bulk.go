package client

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"time"

	"muster/internal/door"
	"muster/wire"
	"muster/wire/lanes"
)

// laneTime is how long connecting a lane may take. firstPause and longestPause are between two
// attempts.
const laneTime, firstPause, longestPause = 10 * time.Second, laneTime / 64, 2 * time.Second

// bulk is a client's lanes. They are made when there is first enough data to be worth it. end may
// be called on a nil bulk.
type bulk struct {
	dial  func(context.Context) (net.Conn, error)
	most  int
	from  uint64 // bytes
	key   wire.LaneKey
	start func(serve func()) // runs serve in a goroutine that carry waits for
	ctx   context.Context    // done when the client ends; bounds the making of lanes
	over  func()

	silence time.Duration // of the node
	keep    time.Duration // for how long a lane that broke is worth another

	lanes   *lanes.Lanes
	begun   bool // they are being made; only send uses it
	staging inOrder
}

func newBulk(dial func(context.Context) (net.Conn, error), offer wire.Frame, silence, keep time.Duration, release func(uint64)) *bulk {
	b := &bulk{dial: dial, key: offer.Key, from: max(1, offer.From), most: min(int(min(offer.Lanes, lanes.Most)), Lanes()), silence: silence, keep: keep, lanes: lanes.New(silence+keep, silence/4), staging: inOrder{release: release}}
	b.ctx, b.over = context.WithCancel(context.Background())
	if dial == nil {
		b.most = 0
	}
	return b
}

// Lanes is how many lanes this machine can keep busy: half of its cores encrypt, the others run the
// program and its messages.
func Lanes() int { return max(2, runtime.GOMAXPROCS(0)/2) }

// takes says whether this many bytes go over lanes. Until one is open, the connection with the
// messages carries everything.
func (b *bulk) takes(length uint64) bool { return b.prepare(length) && b.lanes.Open() > 0 }

// prepare says whether this many bytes, of the program or of the node, are worth lanes. The first time
// it starts to make them.
func (b *bulk) prepare(length uint64) bool {
	if length < b.from || b.most == 0 {
		return false
	}
	if !b.begun {
		b.begun = true
		for range b.most {
			b.start(b.serve)
		}
	}
	return true
}

// serve makes a lane and serves it, and makes another when it breaks. If the first cannot be made,
// serve tries again a few times, since a busy node may not have had time for it; after that the client
// does without. If another cannot be made, serve tries for as long as the node keeps the session.
func (b *bulk) serve() {
	last, had := time.Now(), false
	for pause := firstPause; ; pause *= 4 {
		if b.serveOne() {
			last, had, pause = time.Now(), true, firstPause
		}
		if had {
			pause = min(pause, longestPause)
		}
		if pause > laneTime || had && time.Since(last) > b.keep {
			return
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// serveOne makes and serves one lane. It returns whether there was one.
func (b *bulk) serveOne() bool {
	ctx, cancel := context.WithTimeout(b.ctx, laneTime)
	defer cancel()
	conn, err := b.dial(ctx)
	if err != nil {
		return false
	}
	lane, err := newLane(conn, b.silence)
	if err != nil {
		conn.Close()
		return false
	}
	defer lane.HangUp() // TLS must not say goodbye where the other side expects bulk data
	defer context.AfterFunc(b.ctx, lane.HangUp)()
	_ = conn.SetDeadline(time.Now().Add(laneTime))
	if _, err := conn.Write(b.key[:]); err != nil {
		return false
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the node confirms that it has accepted the lane
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := lane.Write([]byte{1}); err != nil { // the node sends nothing before
		return true
	}
	if b.lanes.Join(lane) == nil {
		_ = b.lanes.Serve(lane)
	}
	return true
}

// newLane makes a lane of a connection, with the encryption for bulk data if it has TLS that uses
// the same cipher.
func newLane(conn net.Conn, silence time.Duration) (*door.Lane, error) {
	if secure, ok := conn.(*tls.Conn); ok {
		if sealed, err := door.Seal(secure, true); err != nil || sealed != nil {
			return door.NewLane(sealed, silence), err
		}
	}
	return door.NewLane(conn, silence), nil
}

// end ends all lanes.
func (b *bulk) end() {
	if b != nil {
		b.over()
		b.lanes.Close(lanes.ErrClosed)
	}
}

// endSoon ends all lanes when the node has ended the client: what is on its way has a moment to arrive.
func (b *bulk) endSoon() {
	select {
	case <-b.ctx.Done():
	case <-time.After(lastWordTime):
	}
	b.end()
}

// releases notes that staging memory up to a position is in use, if staged, and returns the
// function that frees it.
func (b *bulk) releases(staged bool, position uint64) (free func()) {
	if !staged {
		return nil
	}
	return b.staging.use(position)
}

// inOrder frees staging memory in the order in which it was used, in whatever order the lanes send
// the bytes: the position that release publishes covers everything before it.
type inOrder struct {
	release func(position uint64)

	mu   sync.Mutex
	used []*stretch
}

type stretch struct {
	end  uint64
	free bool
}

func (o *inOrder) use(end uint64) (free func()) {
	s := &stretch{end: end}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = append(o.used, s)
	return func() { o.free(s) }
}

func (o *inOrder) free(s *stretch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.free = true
	n := 0
	for n < len(o.used) && o.used[n].free {
		n++
	}
	if n > 0 {
		o.release(o.used[n-1].end)
		o.used = append(o.used[:0], o.used[n:]...)
	}
}
