package worker

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"muster/device"
	"muster/vmm"
	"muster/wire/control"
)

// Under NVIDIA's Multi-Process Service (MPS) a fault of one client ends the contexts of all
// clients on that GPU, and all read the same error. A worker that shares that fate does not
// tell its program of a fault: it has its client rebuilt in a worker with contexts of its own,
// where what faults again is the client's own doing (node/fate).

// errShared says that a fault which may be another client's ended the client's contexts.
var errShared = errors.New("a fault that may be another client's ended what ran")

// errRenewed says that the daemon wants another worker for the client.
var errRenewed = errors.New("the client goes on in another worker")

// useMPS has this process use the service as the daemon says. The driver's library reads the
// environment when it is first used.
func useMPS(m *control.MPS) {
	if m == nil {
		return
	}
	_ = os.Setenv(device.MPSVariable, m.Pipe) // it fails for names only that are none
	const share = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	if m.Shared && m.Share > 0 {
		_ = os.Setenv(share, strconv.Itoa(m.Share))
	} else {
		_ = os.Unsetenv(share)
	}
}

// sharesFate says whether a fault of another client may end the client's contexts.
func (w *worker) sharesFate() bool { return w.serve.MPS != nil && w.serve.MPS.Shared }

// unserved is why a context could not be opened. Where the service may be to blame that is a
// fault, so that the client is rebuilt in a worker that does without it.
func (w *worker) unserved(err error) error {
	var known *device.Fault
	if !w.sharesFate() || errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &known) {
		return err
	}
	return &device.Fault{Kind: device.Unspecified, Detail: err.Error()}
}

// renew ends this worker if the client can be rebuilt in another one.
func (w *worker) renew(m control.Renew) error {
	switch {
	case !w.canRebuild():
		w.log.Info("the client stays in its worker: it cannot be rebuilt for now", "reason", m.Reason)
		return nil
	case m.Device >= 0 && w.gpus[vmm.Device(m.Device)] == nil:
		return nil
	case m.Device >= 0:
		return fmt.Errorf("%w: %s", errShared, m.Reason)
	case w.replay == nil && w.core.CanFold(): // so that nothing is run again
		if err := w.fold(); err != nil {
			return err
		}
	}
	if !w.canRebuild() { // the base did not fit
		return nil
	}
	return fmt.Errorf("%w: %s", errRenewed, m.Reason)
}
