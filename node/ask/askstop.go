package ask

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"muster/internal/whois"
	"muster/node/proc"
	"muster/wire/status"
)

// stopAskEvery is how often Stop looks whether the node has ended.
const stopAskEvery = 20 * time.Millisecond

// Stop asks the daemon at a socket to end (how is grace, now or handover), and waits until it
// no longer answers and its process has ended, so that the next daemon finds nothing of this
// one in its way.
func Stop(ctx context.Context, socket, how string) error {
	process := listenerOf(socket)
	var reply status.Stopping
	if err := Request(socket, StopRequest{"stop", how}, &reply, changeTime); err != nil {
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
	s, err := Status(socket)
	if errors.Is(err, ErrNoNode) {
		return false
	}
	return err != nil || s.Pid == pid // else another has come
}

// daemonProcess is the process that listens at a socket; the zero value if this process
// cannot see it, as from inside a container.
type daemonProcess struct {
	pid   int
	start uint64
}

// listenerOf asks the system for the listening process, and not the daemon, since the number
// that the daemon knows of itself may belong to another container.
func listenerOf(socket string) daemonProcess {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return daemonProcess{}
	}
	defer conn.Close()
	who, err := whois.Of(conn.(*net.UnixConn))
	if err != nil || int(who.Pid) == os.Getpid() {
		return daemonProcess{} // it cannot wait for itself
	}
	start, ok := proc.Start(int(who.Pid))
	if !ok {
		return daemonProcess{}
	}
	return daemonProcess{pid: int(who.Pid), start: start}
}

// isRunning says whether the process runs; false for one that cannot be seen.
func (p daemonProcess) isRunning() bool { return p.pid != 0 && proc.IsRunning(p.pid, p.start) }
