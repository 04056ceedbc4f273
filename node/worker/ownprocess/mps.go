package ownprocess

import (
	"os"
	"strconv"

	"muster/device"
	"muster/wire/control"
)

// UseMPS makes this process use MPS as the daemon says. The driver reads the environment when it is
// first used, so no device may be open yet.
//
// Kernels of a batch-class program have a lower priority than those of latency-class ones. Holding
// launches back (package pace) does not help against the kernel that waits behind the running one; the
// priority lets the other program's blocks go first as soon as blocks of the running one end.
func UseMPS(m *control.MPS, p *control.Pace) {
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
