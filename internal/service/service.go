// Package service has what muster node and muster head share as daemons that people and systemd
// start: their log, and what signals mean to them. It knows nothing of what the two do. Of Muster's
// other processes muster slurm drive logs as they do, and ends at the first signal; workers and tasks are
// started by these daemons.
package service

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"muster/internal/misuse"
	"muster/internal/screen"
)

// Log says how a daemon logs.
type Log struct {
	// Level is debug, info, warn or error.
	Level string
	// Text and JSON choose the form. Without either the log is text on a terminal, and JSON
	// elsewhere.
	Text, JSON bool
}

// Logger makes the log.
func (l Log) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, misuse.Errorf("--log-level %s: use debug, info, warn or error", l.Level)
	}
	// JSON would have durations as numbers without a unit.
	readable := func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.String(a.Key, a.Value.Duration().String())
		}
		return a
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if l.Text || screen.IsTerminal(w) && !l.JSON {
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return slog.New(slog.NewJSONHandler(w, options)), nil
}

// Signals is what a daemon was told by signals.
type Signals struct {
	// Kill is closed when the daemon is to end at once, Handover when it is to leave what it has to
	// its successor.
	Kill, Handover <-chan struct{}
	// Reload has a value when the configuration is to be read again.
	Reload <-chan struct{}
}

// Listen calls stop at the first SIGTERM, which ends the daemon gracefully, and closes Kill at any
// further signal to end. From when it returns no signal ends the process unheard, which would leave
// sockets behind. SIGUSR2 closes Handover. SIGHUP has the configuration read again, several in a row
// once; if the terminal that the daemon logs to was closed, it ends the daemon.
func Listen(stop func(), log io.Writer) Signals {
	return listen(stop, terminalGone(log))
}

func listen(stop func(), hungUp func() bool) Signals {
	kill, handover, reload := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR2)
	go func() {
		<-leave
		close(handover)
	}()
	signals, hangups := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for s := range hangups {
			if hungUp() {
				signals <- s
				return
			}
			select {
			case reload <- struct{}{}:
			default:
			}
		}
	}()
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		if <-signals == syscall.SIGTERM {
			stop()
			<-signals
		}
		close(kill)
	}()
	return Signals{kill, handover, reload}
}

// terminalGone returns a function that says whether the terminal that the daemon writes to was
// closed; never if it does not write to one.
func terminalGone(w io.Writer) func() bool {
	f, ok := w.(*os.File)
	answers := func() bool {
		_, _, err := screen.Size(f)
		return err == nil
	}
	had := ok && answers()
	return func() bool { return had && !answers() }
}
