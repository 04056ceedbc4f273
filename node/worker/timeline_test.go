package worker

import (
	"cmp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/timeline"
)

// traced is what a worker has told of a client.
type traced struct {
	records []timeline.Record
	names   map[uint32]string
	lost    uint64
	now     uint64
}

// read asks the worker for all that was done.
func (t *traced) read(c *client) {
	c.t.Helper()
	for more := true; more; {
		at := c.bounce()
		const room = 1000 * timeline.Size
		pending, err := c.p.Start(wire.Header{Op: wire.OpTraceRead, Data: at, Length: room}, (&wire.TraceRead{}).Append(nil))
		if err != nil {
			c.t.Fatal(err)
		}
		result, payload, err := pending.Wait()
		var reply wire.TraceReadReply
		if err != nil || result != 0 || reply.Decode(payload) != nil {
			c.t.Fatal(result, err)
		}
		data, err := c.shared.Data(at, uint64(reply.Size))
		if err != nil {
			c.t.Fatal(err)
		}
		t.records = append(t.records, timeline.Records(data)...)
		if _, names := timeline.Names(data); t.names == nil {
			t.names = names
		} else {
			for number, name := range names {
				t.names[number] = name
			}
		}
		more, t.lost, t.now = reply.More != 0, reply.Lost, reply.Now
	}
}

// of returns the records of some kinds.
func (t *traced) of(kinds ...timeline.Kind) (found []timeline.Record) {
	for _, r := range t.records {
		if slices.Contains(kinds, r.Kind) {
			found = append(found, r)
		}
	}
	return found
}

// plain hides that streams can tell when their work ran, as those of real GPUs cannot.
type plain struct{ device.Context }

type plainStream struct{ device.Stream }

func (p plain) NewStream() (device.Stream, error) {
	s, err := p.Context.NewStream()
	return plainStream{s}, err
}

func (s plainStream) Can() *device.StreamCan { return &device.StreamCan{} }

// Every kernel and copy is recorded once, with its name, stream, bytes and message, within
// the time in which it was asked for; and what runs on one stream does not overlap: on
// devices that tell when work ran, and on those where events do.
func TestTimelineOfWork(t *testing.T) {
	for name, wrap := range map[string]func(string, device.Context) device.Context{
		"told by the device": nil,
		"by events":          func(_ string, c device.Context) device.Context { return plain{c} },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, options{wrap: wrap})
			var seen traced
			seen.read(c)
			begin := int64(seen.now)
			v := newVectors(c, 5000)
			c.post(&wire.StreamCreate{Stream: 1, Flags: nonBlocking})
			v.round(1)
			const launches = 20
			for i := range uint32(launches) {
				v.launch(i % 2)
			}
			v.in(v.a, make([]byte, 300))
			c.must(&wire.Synchronise{}, nil)
			seen.read(c)
			v.round(2)
			seen.read(c)
			kernels := seen.of(timeline.Kernel)
			if len(kernels) != launches+2 || seen.lost != 0 {
				t.Fatalf("%d kernels of %d, %d lost", len(kernels), launches+2, seen.lost)
			}
			for _, k := range kernels {
				if seen.names[k.Name] != "vecadd" || k.Begin < begin || k.End > int64(seen.now) || k.Last != 0 {
					t.Errorf("%q %+v, between %d and %d", seen.names[k.Name], k, begin, seen.now)
				}
			}
			messages := map[uint32]bool{}
			for _, k := range kernels {
				messages[k.First] = true
			}
			if len(messages) != len(kernels) {
				t.Errorf("%d messages for %d kernels", len(messages), len(kernels))
			}
			for _, want := range []struct {
				kind  timeline.Kind
				bytes uint64
			}{{timeline.CopyIn, 300}, {timeline.CopyIn, 20000}, {timeline.CopyOut, 20000}, {timeline.OnHost, 20000}, {timeline.SwapIn, 2 << 20}} {
				if !slices.ContainsFunc(seen.of(want.kind), func(r timeline.Record) bool {
					return r.Bytes == want.bytes || want.kind == timeline.SwapIn && r.Bytes > 0
				}) {
					t.Errorf("no record of kind %d with %d bytes: %+v", want.kind, want.bytes, seen.of(want.kind))
				}
			}
			for _, kind := range []timeline.Kind{timeline.Wait, timeline.Open, timeline.Device} {
				if len(seen.of(kind)) != 1 {
					t.Errorf("%d records of kind %d", len(seen.of(kind)), kind)
				}
			}
			noOverlap(t, seen.of(timeline.Kernel, timeline.CopyIn, timeline.CopyOut, timeline.Fill, timeline.CopyWithin))
		})
	}
}

