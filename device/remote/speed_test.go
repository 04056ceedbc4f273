package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muster/device"
	"muster/wire"
	"muster/wire/client"
)

const base = uint64(0x6400_0000_0000)

// opened is a context with a small kernel, which adds 1 to a word.
type opened struct {
	t testing.TB
	device.Context
	stream device.Stream
	count  device.Function
	params []byte
}

const countKernel = `.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 p)
{
	.reg .b32 %r<2>;
	.reg .b64 %d<1>;
	ld.param.u64 %d0, [p];
	atom.global.add.u32 %r0, [%d0], 1;
	ret;
}
`

func openOn(t testing.TB, d *Device, size uint64) *opened {
	t.Helper()
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	o := &opened{t: t, Context: c, params: binary.LittleEndian.AppendUint64(nil, base)}
	must(t, c.Map(base, size))
	o.stream, err = c.NewStream()
	must(t, err)
	m, err := c.Load([]byte(countKernel))
	must(t, err)
	o.count, err = m.Function("count")
	must(t, err)
	must(t, o.stream.Fill(base, 0, 4, size/4))
	o.launch()
	o.finish()
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o *opened) launch() {
	o.t.Helper()
	one := device.Dim{X: 1, Y: 1, Z: 1}
	must(o.t, o.stream.Launch(o.count, device.Launch{Grid: one, Block: one, Params: o.params}))
}

func (o *opened) finish() {
	o.t.Helper()
	must(o.t, o.stream.Synchronise(context.Background()))
}

