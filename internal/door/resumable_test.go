package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fault is what becomes of one direction of a link after so many bytes.
type fault struct {
	after atomic.Int64
	drops bool // silently; otherwise the link breaks
}

// faultyLink is one end of a link.
type faultyLink struct {
	net.Conn
	out *fault
}

func (l faultyLink) Write(b []byte) (int, error) {
	left := l.out.after.Add(-int64(len(b)))
	if left >= 0 {
		return l.Conn.Write(b)
	}
	n := max(0, len(b)+int(left))
	if n > 0 {
		if n, err := l.Conn.Write(b[:n]); err != nil {
			return n, err
		}
	}
	if l.out.drops {
		return len(b), nil
	}
	_ = l.Conn.Close()
	return n, io.ErrClosedPipe
}

// pairOf has two sides with links that fail as plan says for each.
type pairOf struct {
	near, far  *Resumable
	plan       func(link int) (out, back *fault)
	mu         sync.Mutex
	redials    int
	refuses    func(redial int) error // why a redial fails; nil if none does
	afterwards bool                   // it fails when the far side has accepted it
}

const testSilence, testWindow = 20 * time.Second, time.Minute

func (p *pairOf) link() (near, far net.Conn) {
	x, y := net.Pipe()
	out, back := p.plan(p.redials)
	return faultyLink{x, out}, faultyLink{y, back}
}

func (p *pairOf) redial(ctx context.Context, arrived uint64, last bool) (net.Conn, uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redials++
	failed := error(nil)
	if p.refuses != nil {
		failed = p.refuses(p.redials)
	}
	if failed != nil && !p.afterwards {
		return nil, 0, failed
	}
	if last {
		p.far.stop(io.EOF)
		return nil, 0, io.EOF
	}
	near, far := p.link()
	theirs := make(chan uint64, 1)
	go func() {
		if _, err := p.far.Resume(far, arrived, func(n uint64) error { theirs <- n; return nil }); err != nil {
			_ = far.Close()
		}
	}()
	select {
	case n := <-theirs:
		if failed != nil {
			_ = near.Close()
			return nil, 0, failed
		}
		return near, n, nil
	case <-ctx.Done(): // this side has ended
		_ = near.Close()
		return nil, 0, ctx.Err()
	case <-time.After(time.Second):
		_ = near.Close()
		return nil, 0, &Ended{"it has ended"}
	}
}

func (p *pairOf) start() {
	near, far := p.link()
	p.far = NewResumable(far, nil, nil, Resuming{Silence: testSilence, Window: testWindow})
	p.near = NewResumable(near, nil, nil, Resuming{Silence: testSilence, Window: testWindow, Redial: p.redial})
}

func never() *fault { return at(1<<40, false) }

func at(n int64, drops bool) *fault {
	f := &fault{drops: drops}
	f.after.Store(n)
	return f
}

// talk has both sides send messages of these sizes, and checks what arrives.
func (p *pairOf) talk(seed uint64, sizes []int) error {
	errs := make(chan error, 4)
	for i, way := range [][2]*Resumable{{p.near, p.far}, {p.far, p.near}} {
		text := func() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{byte(seed), byte(i)}) }
		go func() {
			from := text()
			for n, size := range sizes {
				b := make([]byte, size)
				_, _ = from.Read(b)
				_, err := way[0].Write(b)
				if err == nil && (n%3 != 1 || n == len(sizes)-1) {
					err = way[0].Flush()
				}
				if err != nil {
					errs <- fmt.Errorf("side %d, message %d: %w", i, n, err)
					return
				}
			}
			errs <- nil
		}()
		go func() {
			from := text()
			for n, size := range sizes {
				want, got := make([]byte, size), make([]byte, size)
				_, _ = from.Read(want)
				if n%5 == 4 { // it does not read for long
					time.Sleep(testSilence * 2)
				}
				if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(want, got) {
					errs <- fmt.Errorf("to side %d, message %d: came wrong, %w", i, n, err)
					return
				}
			}
			errs <- nil
		}()
	}
	var all error
	for range 4 {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (p *pairOf) close() {
	_ = p.near.Close()
	p.near.Wait()
	_, _ = p.far.Read(make([]byte, 1))
	_ = p.far.Close()
	p.far.Wait()
}

// Wherever the first link breaks or falls silent, in either direction, both sides get each byte once.
func TestResumableCutAnywhere(t *testing.T) {
	sizes := []int{1, 10, 3, 30, 2, 1}
	const all = 47 + 7*segmentHead
	for _, drops := range []bool{false, true} {
		for back := range 2 {
			step := int64(1)
			if testing.Short() {
				step = 7
			}
			for after := int64(0); after < all; after += step {
				synctest.Test(t, func(t *testing.T) {
					p := &pairOf{plan: func(link int) (*fault, *fault) {
						faults := []*fault{never(), never()}
						if link == 0 {
							faults[back] = at(after, drops)
						}
						return faults[0], faults[1]
					}}
					p.start()
					if err := p.talk(uint64(after), sizes); err != nil {
						t.Errorf("cut after %d bytes of direction %d (dropped: %v): %v", after, back, drops, err)
					}
					p.close()
				})
			}
		}
	}
}

// Links break again and again, also while much is on its way and while they are being made.
func TestResumableAtRandom(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var sizes []int
			for range 30 {
				sizes = append(sizes, 1+random.IntN([]int{50, 5000, 200_000}[random.IntN(3)]))
			}
			p := &pairOf{afterwards: seed%2 == 0}
			p.plan = func(link int) (*fault, *fault) {
				if link > 40 {
					return never(), never()
				}
				far := int64(1 + random.IntN(300_000))
				return at(random.Int64N(far), random.IntN(4) == 0), at(random.Int64N(far), random.IntN(4) == 0)
			}
			p.refuses = func(int) error {
				if random.IntN(4) == 0 {
					return errors.New("not now")
				}
				return nil
			}
			p.start()
			if err := p.talk(seed, sizes); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			p.close()
		})
	}
}

