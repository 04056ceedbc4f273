package worker

import (
	"errors"
	"fmt"

	"muster/vmm"
	"muster/wire/control"
)

// Under NVIDIA's Multi-Process Service (MPS) a fault of one client ends the contexts of all clients
// on that GPU, and all of them see the same error. A worker that shares this fate does not report a
// fault to its program: it has its client rebuilt in a worker with contexts of its own. A fault
// that occurs again there is the client's own (node/fate).

// errShared says that a fault that another client may have caused has ended the client's contexts.
var errShared = errors.New("a fault that may be another client's ended what ran")

// errRenewed says that the daemon wants the client in another worker.
var errRenewed = errors.New("the client goes on in another worker")

// renew ends this worker if the client can be rebuilt in another one. No base is made first: this may be
// called in the middle of a message, when what the core has decided is not all done, and the base would
// lack it. The next worker repeats what came after the last base, as after any end.
func (w *worker) renew(m control.Renew) error {
	switch {
	case !w.keeper.Valid():
		w.log.Info("the client stays in its worker: it cannot be rebuilt for now", "reason", m.Reason)
		return nil
	case m.Device >= 0 && w.contexts.open[vmm.Device(m.Device)] == nil:
		return nil
	case m.Device >= 0:
		return fmt.Errorf("%w: %s", errShared, m.Reason)
	}
	return fmt.Errorf("%w: %s", errRenewed, m.Reason)
}