// noOverlap says which work of one stream overlaps. Events on a software GPU are reached a
// little after the work before them has ended, so nothing is allowed for.
func noOverlap(t *testing.T, work []timeline.Record) {
	t.Helper()
	slices.SortFunc(work, func(a, b timeline.Record) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Begin, b.Begin))
	})
	for i := 1; i < len(work); i++ {
		if a, b := work[i-1], work[i]; a.Row == b.Row && b.Begin < a.End {
			t.Errorf("on stream %d, %+v and %+v overlap", a.Row, a, b)
		}
	}
}

// Reading records is no work: a client that does nothing else becomes idle, and stays so.
func TestReadingRecordsIsNoWork(t *testing.T) {
	c, _ := watched(t)
	var seen traced
	for i := 0; said[control.Idle](c) == 0; i++ {
		seen.read(c)
		if i == 1_000_000 {
			t.Fatal("the daemon never hears that the client is idle")
		}
	}
	busy := said[control.Busy](c)
	for range 100 {
		seen.read(c)
	}
	if said[control.Busy](c) != busy || said[control.Idle](c) != 1 {
		t.Error("reading records counts as work")
	}
}

// A worker that follows one which has died goes on to record, and says what the rebuild took.
func TestTimelineOutlivesTheWorker(t *testing.T) {
	var doom atomic.Int32
	c := newClient(t, options{recovers: true, killed: func() bool { return doom.Load() > 0 && doom.Add(-1) == 0 }})
	var seen traced
	seen.read(c)
	v := newVectors(c, 1000)
	v.round(1)
	seen.read(c)
	doom.Store(1)
	v.round(2)
	for i := 0; len(seen.of(timeline.Rebuild)) == 0; i++ {
		seen.read(c)
		if i == 1000 {
			t.Fatal("the rebuild was not recorded")
		}
	}
	v.round(3)
	seen.read(c)
	if n := len(seen.of(timeline.Kernel)); n < 3 {
		t.Errorf("%d kernels", n)
	}
	noOverlap(t, seen.of(timeline.Kernel))
}

// Others have names if they are the same user's, as the daemon decides.
func TestOthers(t *testing.T) {
	c := newClient(t, options{})
	var seen traced
	seen.read(c)
	at := timeline.Now() + int64(time.Hour) // those who have a device for long by then are noted in parts
	c.tell(control.Neighbour{Client: 5, Device: 0, On: true, Who: "train", At: at + 1000})
	c.tell(control.Neighbour{Client: 6, Device: 0, On: true, At: at + 2000})
	c.tell(control.Neighbour{Client: 5, Device: 0, At: at + 3000})
	c.tell(control.Neighbour{Client: 6, Device: 0, At: at + 4000})
	for len(seen.of(timeline.Others)) < 2 {
		seen.read(c)
	}
	type span struct {
		who        string
		begin, end int64
	}
	var got []span
	for _, r := range seen.of(timeline.Others) {
		got = append(got, span{seen.names[r.Name], r.Begin - at, r.End - at})
	}
	want := []span{{"train (client 5)", 1000, 3000}, {"another user's program", 2000, 4000}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
