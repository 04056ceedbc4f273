package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/device"
	"muster/internal/laps"
	"muster/internal/together"
	"muster/node/clientcore"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/timeline"
)

const success clientcore.Result = 0

// perform carries out the operations that the core decided on. If one fails, or is a question, it
// hands the outcome to the core, which may decide on more; it returns when the core wants nothing
// more. An error ends the client.
func (w *worker) perform(ops []clientcore.Op, err error) error {
	for err == nil && len(ops) > 0 {
		last, outcome := w.doAll(ops)
		if last == nil {
			break
		}
		if errors.Is(outcome.Err, clientcore.ErrProtocol) || errors.Is(outcome.Err, errEnded) || errors.Is(outcome.Err, errAsBefore) || errors.Is(outcome.Err, errTaken) {
			return outcome.Err
		}
		if gone := w.gone(outcome.Err); gone != nil {
			return gone
		}
		ops, err = w.core.Outcome(w.now(), last, outcome)
	}
	// The message is finished, unless the core waits and will handle it again.
	if w.stage != nil && !w.core.Waits() {
		w.staging.free(w.stage)
		w.stage = nil
	}
	return err
}

// aside carries out operations while another one is in progress. The core gets no outcome of them:
// it waits for that of the operation in progress.
func (w *worker) aside(ops []clientcore.Op, err error) error {
	if err != nil {
		return err
	}
	_, outcome := w.doAll(ops)
	return outcome.Err
}

// doAll carries out operations up to the first that fails or asks, and returns that one.
func (w *worker) doAll(ops []clientcore.Op) (last *clientcore.Op, outcome clientcore.Outcome) {
	for i := range ops {
		o := &ops[i]
		if w.replay != nil && w.drops(o) {
			continue
		}
		w.mayDie()
		if w.checking {
			w.tellAllocations()
		}
		if o.Kind.Asks() {
			return o, w.ask(o)
		}
		if err := w.do(o); err != nil {
			return o, clientcore.Outcome{Err: err}
		}
	}
	return nil, clientcore.Outcome{}
}

// mayDie is where a test may simulate the death of this process.
func (w *worker) mayDie() {
	if w.dies != nil && w.dies() {
		panic(errKilled)
	}
}

// do carries out an operation that has no outcome but failure.
func (w *worker) do(o *clientcore.Op) error {
	switch o.Kind {
	case clientcore.Launch: // first, as the most frequent
		if w.explains > 0 {
			w.explain()
		}
		return w.launch(o)
	case clientcore.RunGraph:
		return w.runGraph(o)
	case clientcore.Reply:
		w.outsFirst() // the answer may say that work has ended
		w.handed(o)
		w.reply(o.Slot, o.Result, o.Payload)
	case clientcore.ReplyAfter:
		return w.replyAfter(o)
	case clientcore.Write:
		out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
		if err != nil {
			return errors.Join(err, clientcore.ErrProtocol)
		}
		copy(out, o.Data)
	case clientcore.SetStatus:
		if o.Result == success {
			w.sticky.clear()
		} else {
			w.sticky.set(w.sticky.current(), o.Result, o.Text)
		}
	case clientcore.Refused:
		return w.refused(o.Result)
	case clientcore.Commit:
		return w.commit(o.Base)
	case clientcore.Tell:
		w.teller.tell(o.Text)
	case clientcore.Say:
		if m, ok := o.Message.(control.Commit); ok && w.replay != nil {
			w.commitAgain(m)
			break
		}
		w.say(o.Message)
	case clientcore.WatchWaits:
		w.watched.Store(o.On)
		if o.On {
			w.readyAhead()
		}
	case clientcore.HostIn, clientcore.HostOut, clientcore.HostCopy, clientcore.HostFill:
		defer w.timeline.onHost(o)()
		return w.onHost(o)
	case clientcore.Reserve:
		return w.reserve(o.Range)
	case clientcore.GiveBack:
		w.giveBack(o)
	case clientcore.MapHost:
		return w.mapHost(o)
	case clientcore.UnmapHost:
		w.unmapHost(o.Range.Addr)
	case clientcore.CloseShared:
		w.closeShared(o)
	case clientcore.HostReturn:
		w.hosts.returned(o.Cookie)
	case clientcore.HostDrop:
		w.hosts.drop()
	case clientcore.Close:
		w.closeGPU(o.Place)
	case clientcore.Abandon:
		w.abandonGPU(o.Place)
	case clientcore.Printed:
		return w.printFetch(w.entry, o.Slot, o.Out)
	default:
		return w.onDevice(o)
	}
	return nil
}