// trips counts the messages that need an answer, that is, the round trips.
func trips(t testing.TB, of *client.Trips) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(of.String(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Launches, copies, records and waits need no answer: any number of them costs one round trip, at
// the end.
func TestWorkCostsNoRoundTrips(t *testing.T) {
	l := newLender(t, nil)
	remote := plain(l.address)
	remote.Trips = &client.Trips{}
	d, err := Open(t.Context(), Options{Lender: remote})
	must(t, err)
	o := openOn(t, d, 4<<20)
	second, err := o.NewStream()
	must(t, err)
	e, err := o.NewEvent()
	must(t, err)
	before := trips(t, remote.Trips)
	data := make([]byte, 64<<10)
	const rounds = 500
	for i := range rounds {
		o.launch()
		must(t, o.stream.CopyIn(base+(2<<20), data[:1+i]))
		must(t, o.stream.Record(e))
		must(t, second.Wait(e))
		must(t, second.Fill(base+(3<<20), uint32(i), 4, 100))
	}
	o.finish()
	must(t, second.Synchronise(t.Context()))
	if more := trips(t, remote.Trips) - before; more > 2 {
		t.Errorf("%d rounds of work cost %d round trips: %v", rounds, more, remote.Trips)
	}
	word := make([]byte, 4)
	must(t, o.stream.CopyOut(word, base))
	o.finish()
	if got := binary.LittleEndian.Uint32(word); got != rounds+1 {
		t.Errorf("%d launches were done, not %d", got, rounds+1)
	}
}

// far is a lender behind a link with a longer round trip. The command muster delay makes the
// link; MUSTER_BENCH has the path of muster.
func far(b *testing.B, address string, roundTrip time.Duration) string {
	if roundTrip == 0 {
		return address
	}
	muster := os.Getenv("MUSTER_BENCH")
	if muster == "" {
		b.Skip("MUSTER_BENCH names no muster")
	}
	cmd := exec.Command(muster, "delay", "--to", address, "--round-trip", roundTrip.String())
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	return strings.TrimSpace(line)
}

var distances = []time.Duration{0, time.Millisecond, 10 * time.Millisecond}

// A launch, of which a thousand are waited for together.
func BenchmarkLaunch(b *testing.B) {
	l := newLender(b, nil)
	for _, distance := range distances {
		b.Run(distance.String(), func(b *testing.B) {
			d, err := Open(b.Context(), Options{Lender: plain(far(b, l.address, distance))})
			must(b, err)
			o := openOn(b, d, 2<<20)
			for b.Loop() {
				for range 1000 {
					o.launch()
				}
				o.finish()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/launch")
		})
	}
}

// Copies, compared in turns with the same pieces sent directly over the protocol, as the library in
// C does it.
func BenchmarkCopyIn(b *testing.B)  { benchmarkCopies(b, true) }
func BenchmarkCopyOut(b *testing.B) { benchmarkCopies(b, false) }

func benchmarkCopies(b *testing.B, in bool) {
	const size = 64 << 20
	l := newLender(b, nil)
	for _, distance := range distances {
		b.Run(distance.String(), func(b *testing.B) {
			address := far(b, l.address, distance)
			d, err := Open(b.Context(), Options{Lender: plain(address)})
			must(b, err)
			o := openOn(b, d, size)
			path := newPath(b, address, size)
			data := make([]byte, size)
			var ours, its time.Duration
			for b.Loop() {
				start := time.Now()
				if in {
					must(b, o.stream.CopyIn(base, data))
				} else {
					must(b, o.stream.CopyOut(data, base))
				}
				o.finish()
				middle := time.Now()
				if in {
					path.copyIn(data)
				} else {
					path.copyOut(data)
				}
				ours += middle.Sub(start)
				its += time.Since(middle)
			}
			mega := float64(b.N) * size / 1e6
			b.ReportMetric(mega/ours.Seconds(), "MB/s")
			b.ReportMetric(mega/its.Seconds(), "MB/s-path")
		})
	}
}

// path is a client of the gateway without package remote.
type path struct {
	testing.TB
	*client.Direct
}

func newPath(b testing.TB, address string, size uint64) *path {
	guest, err := client.Connect(context.Background(), plain(address), greeting(), wire.Attach{Device: 1, ArenaBase: base, ArenaSize: 1 << 30})
	must(b, err)
	b.Cleanup(guest.Close)
	p := &path{b, guest}
	p.call(wire.Header{Op: wire.OpMemMap}, &wire.MemMap{Addr: base, Size: size})()
	return p
}

func (p *path) call(h wire.Header, m wire.Message) (wait func()) {
	done := make(chan client.Answer, 1)
	must(p, p.Start(h, m.Append(nil), func(a client.Answer) { done <- a }))
	return func() {
		if a := <-done; a.Err != nil || a.Result != 0 {
			p.Fatal(h.Op, a.Result, a.Err)
		}
	}
}

func (p *path) copyIn(data []byte) {
	for at := 0; at < len(data); at += wire.MaxPiece {
		m := &wire.CopyIn{Dst: base + uint64(at)}
		must(p, p.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), data[at:at+wire.MaxPiece]))
	}
	p.call(wire.Header{Op: wire.OpSynchronise}, &wire.Synchronise{})()
}

// copyOut keeps as many pieces in flight as there are buffers.
func (p *path) copyOut(data []byte) {
	g := p.Shared.Geometry()
	n := int(g.Bounce / wire.BounceBuffer)
	waits := make([]func(), n)
	take := func(piece int) {
		waits[piece%n]()
		from, err := p.Shared.Data(g.Staging+uint64(piece%n)*wire.BounceBuffer, wire.BounceBuffer)
		must(p, err)
		copy(data[piece*wire.BounceBuffer:], from)
	}
	pieces := len(data) / wire.BounceBuffer
	for i := range pieces {
		if i >= n {
			take(i - n)
		}
		at := g.Staging + uint64(i%n)*wire.BounceBuffer
		waits[i%n] = p.call(wire.Header{Op: wire.OpCopyOut, Data: at, Length: wire.BounceBuffer}, &wire.CopyOut{Src: base + uint64(i)*wire.BounceBuffer})
	}
	for i := max(0, pieces-n); i < pieces; i++ {
		take(i)
	}
}

// A small call beside a large copy on another stream, and without it.
func BenchmarkSmallBesideLarge(b *testing.B) {
	const size = 192 << 20
	l := newLender(b, nil)
	o := openOn(b, l.open(b, 0), size)
	large, err := o.NewStream()
	must(b, err)
	data := make([]byte, size)
	for _, beside := range []bool{false, true} {
		b.Run(fmt.Sprint(beside), func(b *testing.B) {
			for b.Loop() {
				if done, err := large.Done(); beside && done {
					must(b, err)
					must(b, large.CopyIn(base, data))
				}
				o.launch()
				o.finish()
			}
		})
		must(b, large.Synchronise(context.Background()))
	}
}
