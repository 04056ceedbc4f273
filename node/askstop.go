package node

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"muster/wire/status"
)

// stopAskEvery is how often a node that is to end is looked at.
const stopAskEvery = 20 * time.Millisecond

// Stop asks the daemon at a socket to end, how being grace, now or handover, and waits
// until it does not answer any more and its process has ended: whoever starts the next
// one finds nothing of this one.
func Stop(ctx context.Context, socket, how string) error {
	process := listenerOf(socket)
	var reply status.Stopping
	if err := request(socket, stopRequest{"stop", how}, &reply, changeTime); err != nil {
		return err
	}
	for stillAnswers(socket, reply.Pid) || process.isRunning() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stopAskEvery):
		}
	}
	return nil
}

// stillAnswers says whether the daemon with a process number may still answer at a socket.
func stillAnswers(socket string, pid int) bool {
	s, err := Ask(socket)
	if errors.Is(err, ErrNoNode) {
		return false
	}
	return err != nil || s.Pid == pid // else another has come
}

// daemonProcess is the process that listens at a socket; the zero value if it cannot be seen,
// as from a container.
type daemonProcess struct {
	pid   int
	start uint64
}

// listenerOf asks the system, and not the daemon, whose numbers may be those of another
// container.
func listenerOf(socket string) daemonProcess {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return daemonProcess{}
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return daemonProcess{}
	}
	var p daemonProcess
	_ = raw.Control(func(fd uintptr) {
		if c, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			p.pid = int(c.Pid)
		}
	})
	if p.pid == os.Getpid() {
		return daemonProcess{} // it cannot wait for itself
	}
	start, ok := processStart(p.pid)
	if !ok {
		return daemonProcess{}
	}
	p.start = start
	return p
}

// isRunning says whether the process has not ended; false of one that cannot be seen.
func (p daemonProcess) isRunning() bool { return p.pid != 0 && isRunning(p.pid, p.start) }
