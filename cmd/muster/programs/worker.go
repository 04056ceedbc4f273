package programs

import (
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/devices"
	"muster/node/worker"
)

// NewWorker is what the node daemon starts for each client.
func NewWorker() *cobra.Command {
	return &cobra.Command{
		Use:     "worker",
		Short:   "Serve one client of a node (started by muster node)",
		Long:    "Serve one client of a node. The node starts it, with their connection as descriptor 3; it is of no use to people.",
		Example: "  muster node --devices soft:memory=1G",
		Hidden:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			control := os.NewFile(3, "control")
			if info, err := control.Stat(); err != nil || info.Mode()&os.ModeSocket == 0 {
				return cli.UsageErrorf("only a node starts workers: use muster node")
			}
			log := slog.New(slog.NewTextHandler(ownStderr(c.ErrOrStderr()), &slog.HandlerOptions{Level: workerLevel()}))
			return worker.Main(control, devices.Open, log)
		},
	}
}

// ownStderr returns standard error by a descriptor of its own: NVIDIA's driver writes to
// the other one what is for programs (see device/cuda).
func ownStderr(stderr io.Writer) io.Writer {
	if stderr != os.Stderr {
		return stderr
	}
	fd, err := syscall.Dup(2)
	if err != nil {
		return stderr
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "log")
}

// workerLevel is the daemon's level, which workers inherit.
func workerLevel() slog.Level {
	level := slog.LevelWarn
	_ = level.UnmarshalText([]byte(os.Getenv(workerLevelVariable))) // else it stays
	return level
}

// workerLevelVariable tells workers what to log.
const workerLevelVariable = "MUSTER_WORKER_LOG_LEVEL"
