package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"muster/slurm"
)

// openDoor serves the status at a socket that only this user and root may open.
func (d *Driver) openDoor() (func(), error) {
	if d.cfg.Socket == "" {
		return func() {}, nil
	}
	if conn, err := net.Dial("unix", d.cfg.Socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another driver answers on %s: end it first, or give another --socket", d.cfg.Socket)
	}
	os.Remove(d.cfg.Socket)
	l, err := net.Listen("unix", d.cfg.Socket)
	if err != nil {
		return nil, fmt.Errorf("the socket for the status: %w", err)
	}
	os.Chmod(d.cfg.Socket, 0o600)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(d.Status())
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(l)
	return func() { server.Close() }, nil
}

// AskStatus asks the driver at a socket for its status.
func AskStatus(ctx context.Context, socket string) (slurm.Status, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://driver/status", nil)
	if err != nil {
		return slurm.Status{}, err
	}
	answer, err := client.Do(r)
	if err != nil {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return slurm.Status{}, fmt.Errorf("no driver runs here, nothing is at %s: start it with muster slurm drive (or systemctl start muster-slurm), or name its --socket", socket)
		case errors.Is(err, syscall.ECONNREFUSED):
			return slurm.Status{}, fmt.Errorf("the driver of %s was killed, and jobs wait for the next: start it with muster slurm drive (or systemctl start muster-slurm)", socket)
		case errors.Is(err, os.ErrPermission):
			return slurm.Status{}, fmt.Errorf("only root and the driver's own user may ask it on %s; muster slurm job ID tells everybody of a job", socket)
		}
		return slurm.Status{}, fmt.Errorf("asking the driver on %s: %w", socket, err)
	}
	defer answer.Body.Close()
	var s slurm.Status
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// DefaultSocket is where a driver answers, and is asked, unless a path is given.
func DefaultSocket() string {
	if os.Geteuid() == 0 {
		return "/run/muster/slurm.sock"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "muster-slurm.sock")
	}
	return filepath.Join(os.TempDir(), "muster-slurm-"+strconv.Itoa(os.Getuid())+".sock")
}
