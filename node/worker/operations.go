package worker

import (
	"errors"
	"fmt"

	"muster/device"
	"muster/internal/laps"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/answers"
	"muster/node/worker/trace"
	"muster/vmm"
	"muster/wire"
	"muster/wire/timeline"
)

const success clientcore.Result = 0

// perform is how an operation is carried out that has no outcome but failure, on behalf of a message.
type perform func(p *parts, m *message, o *clientcore.Op) error

// operation is what is done for a kind of operation.
type operation struct {
	do  perform
	ask func(p *parts, m *message, o *clientcore.Op) clientcore.Outcome // instead, for one whose outcome the core waits for
	// dropped says whether a replay leaves the operation out, because the program already has the answer
	// or the data that it would deliver; nil: it never does.
	dropped  func(r *replay, o *clientcore.Op) bool
	again    func(r *replay, o *clientcore.Op) (done bool, err error) // what a replay does besides; done: instead
	recorded trace.Row                                                // how it appears in a timeline
}

// operations is the table of all kinds.
var operations [clientcore.Kinds]operation

func init() { // not where it is declared, since some of them carry out others
	operations = [clientcore.Kinds]operation{
		clientcore.Reply:      {do: always(func(p *parts, o *clientcore.Op) { p.replies.reply(o) }), dropped: wasReplied},
		clientcore.ReplyAfter: {do: func(p *parts, m *message, o *clientcore.Op) error { return p.ends.replyAfter(m, o) }, again: endAgain},
		clientcore.Write:      {do: func(p *parts, _ *message, o *clientcore.Op) error { return p.replies.write(o) }, dropped: wasAnswered},
		clientcore.SetStatus:  {do: always(func(p *parts, o *clientcore.Op) { p.replies.setStatus(o) })},
		clientcore.Tell:       {do: always(func(p *parts, o *clientcore.Op) { p.replies.told.Teller.Tell(o.Text) }), dropped: wasTold},

		clientcore.Say: {do: always(func(p *parts, o *clientcore.Op) { p.mail.say(o.Message) }), again: commitAgain},
		clientcore.WatchWaits: {do: always(func(p *parts, o *clientcore.Op) {
			if p.answers.Watch(o.On); o.On {
				p.ahead.begin()
			}
		})},

		clientcore.Refused: {do: func(p *parts, m *message, o *clientcore.Op) error {
			p.replies.keeper.Refused(m, o.Result)
			return nil
		}, again: refusedAgain},
		clientcore.Commit: {do: func(p *parts, _ *message, o *clientcore.Op) error { return p.recovery.commit(o.Base) }},

		clientcore.HostIn:   {do: onHost(func(p *parts, m *message, o *clientcore.Op) error { return p.copies.toHost(m, o) }), recorded: trace.Row{Kind: timeline.OnHost, Name: "copy in, kept on the host"}},
		clientcore.HostOut:  {do: onHost(func(p *parts, m *message, o *clientcore.Op) error { return p.copies.fromHost(m, o) }), dropped: wasGiven, recorded: trace.Row{Kind: timeline.OnHost, From: true, Name: "copy out, from the host's copy"}},
		clientcore.HostCopy: {do: onHost(func(p *parts, _ *message, o *clientcore.Op) error { return p.copies.withinHost(o) }), recorded: trace.Row{Kind: timeline.OnHost, Name: "copy within the host's copy"}},
		clientcore.HostFill: {do: onHost(func(p *parts, _ *message, o *clientcore.Op) error { return p.copies.fillHost(o) }), recorded: trace.Row{Kind: timeline.OnHost, Name: "fill of the host's copy"}},
		clientcore.Reserve:  {do: func(p *parts, _ *message, o *clientcore.Op) error { return p.moves.mover.reserve(o.Range) }},
		clientcore.GiveBack: {do: always(func(p *parts, o *clientcore.Op) { p.moves.mover.giveBack(o) })},

		clientcore.MapHost:     {do: func(p *parts, _ *message, o *clientcore.Op) error { return p.reach.add(o) }},
		clientcore.UnmapHost:   {do: always(func(p *parts, o *clientcore.Op) { p.reach.drop(o.Range.Addr) })},
		clientcore.CloseShared: {do: always(func(p *parts, o *clientcore.Op) { p.commons.close(o.Range.Addr) })},

		clientcore.CopyIn:   {do: copied((*copies).in), recorded: trace.Row{Kind: timeline.CopyIn}},
		clientcore.CopyOut:  {do: copied((*copies).out), dropped: wasGiven, recorded: trace.Row{Kind: timeline.CopyOut, From: true}},
		clientcore.Copy:     {do: submitted((*gpu).copy), recorded: trace.Row{Kind: timeline.CopyWithin}},
		clientcore.Fill:     {do: submitted((*gpu).fill), recorded: trace.Row{Kind: timeline.Fill}},
		clientcore.Launch:   {do: func(p *parts, m *message, o *clientcore.Op) error { return p.launches.launch(m, o) }, recorded: trace.Row{Kind: timeline.Kernel}},
		clientcore.RunGraph: {do: func(p *parts, m *message, o *clientcore.Op) error { return p.launches.runGraph(m, o) }},
		clientcore.After:    {do: sequenced((*sequence).after)},
		clientcore.Record:   {do: submitted((*gpu).record)},
		clientcore.Wait:     {do: sequenced((*sequence).forEvent)},
		clientcore.Call: {do: onStream(func(p *parts, _ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
			return p.hosts.callFunction(on, o)
		})},
		clientcore.WriteWord: {do: submitted((*gpu).writeWord)},
		clientcore.AwaitWord: {do: onStream(func(p *parts, _ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
			return p.hosts.awaitWord(on, o)
		})},
		clientcore.Settle: {do: onStream(func(p *parts, _ *message, _ *gpu, on device.Stream, _ *clientcore.Op) error {
			return p.waits.settle(on)
		})},
		clientcore.Drain: {do: onGPU(func(p *parts, _ *message, g *gpu, _ *clientcore.Op) error { return p.waits.drain(g) })},
		clientcore.LeaveStream: {do: onGPU(func(p *parts, _ *message, g *gpu, o *clientcore.Op) error {
			p.pace.Leaves(g.streams[o.Stream])
			return g.leaveStream(o.Stream)
		})},
		clientcore.CloseEvent:  {do: inContext(func(g *gpu, o *clientcore.Op) error { return g.closeEvent(o.Event) })},
		clientcore.Unload:      {do: inContext(func(g *gpu, o *clientcore.Op) error { return g.modules.Unload(o.Module) })},
		clientcore.SetLimit:    {do: inContext(func(g *gpu, o *clientcore.Op) error { return g.setLimits(o.Limits) })},
		clientcore.DropTexture: {do: inContext(func(g *gpu, o *clientcore.Op) error { return g.dropTextures(o.Textures) })},
		clientcore.DropGraph:   {do: inContext(func(g *gpu, o *clientcore.Op) error { g.dropGraph(o.Graph); return nil })},
		clientcore.Close:       {do: always(func(p *parts, o *clientcore.Op) { p.opener.close(o.Place) })},
		clientcore.Abandon:     {do: always(func(p *parts, o *clientcore.Op) { p.opener.abandon(o.Place) })},
		clientcore.HostReturn:  {do: always(func(p *parts, o *clientcore.Op) { p.hosts.returned(o.Cookie) })},
		clientcore.HostDrop:    {do: always(func(p *parts, _ *clientcore.Op) { p.hosts.drop() })},

		clientcore.Query:      {do: question((*ends).query), dropped: wasOpen, again: endAgain},
		clientcore.QueryEvent: {do: question((*ends).queryEvent), dropped: wasOpen, again: endAgain},
		clientcore.Elapsed:    {do: question((*ends).elapsed), dropped: wasOpen, again: endAgain},
		clientcore.Printed: {do: func(p *parts, m *message, o *clientcore.Op) error {
			return p.replies.printFetch(m.Entry, o.Slot, o.Out)
		}, dropped: wasAnswered},
		clientcore.Occupancy: {do: askFunction(occupancy), dropped: wasAnswered},
		clientcore.SharedFor: {do: askFunction(sharedFor), dropped: wasAnswered},
		clientcore.Clusters:  {do: askFunction(clusters), dropped: wasAnswered},
		clientcore.Ask:       {do: onGPU(func(p *parts, _ *message, g *gpu, o *clientcore.Op) error { return p.replies.askDriver(g, o) }), dropped: wasAnswered},

		clientcore.GoOn:    {ask: func(*parts, *message, *clientcore.Op) clientcore.Outcome { return clientcore.Outcome{} }},
		clientcore.Finish:  {ask: func(p *parts, _ *message, _ *clientcore.Op) clientcore.Outcome { return p.ends.finish() }},
		clientcore.Inspect: {ask: func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return p.devices.inspect(o.Image) }},
		clientcore.Open:    {ask: func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return p.opener.open(o) }},
		clientcore.Load: {ask: func(p *parts, m *message, o *clientcore.Op) clientcore.Outcome {
			defer p.tracing.Span(timeline.Load, o.Place)()
			return p.loader.load(m, o)
		}},
		clientcore.Describe:     {ask: asks((*loader).describe)},
		clientcore.Link:         {ask: asks((*loader).link)},
		clientcore.MakeTextures: {ask: asks((*loader).makeTextures)},
		clientcore.Move:         {ask: func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return p.moves.asked(o) }},
		clientcore.Leave:        {ask: leaves},
		clientcore.Backup:       {ask: leaves},
		clientcore.MakeShared:   {ask: func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return p.commons.make(o) }},
		clientcore.Share:        {ask: fails(func(p *parts, o *clientcore.Op) error { return p.commons.share(o) })},
		clientcore.OpenShared:   {ask: fails(func(p *parts, o *clientcore.Op) error { return p.commons.open(o) })},
		clientcore.MakeRoom: {ask: fails(func(p *parts, _ *clientcore.Op) error {
			return p.moves.mover.reserveAll(p.orders.incoming.By.Allocations())
		})},
		clientcore.Refill: {ask: fails(func(p *parts, o *clientcore.Op) error { return p.orders.refill(o) })},
	}
}

