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

// Under NVIDIA's Multi-Process Service (MPS) a fault of one client ends the contexts of all clients
// on that GPU, and all of them see the same error. A worker that shares this fate does not report a
// fault to its program: it has its client rebuilt in a worker with contexts of its own. A fault
// that occurs again there is the client's own (node/fate).

// errShared says that a fault that another client may have caused has ended the client's contexts.
var errShared = errors.New("a fault that may be another client's ended what ran")

// errRenewed says that the daemon wants the client in another worker.
var errRenewed = errors.New("the client goes on in another worker")

// useMPS makes this process use MPS as the daemon says. The driver reads the environment when it is
// first used, so no device may be open yet.
//
// Kernels of a batch-class program have a lower priority than those of latency-class ones. Holding
// launches back (pacer) does not help against the kernel that waits behind the running one; the
// priority lets the other program's blocks go first as soon as blocks of the running one end.
func useMPS(m *control.MPS, p *control.Pace) {
	if m == nil {
		return
	}
	const priority, belowNormal = "CUDA_MPS_CLIENT_PRIORITY", "1"
	if m.Shared && p != nil && !p.Latency {
		_ = os.Setenv(priority, belowNormal)
	} else {
		_ = os.Unsetenv(priority)
	}
	_ = os.Setenv(device.MPSVariable, m.Pipe) // it fails only for invalid names
	const queues = "CUDA_DEVICE_MAX_CONNECTIONS"
	if m.Queues > 0 && os.Getenv(queues) == "" { // else the administrator has chosen
		_ = os.Setenv(queues, strconv.Itoa(m.Queues))
	}
	const share = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	if m.Shared && m.Share > 0 {
		_ = os.Setenv(share, strconv.Itoa(m.Share))
	} else {
		_ = os.Unsetenv(share)
	}
}

// sharesFate says whether a fault of another client can end this client's contexts.
func (w *worker) sharesFate() bool { return w.serve.MPS != nil && w.serve.MPS.Shared }

// unserved turns an error of opening a context that MPS may have caused into a fault, so that the
// client is rebuilt in a worker without MPS.
func (w *worker) unserved(err error) error {
	var known *device.Fault
	if !w.sharesFate() || errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &known) {
		return err
	}
	return &device.Fault{Kind: device.Unspecified, Detail: err.Error()}
}

// renew ends this worker if the client can be rebuilt in another one. No base is made first: this may be
// called in the middle of a message, when what the core has decided is not all done, and the base would
// lack it. The next worker repeats what came after the last base, as after any end.
func (w *worker) renew(m control.Renew) error {
	switch {
	case !w.keeper.Valid():
		w.log.Info("the client stays in its worker: it cannot be rebuilt for now", "reason", m.Reason)
		return nil
	case m.Device >= 0 && w.gpus[vmm.Device(m.Device)] == nil:
		return nil
	case m.Device >= 0:
		return fmt.Errorf("%w: %s", errShared, m.Reason)
	}
	return fmt.Errorf("%w: %s", errRenewed, m.Reason)
}
