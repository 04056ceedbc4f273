package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/hostcopy"
	"muster/node/worker/keeper"
	"muster/node/worker/pace"
	"muster/node/worker/staging"
	"muster/node/worker/told"
	"muster/wire"
	"muster/wire/control"
)

// session is the client that this process serves: what the daemon says of it, what is known of it, and
// what it shares with its program. The loop owns it.
type session struct {
	serve    control.Serve
	core     *clientcore.Core
	began    time.Time // when the client did, in whichever worker
	shared   *wire.Shared
	consumer *wire.Consumer // of the program's messages
	staging  *staging.Staging
	host     *hostcopy.Memory
	told     *told.Told
	keeper   *keeper.Keeper // nil: the client ends with its worker
	contexts contexts
	pace     *pace.Pacer // nil: this client never makes way for others
	tracing  tracing
	log      *slog.Logger

	ctx    context.Context // cancelled when the worker ends
	stop   context.CancelFunc
	others sync.WaitGroup // all goroutines beside the loop
	exit   func()         // ends the process
}

func (s *session) now() clientcore.Time { return time.Since(s.began) }

// isNow sets the client's clock.
func (s *session) isNow(now clientcore.Time) { s.began = time.Now().Add(-now) }

// timed runs f and notes how long it took.
func (s *session) timed(outcome *clientcore.Outcome, f func() error) error {
	began := s.now()
	err := f()
	outcome.Took = s.now() - began
	return err
}

// pinned returns the program's memory that a message names.
func (s *session) pinned(h wire.Header) ([]byte, error) { return s.shared.Data(h.Data, h.Length) }

// sharesFate says whether a fault of another client can end this client's contexts.
func (s *session) sharesFate() bool { return s.serve.MPS != nil && s.serve.MPS.Shared }

// kernelLimit is how long a kernel may hold a device.
func (s *session) kernelLimit() device.KernelLimit {
	return device.KernelLimit{Time: s.serve.KernelTime, By: s.serve.KernelTimeBy}
}
