package worker

import (
	"errors"

	"muster/node/clientcore"
	"muster/node/worker/keeper"
)

// message is a message of the client on whose behalf operations are performed.
type message = keeper.Message

// executor performs the operations that the core decides on. The loop owns it.
type executor struct {
	*session
	recovery   *recovery
	operations *[clientcore.Kinds]operation
	all        func(m *message, ops []clientcore.Op) (last *clientcore.Op, outcome clientcore.Outcome) // plainly, but during a replay
	current    message                                                                                 // that the loop has given the core last; the core may be waiting with it
	dies       func() bool                                                                             // in tests only: whether to simulate the death of the process here
}

// perform carries out the operations that the core decided on, on behalf of a message: the one that it
// was given last, if an event caused them. If one fails, or is a question, it hands the outcome to the
// core, which may decide on more; it returns when the core wants nothing more. An error ends the client.
func (x *executor) perform(m *message, ops []clientcore.Op, err error) error {
	for err == nil && len(ops) > 0 {
		last, outcome := x.all(m, ops)
		if last == nil {
			break
		}
		if errors.Is(outcome.Err, clientcore.ErrProtocol) || errors.Is(outcome.Err, errEnded) || errors.Is(outcome.Err, errAsBefore) || errors.Is(outcome.Err, errTaken) {
			return outcome.Err
		}
		if gone := x.recovery.gone(outcome.Err); gone != nil {
			return gone
		}
		ops, err = x.core.Outcome(x.now(), last, outcome)
	}
	if m.Stage.IsOpen() && !x.core.Waits() { // else the core will handle the message again
		x.staging.Free(m.Stage.Taken())
	}
	return err
}

// handle is perform for what an event besides a message has caused.
func (x *executor) handle(ops []clientcore.Op, err error) error {
	return x.perform(&x.current, ops, err)
}

// aside carries out operations while another one is in progress. The core gets no outcome of them:
// it waits for that of the operation in progress.
func (x *executor) aside(ops []clientcore.Op, err error) error {
	if err != nil {
		return err
	}
	_, outcome := x.all(&x.current, ops)
	return outcome.Err
}

// plainly carries out operations up to the first that fails or asks, and returns that one.
func (x *executor) plainly(m *message, ops []clientcore.Op) (last *clientcore.Op, outcome clientcore.Outcome) {
	for i := range ops {
		o := &ops[i]
		x.mayDie()
		if x.contexts.checking {
			x.contexts.know(x.core.Allocations())
		}
		how := &x.operations[o.Kind]
		if how.ask != nil {
			return o, how.ask(m, o)
		}
		if err := how.do(m, o); err != nil {
			return o, clientcore.Outcome{Err: err}
		}
	}
	return nil, clientcore.Outcome{}
}

// found tells the core of a fault, or returns an error if the client should be rebuilt instead.
func (x *executor) found(world uint64, err error) error {
	if gone := x.recovery.gone(err); gone != nil {
		return gone
	}
	return x.handle(x.core.Found(x.now(), world, err))
}

// mayDie is where a test may simulate the death of this process.
func (x *executor) mayDie() {
	if x.dies != nil && x.dies() {
		panic(errKilled)
	}
}
