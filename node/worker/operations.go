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
	"muster/wire/control"
	"muster/wire/timeline"
)

const success clientcore.Result = 0

// perform is how an operation is carried out that has no outcome but failure, on behalf of a message.
type perform func(m *message, o *clientcore.Op) error

// answer is how one is carried out whose outcome the core waits for.
type answer func(m *message, o *clientcore.Op) clientcore.Outcome

// operation is what is done for a kind of operation.
type operation struct {
	do  perform
	ask answer // instead
	// dropped says whether a replay leaves the operation out, because the program already has the answer
	// or the data that it would deliver; nil: it never does.
	dropped  func(r *replay, o *clientcore.Op) bool
	again    func(r *replay, o *clientcore.Op) (done bool, err error) // what a replay does besides; done: instead
	recorded trace.Row                                                // how it appears in a timeline
}

// enter makes the table of all kinds.
func (p *parts) enter() {
	p.operations = [clientcore.Kinds]operation{
		clientcore.Reply:      {do: always(p.replies.reply), dropped: wasReplied},
		clientcore.ReplyAfter: {do: p.ends.replyAfter, again: endAgain},
		clientcore.Write:      {do: simply(p.replies.write), dropped: wasAnswered},
		clientcore.SetStatus:  {do: always(p.replies.setStatus)},
		clientcore.Tell:       {do: always(func(o *clientcore.Op) { p.replies.told.Teller.Tell(o.Text) }), dropped: wasTold},

		clientcore.Say:        {do: always(func(o *clientcore.Op) { p.mail.say(o.Message) }), again: commitAgain},
		clientcore.WatchWaits: {do: always(p.watchWaits)},

		clientcore.Refused: {do: p.replies.refused, again: refusedAgain},
		clientcore.Commit:  {do: simply(func(o *clientcore.Op) error { return p.recovery.commit(o.Base) })},

		clientcore.HostIn:   {do: p.onHost(p.copies.toHost), recorded: trace.Row{Kind: timeline.OnHost, Name: "copy in, kept on the host"}},
		clientcore.HostOut:  {do: p.onHost(p.copies.fromHost), dropped: wasGiven, recorded: trace.Row{Kind: timeline.OnHost, From: true, Name: "copy out, from the host's copy"}},
		clientcore.HostCopy: {do: p.onHost(simply(p.copies.withinHost)), recorded: trace.Row{Kind: timeline.OnHost, Name: "copy within the host's copy"}},
		clientcore.HostFill: {do: p.onHost(simply(p.copies.fillHost)), recorded: trace.Row{Kind: timeline.OnHost, Name: "fill of the host's copy"}},
		clientcore.Reserve:  {do: simply(func(o *clientcore.Op) error { return p.moves.mover.reserve(o.Range) })},
		clientcore.GiveBack: {do: always(p.moves.mover.giveBack)},

		clientcore.MapHost:     {do: simply(p.reach.add)},
		clientcore.UnmapHost:   {do: always(func(o *clientcore.Op) { p.reach.drop(o.Range.Addr) })},
		clientcore.CloseShared: {do: always(func(o *clientcore.Op) { p.commons.close(o.Range.Addr) })},

		clientcore.CopyIn:      {do: p.onStream(p.copies.in), recorded: trace.Row{Kind: timeline.CopyIn}},
		clientcore.CopyOut:     {do: p.onStream(p.copies.out), dropped: wasGiven, recorded: trace.Row{Kind: timeline.CopyOut, From: true}},
		clientcore.Copy:        {do: p.submitted((*gpu).copy), recorded: trace.Row{Kind: timeline.CopyWithin}},
		clientcore.Fill:        {do: p.submitted((*gpu).fill), recorded: trace.Row{Kind: timeline.Fill}},
		clientcore.Launch:      {do: p.launches.launch, recorded: trace.Row{Kind: timeline.Kernel}},
		clientcore.RunGraph:    {do: p.launches.runGraph},
		clientcore.After:       {do: p.onStream(p.sequence.after)},
		clientcore.Record:      {do: p.submitted((*gpu).record)},
		clientcore.Wait:        {do: p.onStream(p.sequence.forEvent)},
		clientcore.Call:        {do: p.onStream(p.hosts.callFunction)},
		clientcore.WriteWord:   {do: p.submitted((*gpu).writeWord)},
		clientcore.AwaitWord:   {do: p.onStream(p.hosts.awaitWord)},
		clientcore.Settle:      {do: p.onStream(func(_ *message, _ *gpu, on device.Stream, _ *clientcore.Op) error { return p.waits.settle(on) })},
		clientcore.Drain:       {do: p.inContext(func(g *gpu, _ *clientcore.Op) error { return p.waits.drain(g) })},
		clientcore.LeaveStream: {do: p.inContext(p.leaveStream)},
		clientcore.CloseEvent:  {do: p.inContext(func(g *gpu, o *clientcore.Op) error { return g.closeEvent(o.Event) })},
		clientcore.Unload:      {do: p.inContext(func(g *gpu, o *clientcore.Op) error { return g.modules.Unload(o.Module) })},
		clientcore.SetLimit:    {do: p.inContext(func(g *gpu, o *clientcore.Op) error { return g.setLimits(o.Limits) })},
		clientcore.DropTexture: {do: p.inContext(func(g *gpu, o *clientcore.Op) error { return g.dropTextures(o.Textures) })},
		clientcore.DropGraph:   {do: p.inContext(func(g *gpu, o *clientcore.Op) error { g.dropGraph(o.Graph); return nil })},
		clientcore.Close:       {do: always(func(o *clientcore.Op) { p.opener.close(o.Place) })},
		clientcore.Abandon:     {do: always(func(o *clientcore.Op) { p.opener.abandon(o.Place) })},
		clientcore.HostReturn:  {do: always(func(o *clientcore.Op) { p.hosts.returned(o.Cookie) })},
		clientcore.HostDrop:    {do: always(func(*clientcore.Op) { p.hosts.drop() })},

		clientcore.Query:      {do: p.onGPU(p.ends.query), dropped: wasOpen, again: endAgain},
		clientcore.QueryEvent: {do: p.onGPU(p.ends.queryEvent), dropped: wasOpen, again: endAgain},
		clientcore.Elapsed:    {do: p.onGPU(p.ends.elapsed), dropped: wasOpen, again: endAgain},
		clientcore.Printed:    {do: func(m *message, o *clientcore.Op) error { return p.replies.printFetch(m.Entry, o.Slot, o.Out) }, dropped: wasAnswered},
		clientcore.Occupancy:  {do: askFunction(p, occupancy), dropped: wasAnswered},
		clientcore.SharedFor:  {do: askFunction(p, sharedFor), dropped: wasAnswered},
		clientcore.Clusters:   {do: askFunction(p, clusters), dropped: wasAnswered},
		clientcore.Ask:        {do: p.inContext(p.replies.askDriver), dropped: wasAnswered},

		clientcore.GoOn:         {ask: asks(func(*clientcore.Op) clientcore.Outcome { return clientcore.Outcome{} })},
		clientcore.Finish:       {ask: asks(p.ends.finish)},
		clientcore.Inspect:      {ask: asks(func(o *clientcore.Op) clientcore.Outcome { return p.devices.inspect(o.Image) })},
		clientcore.Open:         {ask: asks(p.opener.open)},
		clientcore.Load:         {ask: p.loader.load},
		clientcore.Describe:     {ask: asks(p.loader.describe)},
		clientcore.Link:         {ask: asks(p.loader.link)},
		clientcore.MakeTextures: {ask: asks(p.loader.makeTextures)},
		clientcore.Move:         {ask: asks(p.moves.asked)},
		clientcore.Leave:        {ask: asks(p.moves.leave)},
		clientcore.Backup:       {ask: asks(p.moves.leave)},
		clientcore.MakeShared:   {ask: asks(p.commons.make)},
		clientcore.Share:        {ask: fails(p.commons.share)},
		clientcore.OpenShared:   {ask: fails(p.commons.open)},
		clientcore.MakeRoom:     {ask: fails(p.orders.makeRoom)},
		clientcore.Refill:       {ask: fails(p.orders.refill)},
	}
}

