package worker

import (
	"bytes"
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// errProtocol says that the client sent what the library never sends. It ends
// the client.
var errProtocol = errors.New("not what a program may send")

// handle does what a message asks for. An error ends the client.
func (s *session) handle(h wire.Header, body []byte) error {
	if r := s.sticky.now(); r != success && !h.Op.AfterFault() {
		// Staging memory is given back all the same.
		s.staging.free(s.staging.take(h.Release))
		s.shared.Reply(h.Slot, r, nil)
		return nil
	}
	err := s.dispatch(h, body)
	if err == nil {
		return nil
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errEnded) || errors.Is(err, errDecode) {
		return fmt.Errorf("%v: %w", h.Op, err)
	}
	s.failed(h, err)
	return nil
}

// failed tells the program that a message could not be done: at once if it
// waits, or at its next synchronising call.
func (s *session) failed(h wire.Header, err error) {
	if isFault(err) {
		s.fault(err)
		s.shared.Reply(h.Slot, s.sticky.now(), nil)
		return
	}
	s.log.Debug("refused", "message", h.Op.String(), "error", err)
	if h.Slot >= 0 {
		s.shared.Reply(h.Slot, resultOf(err), nil)
		return
	}
	if s.failure == success {
		s.failure = resultOf(err)
	}
}

// answer answers a call that ended.
func (s *session) answer(slot int, err error) {
	if slot < 0 {
		return
	}
	r := resultOf(err)
	if r == success && s.failure != success {
		r, s.failure = s.failure, success
	}
	s.shared.Reply(slot, r, nil)
}

// decoding turns a handler of decoded messages into one of bytes.
func decoding[M any, P interface {
	*M
	wire.Message
}](f func(*session, wire.Header, P) error) func(*session, wire.Header, []byte) error {
	return func(s *session, h wire.Header, body []byte) error {
		var m M
		if err := P(&m).Decode(body); err != nil {
			return errors.Join(err, errDecode)
		}
		return f(s, h, &m)
	}
}

var errDecode = errors.New("a damaged message")

// answering is for calls that are answered at once.
func answering[M any, P interface {
	*M
	wire.Message
}](f func(*session, wire.Header, P) ([]byte, error)) func(*session, wire.Header, []byte) error {
	return decoding(func(s *session, h wire.Header, m P) error {
		payload, err := f(s, h, m)
		if err == nil {
			s.shared.Reply(h.Slot, success, payload)
		}
		return err
	})
}

func (s *session) dispatch(h wire.Header, body []byte) error {
	if int(h.Op) >= len(handlers) || handlers[h.Op] == nil {
		return fmt.Errorf("no such message: %w", errProtocol)
	}
	return handlers[h.Op](s, h, body)
}

var handlers [64]func(*session, wire.Header, []byte) error

func init() {
	handlers = [64]func(*session, wire.Header, []byte) error{
		wire.OpMemAlloc:          answering((*session).memAlloc),
		wire.OpMemFree:           decoding((*session).memFree),
		wire.OpMemNest:           decoding((*session).memNest),
		wire.OpCopyInline:        decoding((*session).copyInline),
		wire.OpCopyIn:            decoding((*session).copyInMessage),
		wire.OpCopyOut:           decoding((*session).copyOutMessage),
		wire.OpCopyWithin:        decoding((*session).copyWithinMessage),
		wire.OpCopyIn2D:          decoding((*session).copyIn2D),
		wire.OpCopyOut2D:         decoding((*session).copyOut2D),
		wire.OpCopyWithin2D:      decoding((*session).copyWithin2D),
		wire.OpFill:              decoding((*session).fill),
		wire.OpModuleData:        decoding((*session).moduleData),
		wire.OpModuleLoad:        answering((*session).moduleLoad),
		wire.OpModuleUnload:      decoding((*session).moduleUnload),
		wire.OpModuleNames:       answering((*session).moduleNames),
		wire.OpModuleFunction:    answering((*session).moduleFunction),
		wire.OpModuleGlobal:      answering((*session).moduleGlobal),
		wire.OpFunctionOccupancy: answering((*session).functionOccupancy),
		wire.OpLaunch:            decoding((*session).launch),
		wire.OpStreamCreate:      decoding((*session).streamCreate),
		wire.OpStreamDestroy:     decoding((*session).streamDestroy),
		wire.OpStreamQuery:       answering((*session).streamQuery),
		wire.OpStreamSynchronise: decoding((*session).streamSynchronise),
		wire.OpStreamWait:        decoding((*session).streamWait),
		wire.OpEventCreate:       decoding((*session).eventCreate),
		wire.OpEventDestroy:      decoding((*session).eventDestroy),
		wire.OpEventRecord:       decoding((*session).eventRecord),
		wire.OpEventQuery:        answering((*session).eventQuery),
		wire.OpEventSynchronise:  decoding((*session).eventSynchronise),
		wire.OpEventElapsed:      answering((*session).eventElapsed),
		wire.OpSynchronise:       decoding((*session).synchronise),
		wire.OpHostFunction:      decoding((*session).hostFunction),
		wire.OpHostNext:          decoding((*session).hostNext),
		wire.OpHostDone:          decoding((*session).hostDone),
		wire.OpHostStop:          decoding((*session).hostStop),
		wire.OpPrintFetch:        answering((*session).printFetch),
		wire.OpSyncPoint:         decoding((*session).syncPoint),
		wire.OpReset:             answering((*session).resetMessage),
	}
}

func (s *session) copyInline(h wire.Header, m *wire.CopyInline) error {
	data := append([]byte(nil), m.Data...) // the message's bytes are overwritten by the next
	return s.copyIn(m.Stream, line(m.Dst, uint64(len(data))), data, true, nil)
}

// incoming returns the bytes that a message names.
func (s *session) incoming(h wire.Header) ([]byte, *stage, error) {
	if s.backlog.data != nil {
		return s.backlog.data, nil, nil
	}
	return s.staged(h)
}

// staged returns the bytes of the data arena that a message names.
func (s *session) staged(h wire.Header) ([]byte, *stage, error) {
	data, err := s.shared.Data(h.Data, h.Length)
	if err != nil {
		return nil, nil, errors.Join(err, errProtocol)
	}
	return data, s.staging.take(h.Release), nil
}

func (s *session) copyInMessage(h wire.Header, m *wire.CopyIn) error {
	data, st, err := s.incoming(h)
	if err != nil {
		return err
	}
	return s.copyIn(m.Stream, line(m.Dst, uint64(len(data))), data, s.backlog.data != nil, st)
}

func (s *session) copyIn2D(h wire.Header, m *wire.CopyIn2D) error {
	data, st, err := s.incoming(h)
	if err != nil {
		return err
	}
	return s.copyIn(m.Stream, area{m.Dst, m.Pitch, m.Width, m.Height}, data, s.backlog.data != nil, st)
}

func (s *session) copyOutMessage(h wire.Header, m *wire.CopyOut) error {
	return s.copyOut(h, m.Stream, line(m.Src, h.Length))
}

func (s *session) copyOut2D(h wire.Header, m *wire.CopyOut2D) error {
	return s.copyOut(h, m.Stream, area{m.Src, m.Pitch, m.Width, m.Height})
}

func (s *session) copyWithinMessage(_ wire.Header, m *wire.CopyWithin) error {
	return s.copyWithin(m.Stream, line(m.Dst, m.Size), line(m.Src, m.Size))
}

func (s *session) copyWithin2D(_ wire.Header, m *wire.CopyWithin2D) error {
	return s.copyWithin(m.Stream, area{m.Dst, m.DstPitch, m.Width, m.Height}, area{m.Src, m.SrcPitch, m.Width, m.Height})
}

func (s *session) moduleData(h wire.Header, m *wire.ModuleData) error {
	data, st, err := s.incoming(h)
	if err != nil {
		return err
	}
	defer s.staging.free(st)
	return s.modules.add(m.Module, data)
}

func (s *session) moduleUnload(_ wire.Header, m *wire.ModuleUnload) error {
	return s.unloadModule(m.Module)
}

const cooperative = 1

// launch runs a kernel, on the device that the client has or gets now.
func (s *session) launch(_ wire.Header, m *wire.Launch) error {
	f := s.modules.functions[m.Function]
	if f == nil {
		return fmt.Errorf("function %d: %w", m.Function, errHandle)
	}
	if _, err := s.streams.find(m.Stream); err != nil {
		return err
	}
	if len(m.Params) != f.info.ParamSize {
		return fmt.Errorf("%d bytes of parameters for kernel %s, which takes %d: %w", len(m.Params), f.info.Name, f.info.ParamSize, device.ErrInvalidValue)
	}
	if !s.isReady() || s.hosts.outstanding() > 0 {
		m.Params = bytes.Clone(m.Params) // waiting may read ahead
	}
	if !s.isReady() {
		if err := s.ready(s.needs(m.Params)); err != nil {
			return err
		}
	}
	loaded, err := f.on()
	if err != nil {
		return err
	}
	s.activity.launched(s)
	on, err := s.give(m.Stream)
	if err != nil {
		return err
	}
	s.space.Launched(s.gpu.place, nil)
	s.stats.Kernels++
	how := device.Launch{
		Grid: device.Dim{X: m.GridX, Y: m.GridY, Z: m.GridZ}, Block: device.Dim{X: m.BlockX, Y: m.BlockY, Z: m.BlockZ},
		Shared: uint64(m.Shared), Stack: m.Stack, Params: m.Params, Cooperative: m.Flags&cooperative != 0,
	}
	return s.block(func() error { return on.Launch(loaded, how) })
}

// isReady says whether everything that the client has is on the device.
func (s *session) isReady() bool {
	return s.lease.held && s.gpu != nil && s.gpu.index == s.lease.device && s.space.AllResident(s.gpu.place) && s.modules.allPlaced(s.gpu)
}

// needs returns what must be on the device for a kernel: everything, if any
// device of the node can hold it, since a kernel may follow pointers in memory;
// else what its parameters point to.
func (s *session) needs(params []byte) []vmm.Range {
	all := s.space.Allocations()
	size := s.bytesFor(all)
	for i := range s.serve.Devices {
		d, err := s.device(i)
		if err != nil {
			continue
		}
		if info := d.Info(); size+info.ContextCost <= info.Memory {
			return all
		}
	}
	return s.space.Reachable(params)
}

func (s *session) syncPoint(_ wire.Header, _ *wire.SyncPoint) error {
	if s.lease.held {
		s.atSyncPoint()
	}
	return nil
}

func (s *session) resetMessage(wire.Header, *wire.Reset) ([]byte, error) { return nil, s.reset() }