// onGPU is how an operation is carried out that needs the context at its place.
func onGPU(do func(p *parts, m *message, g *gpu, o *clientcore.Op) error) perform {
	return func(p *parts, m *message, o *clientcore.Op) error {
		g, err := p.contexts.at(o.Place)
		if err != nil {
			return err
		}
		return do(p, m, g, o)
	}
}

// inContext is onGPU for what needs nothing else.
func inContext(do func(g *gpu, o *clientcore.Op) error) perform {
	return onGPU(func(_ *parts, _ *message, g *gpu, o *clientcore.Op) error { return do(g, o) })
}

// onStream is how work is submitted to the stream of an operation.
func onStream(do func(p *parts, m *message, g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return onGPU(func(p *parts, m *message, g *gpu, o *clientcore.Op) error {
		on, err := g.stream(o.Stream)
		if err != nil {
			return err
		}
		here := g.modules.Here(o)
		if p.tracing.isOn() {
			return p.tracing.Submit(g, on, operations[o.Kind].recorded, here, func() error { return do(p, m, g, on, here) })
		}
		return do(p, m, g, on, here)
	})
}

// submitted is onStream for work that needs nothing but the stream.
func submitted(do func(g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return onStream(func(p *parts, _ *message, g *gpu, on device.Stream, o *clientcore.Op) error {
		step := *o // do may run in another goroutine while the loop reads ahead, so it gets a copy
		return p.waits.block(func() error { return do(g, on, &step) })
	})
}

// question is onGPU for questions about the end of work.
func question(do func(e *ends, m *message, g *gpu, o *clientcore.Op) error) perform {
	return onGPU(func(p *parts, m *message, g *gpu, o *clientcore.Op) error { return do(&p.ends, m, g, o) })
}

// copied is onStream for copies between the program and a device.
func copied(do func(c *copies, m *message, g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return onStream(func(p *parts, m *message, g *gpu, on device.Stream, o *clientcore.Op) error {
		return do(&p.copies, m, g, on, o)
	})
}

// sequenced is onStream for what orders streams.
func sequenced(do func(s *sequence, g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return onStream(func(p *parts, _ *message, g *gpu, on device.Stream, o *clientcore.Op) error {
		return do(&p.sequence, g, on, o)
	})
}

// always is how an operation is carried out that never fails.
func always(do func(p *parts, o *clientcore.Op)) perform {
	return func(p *parts, _ *message, o *clientcore.Op) error {
		do(p, o)
		return nil
	}
}

// fails is how an operation that asks is carried out if its only outcome is that it may fail.
func fails(do func(p *parts, o *clientcore.Op) error) func(*parts, *message, *clientcore.Op) clientcore.Outcome {
	return func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome {
		return clientcore.Outcome{Err: do(p, o)}
	}
}

// leaves is how an operation is carried out that has the client leave a device, or keep what is there.
func leaves(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return p.moves.leave(o) }

// asks is how an operation is carried out that loads something, or asks about it.
func asks(do func(l *loader, o *clientcore.Op) clientcore.Outcome) func(*parts, *message, *clientcore.Op) clientcore.Outcome {
	return func(p *parts, _ *message, o *clientcore.Op) clientcore.Outcome { return do(&p.loader, o) }
}

// --- to the program and the daemon --------------------------------------------------

// replies are what the program is given at once. The loop owns it.
type replies struct {
	*session
	answers *answers.Answers
	mayDie  func() // where a test may simulate the death of this process
}

func (p *replies) reply(o *clientcore.Op) {
	p.answers.CopiesFirst() // the answer may say that work has ended
	if o.Cookie != 0 {
		p.keeper.Handed(o.Cookie, o.Slot, p.shared.Asks(o.Slot))
	}
	p.answers.Reply(o.Slot, o.Result, o.Payload)
}

func (p *replies) write(o *clientcore.Op) error {
	out, err := p.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	copy(out, o.Data)
	return nil
}

func (p *replies) setStatus(o *clientcore.Op) {
	if o.Result == success {
		p.told.Sticky.Clear()
	} else {
		p.told.Sticky.Set(p.told.Sticky.Current(), o.Result, o.Text)
	}
}

// --- on devices -------------------------------------------------------------------

// copy copies within the context.
func (g *gpu) copy(on device.Stream, o *clientcore.Op) error {
	if o.To.Dense() && o.From.Dense() {
		return on.Copy(o.To.Addr, o.From.Addr, o.To.Width*o.To.Height)
	}
	for i := range o.To.Height {
		if err := on.Copy(o.To.Addr+i*o.To.Pitch, o.From.Addr+i*o.From.Pitch, o.To.Width); err != nil {
			return err
		}
	}
	return nil
}

func (g *gpu) fill(on device.Stream, o *clientcore.Op) error {
	return o.To.Rows(func(addr, _, size uint64) error {
		return on.Fill(addr, o.Value, o.Width, size/uint64(o.Width))
	})
}

func (g *gpu) record(on device.Stream, o *clientcore.Op) error {
	e, err := g.event(o.Event)
	if err != nil {
		return err
	}
	return on.Record(e.Event)
}

var errNoWords = fmt.Errorf("words in memory that streams write and wait for: %w", device.ErrNotSupported)

// writeWord makes a stream write a word.
func (g *gpu) writeWord(on device.Stream, o *clientcore.Op) error {
	write := on.Can().WriteWord
	if write == nil {
		return errNoWords
	}
	return write(o.Range.Addr, int(o.Range.Size), o.Word.Value)
}

// --- questions to the device --------------------------------------------------------

// askFunction answers a question about a kernel.
func askFunction[R interface{ Append([]byte) []byte }](about func(f device.Function, o *clientcore.Op) (R, error)) perform {
	return onGPU(func(p *parts, _ *message, g *gpu, o *clientcore.Op) error {
		f, err := g.modules.Function(o)
		if err != nil {
			return err
		}
		reply, err := about(f, o)
		if err == nil {
			p.replies.shared.Reply(o.Slot, success, reply.Append(nil))
		}
		return err
	})
}

func occupancy(f device.Function, o *clientcore.Op) (*wire.FunctionOccupancyReply, error) {
	blocks, err := f.Occupancy(o.Threads, o.Shared)
	return &wire.FunctionOccupancyReply{Blocks: uint32(blocks)}, err
}

func sharedFor(f device.Function, o *clientcore.Op) (*wire.FunctionSharedReply, error) {
	shared, err := f.SharedFor(o.Blocks, o.Threads)
	return &wire.FunctionSharedReply{Shared: shared}, err
}

func clusters(f device.Function, o *clientcore.Op) (*wire.FunctionClustersReply, error) {
	clusters, blocks, err := f.Clusters(o.How)
	return &wire.FunctionClustersReply{Clusters: uint32(clusters), Blocks: uint32(blocks)}, err
}

// askDriver answers a question that only the device's driver can answer.
func (p *replies) askDriver(g *gpu, o *clientcore.Op) error {
	ask := g.context.Can().Ask
	if ask == nil {
		return fmt.Errorf("a question to NVIDIA's driver: %w", device.ErrNotSupported)
	}
	out, err := p.shared.Data(o.Out.Offset, o.Out.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	answer, err := ask(o.What, o.Params)
	if err == nil && len(answer) > len(out) {
		err = fmt.Errorf("an answer of %d bytes, with room for %d: %w", len(answer), len(out), device.ErrInvalidValue)
	}
	if err == nil {
		p.shared.Reply(o.Slot, success, (&wire.DriverAskReply{Size: uint32(copy(out, answer))}).Append(nil))
	}
	return err
}

// printFetch gives the program as much text of one kind as fits. The journal learns how much before
// the program does, so that a replay does not deliver it again.
func (p *replies) printFetch(e journal.Entry, slot int, room clientcore.Span) error {
	out, err := p.shared.Data(room.Offset, room.Length)
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	reply := p.told.Printed.Fetch(out, func(n int) {
		p.keeper.Gives(e, n)
		p.mayDie()
	})
	p.shared.Reply(slot, success, reply.Append(nil))
	return nil
}

// --- operations that ask ------------------------------------------------------------

// loader loads what the program brings into contexts. The loop owns it.
type loader struct {
	*session
	contexts *contexts
	waits    *waits

	shifted bool // some module variables are not at the addresses the program knows (shifts)
}

func (l *loader) load(m *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	g, err := l.contexts.at(o.Place)
	if err != nil {
		return clientcore.Outcome{Err: err}
	}
	took := laps.Begin()
	var globals []device.Global
	var functions []device.FunctionInfo
	err = l.waits.block(func() (err error) { // the driver may wait for kernels
		globals, functions, err = g.modules.Load(o)
		return err
	})
	if errors.Is(err, errEnded) {
		return clientcore.Outcome{Err: err} // it is being loaded still
	}
	outcome = clientcore.Outcome{Globals: globals, Functions: functions, Err: err}
	took.End("driver")
	l.log.Debug("a module is loaded", "bytes", len(o.Image), "took", took)
	l.shifted = l.shifted || g.modules.Shifted()
	if err == nil && o.Globals == nil {
		l.keeper.TellPlaced(m, clientcore.Placed{Module: o.Module, Globals: outcome.Globals})
	}
	return outcome
}

// in runs f with the context at a place. The driver may wait for kernels meanwhile.
func (l *loader) in(p vmm.Place, f func(g *gpu) error) error {
	g, err := l.contexts.at(p)
	if err != nil {
		return err
	}
	return l.waits.block(func() error { return f(g) })
}

func (l *loader) describe(o *clientcore.Op) clientcore.Outcome {
	var info device.FunctionInfo
	if err := l.in(o.Place, func(g *gpu) (err error) {
		info, err = g.modules.Describe(o.Module, o.Name)
		return err
	}); err != nil {
		return clientcore.Outcome{Err: err}
	}
	return clientcore.Outcome{Functions: []device.FunctionInfo{info}}
}

func (l *loader) makeTextures(o *clientcore.Op) clientcore.Outcome {
	var handle uint64
	if err := l.in(o.Place, func(g *gpu) (err error) {
		handle, err = g.makeTextures(o.Textures)
		return err
	}); err != nil {
		return clientcore.Outcome{Err: err}
	}
	return clientcore.Outcome{Handle: handle}
}