func (p *parts) watchWaits(o *clientcore.Op) {
	if p.answers.Watch(o.On); o.On {
		p.ahead.begin()
	}
}

func (p *parts) leaveStream(g *gpu, o *clientcore.Op) error {
	p.pace.Leaves(g.streams[o.Stream])
	return g.leaveStream(o.Stream)
}

// onGPU is how an operation is carried out that needs the context at its place.
func (p *parts) onGPU(do func(m *message, g *gpu, o *clientcore.Op) error) perform {
	return func(m *message, o *clientcore.Op) error {
		g, err := p.contexts.at(o.Place)
		if err != nil {
			return err
		}
		return do(m, g, o)
	}
}

// inContext is onGPU for what needs nothing else.
func (p *parts) inContext(do func(g *gpu, o *clientcore.Op) error) perform {
	return p.onGPU(func(_ *message, g *gpu, o *clientcore.Op) error { return do(g, o) })
}

// onStream is how work is submitted to the stream of an operation.
func (p *parts) onStream(do func(m *message, g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return p.onGPU(func(m *message, g *gpu, o *clientcore.Op) error {
		on, err := g.stream(o.Stream)
		if err != nil {
			return err
		}
		here := g.modules.Here(o)
		if p.tracing.isOn() {
			return p.tracing.Submit(g, on, p.operations[o.Kind].recorded, here, func() error { return do(m, g, on, here) })
		}
		return do(m, g, on, here)
	})
}

// submitted is onStream for work that needs nothing but the stream.
func (p *parts) submitted(do func(g *gpu, on device.Stream, o *clientcore.Op) error) perform {
	return p.onStream(func(_ *message, g *gpu, on device.Stream, o *clientcore.Op) error {
		step := *o // do may run in another goroutine while the loop reads ahead, so it gets a copy
		return p.waits.block(func() error { return do(g, on, &step) })
	})
}

// onHost is how a copy or fill on the host copies is carried out.
func (p *parts) onHost(do perform) perform {
	return func(m *message, o *clientcore.Op) error {
		if p.tracing.isOn() {
			defer p.tracing.OnHost(p.operations[o.Kind].recorded, o)()
		}
		return do(m, o)
	}
}

// simply is how an operation is carried out whatever message it is for; always, if it also never fails.
func simply(do func(o *clientcore.Op) error) perform {
	return func(_ *message, o *clientcore.Op) error { return do(o) }
}

func always(do func(o *clientcore.Op)) perform {
	return func(_ *message, o *clientcore.Op) error {
		do(o)
		return nil
	}
}

// asks is simply for an operation with an outcome; fails, if that is only that it may fail.
func asks(do func(o *clientcore.Op) clientcore.Outcome) answer {
	return func(_ *message, o *clientcore.Op) clientcore.Outcome { return do(o) }
}

func fails(do func(o *clientcore.Op) error) answer {
	return func(_ *message, o *clientcore.Op) clientcore.Outcome { return clientcore.Outcome{Err: do(o)} }
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

func (p *replies) refused(m *message, o *clientcore.Op) error {
	p.keeper.Refused(m, o.Result)
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
func askFunction[R interface{ Append([]byte) []byte }](p *parts, about func(f device.Function, o *clientcore.Op) (R, error)) perform {
	return p.inContext(func(g *gpu, o *clientcore.Op) error {
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

// tracing is the timeline of the program, from when it asks for one. The loop owns it, but for neighbours.
type tracing struct {
	*trace.Recorder                  // nil: no timeline was asked for
	neighbours      trace.Neighbours // any goroutine may note one
	rebuilt         trace.Rebuilt    // how the client came into this worker
	shared          *wire.Shared
	record          func() *trace.Recorder
	say             func(m control.ToDaemon)
}

// isOn says whether the program records a timeline.
func (t *tracing) isOn() bool { return t.Recorder != nil }

// read answers the library with what was recorded since it last asked.
func (t *tracing) read(h wire.Header, body []byte) error {
	out, err := t.shared.Data(h.Data, h.Length)
	if err == nil {
		err = (&wire.TraceRead{}).Decode(body)
	}
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	t.begin()
	reply := t.Read(out, t.neighbours.Take(timeline.Now()))
	t.shared.Reply(h.Slot, success, reply.Append(nil))
	return nil
}

// begin starts recording, unless it has started.
func (t *tracing) begin() {
	if t.isOn() {
		return
	}
	t.say(control.Traced{})
	t.Recorder = t.record()
	t.Rebuilt(t.rebuilt)
}

// --- operations that ask ------------------------------------------------------------

// loader loads what the program brings into contexts. The loop owns it.
type loader struct {
	*session
	waits *waits

	shifted bool // some module variables are not at the addresses the program knows (shifts)
}

func (l *loader) load(m *message, o *clientcore.Op) (outcome clientcore.Outcome) {
	defer l.tracing.Span(timeline.Load, o.Place)()
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
