package worker

import (
	"errors"

	"muster/node/clientcore"
	"muster/node/worker/keeper"
)

// message is a message of the client on whose behalf operations are performed.
type message = keeper.Message

// perform carries out the operations that the core decided on, on behalf of a message: the one that it
// was given last, if an event caused them. If one fails, or is a question, it hands the outcome to the
// core, which may decide on more; it returns when the core wants nothing more. An error ends the client.
func (w *worker) perform(m *message, ops []clientcore.Op, err error) error {
	for err == nil && len(ops) > 0 {
		last, outcome := w.doAll(m, ops)
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
	if m.Stage.IsOpen() && !w.core.Waits() { // else the core will handle the message again
		w.staging.Free(m.Stage.Taken())
	}
	return err
}

// handle is perform for what an event besides a message has caused.
func (w *worker) handle(ops []clientcore.Op, err error) error {
	return w.perform(&w.current, ops, err)
}

// aside carries out operations while another one is in progress. The core gets no outcome of them:
// it waits for that of the operation in progress.
func (w *worker) aside(ops []clientcore.Op, err error) error {
	if err != nil {
		return err
	}
	_, outcome := w.doAll(&w.current, ops)
	return outcome.Err
}

// doAll carries out operations up to the first that fails or asks, and returns that one.
func (w *worker) doAll(m *message, ops []clientcore.Op) (last *clientcore.Op, outcome clientcore.Outcome) {
	for i := range ops {
		o := &ops[i]
		if w.replay != nil && w.replay.drops(o) {
			continue
		}
		w.mayDie()
		if w.contexts.checking {
			w.contexts.know(w.core.Allocations())
		}
		how := &operations[o.Kind]
		if how.ask != nil {
			return o, how.ask(w, m, o)
		}
		do := how.do
		if how.again != nil && w.replay.isSilent() {
			do = how.again
		}
		if err := do(w, m, o); err != nil {
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