// A connection that cannot be made again ends on both sides when the window is over, and not before;
// at once if the other side says so, and soon if nothing listens there.
func TestResumableEnds(t *testing.T) {
	for name, c := range map[string]struct {
		refuses error
		within  time.Duration
	}{
		"nobody answers":  {errors.New("no answer"), testWindow},
		"it has ended":    {&Ended{"it has ended"}, 0},
		"nothing listens": {syscall.ECONNREFUSED, refusedTime + 2*longestPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pairOf{plan: func(int) (*fault, *fault) { return at(0, false), never() }, refuses: func(int) error { return c.refuses }}
				p.start()
				begun := time.Now()
				if _, err := p.near.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if err := p.near.Flush(); err != nil && c.within > 0 {
					t.Fatal(err)
				}
				_, err := p.near.Read(make([]byte, 1))
				if took := time.Since(begun); err == nil || took > c.within || c.within == testWindow && took != testWindow {
					t.Errorf("after %v: %v", took, err)
				}
				if _, err := p.far.Read(make([]byte, 1)); err == nil || time.Since(begun) != testWindow {
					t.Errorf("the other side after %v: %v", time.Since(begun), err)
				}
			})
		})
	}
}

// A side that ends while it tells the other what it has read tells it of the end, too: else the other
// would wait for a link that never comes.
func TestResumableEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pairOf{plan: func(int) (*fault, *fault) { return never(), never() }}
		p.start()
		begun := time.Now()
		p.far.wmu.lock()
		p.far.Close()
		synctest.Wait()
		p.far.wmu.unlock()
		if _, err := p.near.Read(make([]byte, 1)); err != io.EOF || time.Since(begun) >= testSilence || p.redials > 0 {
			t.Errorf("the other side reads %v after %v, and has dialled %d times", err, time.Since(begun), p.redials)
		}
		p.near.Close()
	})
}

// A side that is silent is taken for gone, one that has nothing to say is not; and a writer who finds
// no room waits, however long the other side does not read.
func TestResumableSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pairOf{plan: func(int) (*fault, *fault) { return never(), never() }}
		p.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if p.redials != 0 {
			t.Errorf("there were %d links", 1+p.redials)
		}
		var written atomic.Int64
		var all sync.WaitGroup
		all.Go(func() {
			for range 100 {
				n, err := p.near.Write(make([]byte, 100_000))
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
			_ = p.near.Flush()
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		near, _ := p.near.Kept()
		far, _ := p.far.Kept()
		if n := written.Load(); n > mostKept || near > mostKept || far > mostKept || p.redials != 0 {
			t.Errorf("%d bytes were written, %d and %d are kept, in %d links", n, near, far, 1+p.redials)
		}
		if _, err := io.ReadFull(p.far, make([]byte, 100*100_000)); err != nil {
			t.Error(err)
		}
		all.Wait()
		p.close()
	})
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, y) }()
		r := NewResumable(x, nil, nil, Resuming{Silence: testSilence})
		begun := time.Now()
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, ErrSilent) || time.Since(begun) > 2*testSilence {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		_ = y.Close()
	})
}

// What no honest side sends ends the connection, and costs nothing.
func TestResumableViolations(t *testing.T) {
	for name, segment := range map[string][4]uint64{
		"a gap":                 {1, kindData, 1, 0},
		"too long":              {blockSize + 1, kindData, 0, 0},
		"of no kind":            {0, 3, 0, 0},
		"consumed too much":     {0, kindData, 0, 1},
		"a word that has bytes": {1, kindOnce, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, y) }()
				r := NewResumable(x, nil, nil, Resuming{Silence: testSilence, Window: testWindow})
				b := make([]byte, segmentHead)
				putSegment(b, int(segment[0]), uint32(segment[1]), segment[2], segment[3])
				go func() { _, _ = y.Write(b) }()
				if _, err := r.Read(make([]byte, 1)); !errors.Is(err, ErrSegment) {
					t.Error(err)
				}
				_ = y.Close()
			})
		})
	}
}

// A link that its dialler has given up may reach the other side late, when a newer one is in use and has
// brought more. It is refused, and the newer one goes on.
func TestResumableLateLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		r := NewResumable(x, nil, nil, Resuming{Silence: testSilence, Window: testWindow})
		r.lose(x, io.ErrUnexpectedEOF)
		_ = y.Close()
		own, theirs := net.Pipe()
		none := func(uint64) error { return nil }
		lost, err := r.Resume(own, 0, none)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		if _, err := r.Write([]byte("ten bytes!")); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		says := func(bytes string, offset, consumed uint64) {
			t.Helper()
			b := make([]byte, segmentHead, segmentHead+len(bytes))
			putSegment(b, len(bytes), kindData, offset, consumed)
			go func() { _, _ = theirs.Write(append(b, bytes...)) }()
			if _, err := io.ReadFull(r, make([]byte, len(bytes))); err != nil {
				t.Fatal(err)
			}
		}
		says("a", 0, 10)
		late, _ := net.Pipe()
		if _, err := r.Resume(late, 0, none); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the late link: %v", err)
		}
		select {
		case <-lost:
			t.Error("the newer link is lost")
		default:
		}
		if err := r.Err(); err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		says("b", 1, 10)
		_ = theirs.Close()
		_ = r.Close()
		r.Wait()
	})
}