// reserve makes sure that an allocation has room in the swap area. The first refusal is logged, so
// that the administrator hears of it too.
func (w *worker) reserve(allocation vmm.Range) error {
	err := w.host.reserve(allocation)
	if err != nil && !w.host.warned {
		w.host.warned = true
		w.log.Warn("an allocation was refused", "error", err)
	}
	return err
}

// giveBack returns room in the swap file.
func (w *worker) giveBack(o *clientcore.Op) {
	if o.All {
		w.host.releaseAll()
		return
	}
	w.host.release(o.Range)
}

// at returns the open context of a place.
func (w *worker) at(p vmm.Place) (*gpu, error) {
	if w.latest != nil && w.latest.place == p {
		return w.latest, nil
	}
	g := w.gpus[p]
	if g == nil {
		return nil, fmt.Errorf("there is no context on %v", p)
	}
	w.latest = g
	return g, nil
}

func (w *worker) launch(o *clientcore.Op) error {
	g, err := w.at(o.Place)
	if err != nil {
		return err
	}
	f, err := g.function(o)
	if err != nil {
		return err
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	if o.Guard != nil {
		if o.Guard.Traps {
			return w.guardedLaunch(g, f, on, o)
		}
		o.How.Guard = w.watching(o.Guard)
	}
	here := g.here(o)
	if o.Ticket != 0 {
		return w.timedLaunch(g, on, o, func() error { return w.tracedLaunch(g, f, on, here) })
	}
	return w.tracedLaunch(g, f, on, here)
}

// tracedLaunch launches a kernel, and records it in the timeline if there is one.
func (w *worker) tracedLaunch(g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if w.timeline != nil {
		return w.timeline.submit(g, on, o, func() error { return w.submitLaunch(g, f, on, o) })
	}
	return w.submitLaunch(g, f, on, o)
}

// here returns an operation with the addresses that variables have in this context.
func (g *gpu) here(o *clientcore.Op) *clientcore.Op {
	if g.shifts == nil {
		return o
	}
	return g.shifts.shifted(o)
}

// submitLaunch launches a kernel, after giving way to other clients if it must.
func (w *worker) submitLaunch(g *gpu, f device.Function, on device.Stream, o *clientcore.Op) error {
	if g.overseen {
		if err := w.oversee(g, on, 1, f.Info().Name); err != nil {
			return err
		}
	}
	if w.pace == nil {
		return w.give(g, f, on, o)
	}
	if err := w.beforeLaunch(g, on); err != nil {
		return err
	}
	if err := w.give(g, f, on, o); err != nil {
		return err
	}
	return w.afterLaunch(g, on)
}

// onHost carries out a copy or fill on the host copies. Before it writes, touch keeps the base's
// version of the chunks; all says that they are overwritten completely, so that they need not be
// copied.
func (w *worker) onHost(o *clientcore.Op) error {
	if o.Kind != clientcore.HostOut {
		to, err := o.To.Span()
		if err != nil {
			return err
		}
		all := o.To.Dense()
		if o.Kind == clientcore.HostCopy && all {
			// Source and target may overlap: then the old contents are needed.
			from, err := o.From.Span()
			if err != nil {
				return err
			}
			all = from.Addr+from.Size <= to.Addr || to.Addr+to.Size <= from.Addr
		}
		w.touch(to, all)
	}
	switch o.Kind {
	case clientcore.HostIn:
		w.keep(o)
		return o.To.Rows(func(addr, offset, size uint64) error {
			return w.host.each(vmm.Range{Addr: addr, Size: size}, func(at uint64, piece []byte) error {
				from := o.Data[offset+at-addr:]
				together.Copy(piece, from[:min(len(from), len(piece))])
				return nil
			})
		})
	case clientcore.HostFill:
		return o.To.Rows(func(addr, _, size uint64) error {
			// Pieces end at chunk boundaries, so each begins with a whole element.
			return w.host.each(vmm.Range{Addr: addr, Size: size}, func(_ uint64, piece []byte) error {
				fillBytes(piece, o.Value, o.Width)
				return nil
			})
		})
	case clientcore.HostCopy:
		return w.hostCopy(o)
	}
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	err = o.From.Rows(func(addr, offset, size uint64) error {
		w.host.read(out[offset:offset+size], addr)
		return nil
	})
	w.given()
	return err
}

// hostCopy copies between host copies, row by row. Rows may overlap in memory, as in a copy on the
// device: each row is written as if it were read completely before.
func (w *worker) hostCopy(o *clientcore.Op) error {
	if o.To.Height == 0 {
		return nil
	}
	buffer := make([]byte, min(o.To.Width, hostCopyBuffer))
	for i := range o.To.Height {
		if err := w.hostCopyRow(buffer, o.To.Addr+i*o.To.Pitch, o.From.Addr+i*o.From.Pitch, o.To.Width); err != nil {
			return err
		}
	}
	return nil
}

// hostCopyBuffer is the size of the buffer for copies between host copies.
const hostCopyBuffer = 4 << 20

// hostCopyRow copies size bytes through a buffer. A piece must not overwrite what later pieces read,
// so it begins at the end if the target lies behind the source.
func (w *worker) hostCopyRow(buffer []byte, to, from, size uint64) error {
	for done := uint64(0); done < size; {
		n := min(size-done, uint64(len(buffer)))
		at := done
		if to > from {
			at = size - done - n
		}
		w.host.read(buffer[:n], from+at)
		err := w.host.each(vmm.Range{Addr: to + at, Size: n}, func(addr uint64, piece []byte) error {
			copy(piece, buffer[addr-to-at:n])
			return nil
		})
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// touch prepares host copies to be written. If there is no room to keep the base's version, the
// base is given up: the client cannot be rebuilt until the next one.
func (w *worker) touch(r vmm.Range, all bool) {
	if err := w.host.touch(r, all); err != nil {
		w.expose(err)
		w.host.abandon()
		_ = w.host.touch(r, all)
	}
}

func fillBytes(b []byte, value uint32, width int) {
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], value)
	for n := copy(b, element[:width]); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// onDevice submits work to a device, or asks it something.
func (w *worker) onDevice(o *clientcore.Op) error {
	g, err := w.at(o.Place)
	if err != nil {
		return err
	}
	switch o.Kind {
	case clientcore.Drain:
		return w.drain(g)
	case clientcore.LeaveStream:
		w.pace.leaves(g.streams[o.Stream])
		return g.leaveStream(o.Stream)
	case clientcore.CloseEvent:
		return g.closeEvent(o.Event)
	case clientcore.Unload:
		return g.unload(o.Module)
	case clientcore.Query:
		return w.query(g, o)
	case clientcore.QueryEvent:
		return w.queryEvent(g, o)
	case clientcore.Elapsed:
		return w.elapsed(g, o)
	case clientcore.Occupancy, clientcore.SharedFor, clientcore.Clusters:
		return w.askFunction(g, o)
	case clientcore.Ask:
		return w.askDriver(g, o)
	case clientcore.SetLimit:
		return g.setLimits(o.Limits)
	case clientcore.DropGraph:
		g.dropGraph(o.Graph)
		return nil
	case clientcore.DropTexture:
		return g.dropTextures(o.Textures)
	}
	on, err := g.stream(o.Stream)
	if err != nil {
		return err
	}
	here := g.here(o)
	if w.timeline != nil {
		return w.timeline.submit(g, on, here, func() error { return w.onStream(g, on, here) })
	}
	return w.onStream(g, on, here)
}

// onStream submits work to a stream.
func (w *worker) onStream(g *gpu, on device.Stream, o *clientcore.Op) error {
	switch o.Kind {
	case clientcore.CopyIn:
		return w.copyIn(g, on, o)
	case clientcore.CopyOut:
		return w.copyOut(g, on, o)
	case clientcore.Settle:
		return w.settle(on)
	case clientcore.After:
		if o.Origin != vmm.Host {
			return w.afterAcross(g, on, o)
		}
		return w.after(g, on, o.Other)
	case clientcore.Call:
		if o.Once {
			w.exposeByUse("a graph of its has conditions, and is under way") // the log has the work of the conditions, but not its order
			w.due = true                                                     // make a base as soon as it is over
		}
		return w.call(on, o.Cookie)
	case clientcore.WriteWord:
		return w.writeWord(on, o)
	case clientcore.AwaitWord:
		return w.awaitWord(on, o)
	}
	if o.Origin != vmm.Host {
		return w.waitForEventAcross(g, on, o)
	}
	step := *o // f may run in another goroutine while the loop reads ahead, so it gets a copy
	return w.block(func() error { return g.submit(on, &step) })
}

// submit submits work that needs nothing but a stream.
func (g *gpu) submit(on device.Stream, o *clientcore.Op) error {
	switch o.Kind {
	case clientcore.Copy:
		if o.To.Dense() && o.From.Dense() {
			return on.Copy(o.To.Addr, o.From.Addr, o.To.Width*o.To.Height)
		}
		for i := range o.To.Height {
			if err := on.Copy(o.To.Addr+i*o.To.Pitch, o.From.Addr+i*o.From.Pitch, o.To.Width); err != nil {
				return err
			}
		}
		return nil
	case clientcore.Fill:
		return o.To.Rows(func(addr, _, size uint64) error {
			return on.Fill(addr, o.Value, o.Width, size/uint64(o.Width))
		})
	case clientcore.Record, clientcore.Wait:
		e, err := g.event(o.Event)
		if err != nil {
			return err
		}
		if o.Kind == clientcore.Record {
			return on.Record(e.Event)
		}
		return on.Wait(e.Event)
	}
	return fmt.Errorf("%v is not known", o.Kind)
}

func (w *worker) copyIn(g *gpu, on device.Stream, o *clientcore.Op) error {
	if done, err := w.copyInEchoed(g, on, o); done || err != nil {
		return err
	}
	to, data := o.To, o.Data
	kept := func() {}
	if w.header.Release != 0 {
		kept = w.keepAside(o)
	} else if w.header.Op.TakesData() {
		var err error
		if kept, err = w.attachLater(on, data); err != nil {
			return err
		}
	}
	if o.Staged && w.stage != nil && w.hosts.outstanding() > 0 {
		// The program may be waiting for this memory before it reports that its host function has
		// returned, and the copy may be waiting for that function. A copy of the data breaks the
		// cycle.
		data = bytes.Clone(data)
		kept()
		kept = func() {}
		w.staging.free(w.stage)
		w.stage = nil
	}
	submit := on.CopyIn
	if w.header.Op.TakesData() {
		if err := w.pinProgram(g, w.header.Data, uint64(len(data))); err != nil {
			kept()
			return err
		}
	} else if taker, ok := on.(device.Taker); ok {
		submit = taker.CopyTaken
	}
	err := w.blockLong(func() error {
		return to.Rows(func(addr, offset, size uint64) error { return submit(addr, data[offset:offset+size]) })
	})
	kept()
	w.copying += copying(len(data))
	if err != nil || w.stage == nil {
		return err
	}
	if done, err := on.Done(); done || err != nil {
		return err // perform frees the staging memory
	}
	lent := w.stage
	w.stage = nil // freed when the copy has ended, or with the context
	w.staging.lend(lent, g)
	return w.block(func() error { return notify(on, func() { w.staging.free(lent) }) })
}

// notify has f called when a stream has done what it was given. Later work need not wait for f, but
// does on devices that have only Call.
func notify(on device.Stream, f func()) error {
	if n, ok := on.(device.Notifier); ok {
		return n.Notify(f)
	}
	return on.Call(f)
}

func (w *worker) copyOut(g *gpu, on device.Stream, o *clientcore.Op) error {
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	if err := w.pinProgram(g, o.Out.Offset, o.Out.Length); err != nil {
		return err
	}
	from := o.From
	err = w.blockLong(func() error {
		return from.Rows(func(addr, offset, size uint64) error { return on.CopyOut(out[offset:offset+size], addr) })
	})
	w.copying += copying(o.Out.Length)
	if err == nil {
		err = w.givenLater(on)
	}
	return err
}

// settle waits until a stream has done what it was given.
func (w *worker) settle(on device.Stream) error {
	if done, err := on.Done(); done || err != nil {
		return err
	}
	return w.blockLong(func() error { return on.Synchronise(w.ctx) })
}

// after makes a stream wait for what another stream of the context was given so far.
func (w *worker) after(g *gpu, on device.Stream, other uint32) error {
	first, err := g.stream(other)
	if err != nil {
		return err
	}
	return w.block(func() error {
		if err := first.Record(g.scratch); err != nil {
			return err
		}
		return on.Wait(g.scratch)
	})
}

func (w *worker) query(g *gpu, o *clientcore.Op) error {
	if over, err := w.waitAgain(g, o); over {
		return err
	}
	for i, id := range o.Streams {
		g, err := w.placeOf(g, o, i)
		if err != nil {
			return err
		}
		on, err := g.stream(id)
		if err != nil {
			return err
		}
		if err := ready(on.Done()); err != nil {
			return err
		}
	}
	return w.answerQuery(o)
}

func (w *worker) queryEvent(g *gpu, o *clientcore.Op) error {
	if over, err := w.waitAgain(g, o); over {
		return err
	}
	e, err := g.event(o.Event)
	if err != nil {
		return err
	}
	if err := ready(e.Done()); err != nil {
		return err
	}
	return w.answerQuery(o)
}

// answerQuery tells the program that the work it asked about has ended.
func (w *worker) answerQuery(o *clientcore.Op) error {
	w.outsFirst()
	w.sawEnd()
	w.saw()
	w.tellResult(o.Slot, success)
	return nil
}

func ready(done bool, err error) error {
	if err == nil && !done {
		return device.ErrNotReady
	}
	return err
}

func (w *worker) elapsed(g *gpu, o *clientcore.Op) error {
	if over, err := w.waitAgain(g, o); over {
		return err
	}
	elapsed, err := w.elapsedBetween(o.Start, o.End)
	if err == nil {
		w.outsFirst()
		w.saw()
		w.shared.Reply(o.Slot, success, clientcore.ElapsedReply(elapsed))
	}
	return err
}

// askFunction answers a question about a kernel.
func (w *worker) askFunction(g *gpu, o *clientcore.Op) error {
	f, err := g.function(o)
	if err != nil {
		return err
	}
	var reply []byte
	switch o.Kind {
	case clientcore.SharedFor:
		var shared uint64
		shared, err = f.SharedFor(o.Blocks, o.Threads)
		reply = (&wire.FunctionSharedReply{Shared: shared}).Append(nil)
	case clientcore.Clusters:
		var clusters, blocks int
		clusters, blocks, err = f.Clusters(o.How)
		reply = (&wire.FunctionClustersReply{Clusters: uint32(clusters), Blocks: uint32(blocks)}).Append(nil)
	default:
		var blocks int
		blocks, err = f.Occupancy(o.Threads, o.Shared)
		reply = (&wire.FunctionOccupancyReply{Blocks: uint32(blocks)}).Append(nil)
	}
	if err == nil {
		w.shared.Reply(o.Slot, success, reply)
	}
	return err
}

// askDriver answers a question that only the device's driver can answer.
func (w *worker) askDriver(g *gpu, o *clientcore.Op) error {
	asker, ok := g.context.(device.Asker)
	if !ok {
		return fmt.Errorf("a question to NVIDIA's driver: %w", device.ErrNotSupported)
	}
	out, err := w.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	answer, err := asker.Ask(o.What, o.Params)
	if err == nil && len(answer) > len(out) {
		err = fmt.Errorf("an answer of %d bytes, with room for %d: %w", len(answer), len(out), device.ErrInvalidValue)
	}
	if err == nil {
		w.shared.Reply(o.Slot, success, (&wire.DriverAskReply{Size: uint32(copy(out, answer))}).Append(nil))
	}
	return err
}

// timed runs f and notes how long it took.
func (w *worker) timed(outcome *clientcore.Outcome, f func() error) error {
	began := w.now()
	err := f()
	outcome.Took = w.now() - began
	return err
}

// ask carries out an operation whose outcome the core waits for.
func (w *worker) ask(o *clientcore.Op) (outcome clientcore.Outcome) {
	switch o.Kind {
	case clientcore.GoOn:
	case clientcore.Finish:
		err := w.drainAll()
		if w.gone(err) == nil {
			w.outcome(w.sticky.current(), err) // so that calls that wait fail
		}
		outcome.Err = err
	case clientcore.Inspect:
		outcome.Info, outcome.Known, outcome.Err = w.inspect(o.Image)
	case clientcore.Open:
		defer w.timeline.span(timeline.Open, o.Place)()
		outcome.Err = w.timed(&outcome, func() error { return w.openGPU(o) })
	case clientcore.Load:
		defer w.timeline.span(timeline.Load, o.Place)()
		g, err := w.at(o.Place)
		if err == nil {
			took := laps.Begin()
			var globals []device.Global
			var functions []device.FunctionInfo
			err = w.block(func() (err error) { // the driver may wait for kernels
				globals, functions, err = g.load(o)
				return err
			})
			if errors.Is(err, errEnded) {
				outcome.Err = err
				break // it is being loaded still
			}
			outcome.Globals, outcome.Functions = globals, functions
			took.End("driver")
			w.log.Debug("a module is loaded", "bytes", len(o.Image), "took", took)
			w.shifted = w.shifted || g.shifts != nil
			if err == nil && o.Globals == nil {
				w.tellPlaced(clientcore.Placed{Module: o.Module, Globals: outcome.Globals})
			}
		}
		outcome.Err = err
	case clientcore.Describe:
		g, err := w.at(o.Place)
		if err == nil {
			err = w.block(func() error {
				info, err := g.describe(o.Module, o.Name)
				outcome.Functions = []device.FunctionInfo{info}
				return err
			})
		}
		outcome.Err = err
	case clientcore.Link:
		outcome.Image, outcome.Err = w.link(o)
	case clientcore.MakeTextures:
		g, err := w.at(o.Place)
		if err == nil {
			err = w.block(func() (err error) {
				outcome.Handle, err = g.makeTextures(o.Textures)
				return err
			})
		}
		outcome.Err = err
	case clientcore.Move:
		outcome.Err = w.timed(&outcome, func() error {
			var err error
			outcome.Legs, err = w.moveTimed(o.Plan, o.Now)
			return err
		})
		outcome.Took -= w.once
		w.pinsHost = w.pinsHost || w.once > 0 && !o.Part
	case clientcore.MakeShared:
		outcome.Name, outcome.Err = w.makeShared(o)
	case clientcore.Share:
		outcome.Err = w.share(o)
	case clientcore.OpenShared:
		outcome.Err = w.openShared(o)
	case clientcore.Leave, clientcore.Backup:
		outcome = w.leave(o)
	case clientcore.MakeRoom:
		outcome.Err = w.makeRoom()
	case clientcore.Refill:
		outcome.Err = w.refill(o.Plan)
	}
	return outcome
}

// inspect returns what an image contains, if a device can tell before it is loaded.
func (w *worker) inspect(image []byte) (info device.ImageInfo, known bool, err error) {
	for i := range w.devices {
		d, wrong := w.device(i)
		if wrong != nil {
			continue
		}
		in, ok := d.(device.Inspector)
		if !ok {
			continue
		}
		// A larger device may have room for the image.
		if info, err = in.Inspect(image); !errors.Is(err, device.ErrOutOfMemory) {
			return info, true, err
		}
	}
	return info, false, err
}

// onlyBrings says whether a plan only brings memory that is not on the device yet. No running
// kernel uses such memory, so the move need not wait for them. It must not where a stream waits for
// what the program does next: it would wait for ever.
func onlyBrings(plan vmm.Plan) bool {
	mapped := func(s vmm.Step) bool {
		return slices.ContainsFunc(plan, func(m vmm.Step) bool {
			return m.Op == vmm.Map && m.Device == s.Device && m.Range.Addr <= s.Range.Addr && s.Range.Addr+s.Range.Size <= m.Range.Addr+m.Range.Size
		})
	}
	for _, s := range plan {
		brought := s.Op == vmm.CopyIn || s.Op == vmm.Fill && s.Device != vmm.Host
		if s.Op != vmm.Map && s.Op != vmm.Discard && (!brought || !mapped(s)) {
			return false
		}
	}
	return true
}

// move moves memory as the directory's plan says, once all work on the devices has ended; at once
// if now is set. A plan that only brings memory does not wait either if the client is a guest, for
// which memory exists from the moment it is mapped, or if a host function is outstanding.
func (w *worker) move(plan vmm.Plan, now bool) error {
	_, err := w.moveTimed(plan, now)
	return err
}

// moveTimed is move, and returns how long each device took after its work had ended.
//
// All copies to the host are submitted before any is waited for, so that devices copy at the same
// time. A copy from the host may need what another device is copying to it, so at the first one all
// copies to the host are waited for.
func (w *worker) moveTimed(plan vmm.Plan, now bool) ([]clientcore.Leg, error) {
	defer w.timeline.moved(plan)()
	brings := now || (w.serve.Guest || w.hosts.outstanding() > 0) && onlyBrings(plan)
	drained, err := w.movers(plan)
	for i := 0; i < len(drained) && err == nil && !brings; i++ {
		err = w.drain(drained[i])
	}
	if err != nil {
		return nil, err
	}
	ready := w.now()
	w.once = 0
	if brings {
		w.touchAll(plan)
	} else if w.readyHost(plan) && !w.pinsHost {
		// Only the first move pays for making and pinning the host's pages. That time is not
		// reported as part of the move, because turns are measured by it and later moves are
		// faster. A context that is opened again has to pin again.
		w.once = w.now() - ready
	}
	legs := legs{since: w.now()}
	if out, in := plan.Bytes(vmm.CopyOut), plan.Bytes(vmm.CopyIn); out+in >= hostPinWorth {
		defer func(began clientcore.Time) {
			w.log.Debug("memory was moved", "out", out, "in", in, "pages", (began - ready).String(), "took", (w.now() - began).String())
		}(legs.since)
	}
	out := map[*gpu]bool{} // contexts with copies to the host in flight
	for len(plan) > 0 {
		step, steps := plan[0], sameWay(plan)
		plan = plan[len(steps):]
		for _, step := range steps {
			if step.Op == vmm.CopyOut {
				out[w.gpus[step.Device]] = true
			}
		}
		if step.Op == vmm.CopyIn && len(out) > 0 { // one device may read what another has just written
			for g := range out {
				if err := w.moved(g); err != nil {
					return nil, err
				}
				legs.ended(g.place, w.now())
			}
			legs.since = w.now()
			clear(out)
		}
		if step.Op == vmm.CopyAcross {
			if err := w.copyAcross(step); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			legs.copies(step)
		} else if step.Op == vmm.CopyIn || step.Op == vmm.CopyOut {
			if step, err := w.copyHost(steps); err != nil {
				return nil, fmt.Errorf("%v: %w", step, err)
			}
			for _, step := range steps {
				legs.copies(step)
			}
		} else if err := w.moveStep(step); err != nil {
			return nil, fmt.Errorf("%v: %w", step, err)
		}
	}
	for _, g := range drained {
		if err := w.moved(g); err != nil {
			return nil, err
		}
		legs.ended(g.place, w.now())
	}
	return legs.all, nil
}

// moved waits until everything that was submitted to a mover is done. The driver may have put the
// mover into the same queue of the device as a stream that waits for a host function.
func (w *worker) moved(g *gpu) error {
	return w.block(func() error { return g.mover.Synchronise(w.ctx) })
}

// movers returns the contexts that take part in a plan, each once.
func (w *worker) movers(plan vmm.Plan) (all []*gpu, err error) {
	for _, step := range plan {
		places := []vmm.Place{step.Device, step.From}
		switch {
		case step.Op == vmm.CopyAcross:
		case step.Device == vmm.Host:
			places = nil
		default:
			places = places[:1]
		}
		for _, p := range places {
			if slices.ContainsFunc(all, func(g *gpu) bool { return g.place == p }) {
				continue
			}
			g, err := w.at(p)
			if err != nil {
				return nil, err
			}
			all = append(all, g)
		}
	}
	return all, nil
}

// copyAcross copies memory from one context to another, all work of which has ended. Where the
// devices turn out not to copy to each other, the bytes pass through a buffer; the directory does not
// know of it.
func (w *worker) copyAcross(step vmm.Step) error {
	g, err := w.at(step.Device)
	if err != nil {
		return err
	}
	from, err := w.at(step.From)
	if err != nil {
		return err
	}
	r := step.Range
	if peer, ok := g.mover.(device.PeerCopier); ok {
		if err := peer.CopyFrom(r.Addr, from.context, r.Addr, r.Size); !errors.Is(err, device.ErrNotSupported) {
			return err
		}
	}
	// One buffer is read while the other is written.
	var buffers [2][]byte
	for at, which := uint64(0), 0; at < r.Size; which = 1 - which {
		n := min(r.Size-at, acrossBuffer)
		if buffers[which] == nil {
			buffers[which] = make([]byte, n)
		}
		part := buffers[which][:n]
		if err := from.mover.CopyOut(part, r.Addr+at); err != nil {
			return err
		}
		if err := w.moved(from); err != nil {
			return err
		}
		if err := w.moved(g); err != nil { // with the other buffer
			return err
		}
		if err := g.mover.CopyIn(r.Addr+at, part); err != nil {
			return err
		}
		at += n
	}
	return w.moved(g)
}

// acrossBuffer is the size of the buffer between devices that do not copy to each other.
const acrossBuffer = 8 << 20

// sameWay returns the first steps of a plan that are done together: copies in one direction, or a
// single step of another kind.
func sameWay(plan vmm.Plan) vmm.Plan {
	n := 1
	for first := plan[0].Op; (first == vmm.CopyIn || first == vmm.CopyOut) && n < len(plan) && plan[n].Op == first; {
		n++
	}
	return plan[:n]
}

// legs are what each device copied during a move, and how long it took.
type legs struct {
	all   []clientcore.Leg
	open  map[vmm.Place]bool // devices with copies that were not waited for
	since clientcore.Time    // when the open copies began
}

func (l *legs) copies(step vmm.Step) {
	i := slices.IndexFunc(l.all, func(leg clientcore.Leg) bool { return leg.Place == step.Device })
	if i < 0 {
		i = len(l.all)
		l.all = append(l.all, clientcore.Leg{Place: step.Device})
	}
	l.all[i].Bytes += step.Range.Size
	if l.open == nil {
		l.open = map[vmm.Place]bool{}
	}
	l.open[step.Device] = true
}

// ended notes that all copies of a device have ended.
func (l *legs) ended(p vmm.Place, now clientcore.Time) {
	for i := range l.all {
		if leg := &l.all[i]; leg.Place == p && l.open[p] {
			leg.Took += now - l.since
			delete(l.open, p)
		}
	}
}

func (w *worker) moveStep(step vmm.Step) error {
	r := step.Range
	if step.Op == vmm.Discard {
		w.host.discard(r)
		return nil
	}
	if step.Op == vmm.Fill && step.Device == vmm.Host {
		return w.host.fill(r, step.Word)
	}
	g, err := w.at(step.Device)
	if err != nil {
		return err
	}
	switch step.Op {
	case vmm.Map:
		return g.context.Map(r.Addr, r.Size)
	case vmm.Fill:
		return g.mover.Fill(r.Addr, step.Word, 4, r.Size/4)
	case vmm.Unmap:
		if err := w.moved(g); err != nil {
			return err
		}
		return g.context.Unmap(r.Addr, r.Size)
	}
	return fmt.Errorf("step %v is not known", step.Op)
}

// slowPages is from how long on preparing host memory is logged.
const slowPages = 10 * time.Millisecond

// leave moves everything off a device (Leave), or copies it to the host and keeps it (Backup).
func (w *worker) leave(o *clientcore.Op) (outcome clientcore.Outcome) {
	if o.Kind == clientcore.Backup {
		defer w.timeline.keeps()()
	}
	g, err := w.at(o.Place)
	if err == nil && o.Kind == clientcore.Backup {
		err = w.drainAll()
	} else if err == nil {
		err = w.drain(g)
		g.dropGraphs()
	}
	began := w.now()
	if err == nil {
		// This time is not reported: later moves do without.
		w.readyHost(o.Plan)
	}
	if made := w.now() - began; made > slowPages {
		w.log.Debug("pages were made and pinned on the host", "took", made.String())
	}
	began = w.now()
	if err == nil {
		err = w.move(o.Plan, false)
	}
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	defer func() { outcome.Took = w.now() - began }()
	w.left = w.left || o.Kind == clientcore.Leave && len(o.Plan) > 0
	outcome.Times = w.times(g, o, w.now())
	if o.Shut || o.Kind == clientcore.Backup {
		outcome.Saved, outcome.Err = g.save(w.ctx, o.Modules)
	}
	if o.Shut && outcome.Err == nil {
		w.closeGPU(o.Place)
	}
	return outcome
}
