package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// DefaultState is the default folder in which a head keeps its records; "" if this user has none.
func DefaultState() string {
	if os.Getuid() == 0 {
		return "/var/lib/muster/head"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "muster", "head")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "muster", "head")
}

// RaiseFileLimit lets the head have as many connections as the system allows it.
func RaiseFileLimit(log *slog.Logger) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of open files cannot be raised", "error", err)
	}
	if limit.Max < 16384 {
		log.Warn("few files may be open, and each node needs one: raise the limit (ulimit -Hn, LimitNOFILE)", "limit", limit.Max)
	}
}
