package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/wire/status"
)

// Check is a part of the node that can be asked how it is.
type Check struct {
	Part string
	// Trouble says what is wrong with it; nil if nothing is.
	Trouble func() error
}

// freshTime is how old the findings about swap folder and workers may be: they are
// looked at no more often, however often the status is asked for.
const freshTime = 100 * time.Millisecond

// examination caches what was found of the parts that take some time to look at. Any
// handler may ask; mu also makes them wait for one examination instead of each making
// its own.
type examination struct {
	mu       sync.Mutex
	at       time.Time
	problems []status.Problem
}

// health says how the node is, and serves that and its metrics.
type health struct {
	common
	checks   []Check // beside its own
	socket   *door.Listener
	web      *webServer // nil if there is none
	keeper   *survival.Keeper
	staff    *staff
	quota    *quota
	pictures *pictures
	examined examination
}

// problems asks all parts of the node how they are.
func (h *health) problems() []status.Problem {
	list := []status.Problem{}
	add := func(part string, trouble error) {
		if trouble != nil {
			list = append(list, status.Problem{Part: part, What: trouble.Error()})
		}
	}
	var promised uint64
	var workers []servingWorker
	running := h.loop.Ask(func() {
		if h.loop.Draining() {
			add("node", refusal.ErrShuttingDown)
		}
		for i, v := range h.dispatcher.View().Devices {
			if v.State == vgpu.DeviceLost {
				add(fmt.Sprintf("device %d", i), errors.New("it is lost"))
			}
		}
		promised, workers = h.quota.promised(), h.servingWorkers()
		if trouble := h.keeper.Unwritten(); trouble != nil {
			add("state", fmt.Errorf("it cannot be written, so programs may not survive the daemon: %w", trouble))
		}
	})
	if !running {
		return []status.Problem{{Part: "node", What: refusal.ErrShuttingDown.Reason}}
	}
	add("socket", cannotAccept(h.socket))
	if h.web != nil {
		add("http", h.web.trouble())
	}
	for _, c := range h.checks {
		add(c.Part, c.Trouble())
	}
	add("workers", h.staff.pool.Trouble())
	return append(list, h.examined.problemsOf(h.loop.Clock(), h.cfg.Swap.Dir, promised, workers)...)
}

// problemsOf looks at the swap folder and at workers, unless that was just done.
func (e *examination) problemsOf(now time.Time, swap string, promised uint64, workers []servingWorker) []status.Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.at.IsZero() && now.Sub(e.at) < freshTime {
		return e.problems
	}
	e.at, e.problems = now, nil
	if swap != "" {
		if err := checkSwap(swap, promised); err != nil {
			e.problems = append(e.problems, status.Problem{Part: "swap", What: err.Error()})
		}
	}
	if silent := silentOf(workers); len(silent) > 0 {
		e.problems = append(e.problems, status.Problem{Part: "workers", What: fmt.Sprintf("%d do not answer: %s", len(silent), strings.Join(silent, ", "))})
	}
	return e.problems
}

// cannotAccept says why a listener accepts no connections; nil if it does.
func cannotAccept(l *door.Listener) error {
	if trouble := l.Trouble(); trouble != nil {
		return fmt.Errorf("no connection can be accepted: %w", trouble)
	}
	return nil
}

// leastRoom is what a file system must have left for anything to work at all.
const leastRoom = 16 << 20

// checkSwap says what is wrong with the folder of the swap area, into which promised
// more bytes may have to be written; nil if nothing is.
func checkSwap(dir string, promised uint64) error {
	f, err := os.CreateTemp(dir, "muster-health-*")
	if err != nil {
		return fmt.Errorf("no file can be made: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("no file can be removed: %w", err)
	}
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return fmt.Errorf("nothing can be written: %w", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fmt.Errorf("it cannot be looked at: %w", err)
	}
	if free, need := fs.Bavail*uint64(fs.Bsize), max(promised, leastRoom); free < need {
		return fmt.Errorf("%s has room for %d bytes, and %d may be needed: make room", dir, free, need)
	}
	return nil
}

// servingWorker is a worker that has a client.
type servingWorker struct {
	client vgpu.ClientID
	pid    int
	missed int // pings in a row that it has not answered
}

// servingWorkers lists the workers that have clients, in the order of the clients. Only
// the loop calls it.
func (h *health) servingWorkers() []servingWorker {
	var list []servingWorker
	for _, c := range h.clients {
		if c.worker != nil && !c.ending {
			list = append(list, servingWorker{c.id, c.worker.PID(), c.missed})
		}
	}
	slices.SortFunc(list, func(a, b servingWorker) int { return cmp.Compare(a.client, b.client) })
	return list
}

// silentOf names the workers that do not answer.
func silentOf(workers []servingWorker) []string {
	var silent []string
	for _, w := range workers {
		switch {
		case proc.IsStopped(w.pid):
			silent = append(silent, fmt.Sprintf("client %d's (process %d) is stopped", w.client, w.pid))
		case w.missed > 1:
			silent = append(silent, fmt.Sprintf("client %d's (process %d) has missed %d pings", w.client, w.pid, w.missed))
		}
	}
	return silent
}

// webServer serves metrics and health.
type webServer struct {
	server   *http.Server
	listener *door.Listener
	places   *door.Places
	ended    atomic.Pointer[error] // why the server has ended; nil while it runs
}

// How many connections the server for metrics and health has at a time.
const maxWeb, maxWebEach = 128, 32

// lastKey is the key, in a request's context, of whether its connection has the last
// descriptor.
type lastKey struct{}

// serveHTTP starts the server for metrics and health, if one is wanted.
func (h *health) serveHTTP() (*webServer, error) {
	if h.cfg.HTTP == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", h.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("the port for metrics and health (http, --http) cannot be opened: %w", door.PortTrouble(h.cfg.HTTP, err))
	}
	w := &webServer{listener: door.Listen(l.(*net.TCPListener), true), places: door.NewPlaces(maxWebEach, maxWeb)}
	w.listener.Notice = notice(h.log, "those who ask for metrics")
	w.server = &http.Server{
		Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, lastKey{}, c.(*door.Conn).Last)
		},
	}
	go func() {
		err := w.server.Serve(door.Bounded(w.listener, w.places))
		w.ended.Store(&err)
	}()
	h.log.Info("metrics and health are served", "address", "http://"+l.Addr().String())
	return w, nil
}

func (w *webServer) close() { w.server.Close() }

// trouble says why the server answers no requests; nil if it does.
func (w *webServer) trouble() error {
	if ended := w.ended.Load(); ended != nil {
		return fmt.Errorf("metrics are no longer served: %w", *ended)
	}
	return cannotAccept(w.listener)
}

// handler answers requests for metrics and health.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		problems := h.problems()
		var b bytes.Buffer
		for _, p := range problems {
			fmt.Fprintln(&b, p)
		}
		if len(problems) == 0 {
			b.WriteString("ok\n")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(healthStatus(problems))
		_, _ = w.Write(b.Bytes())
	})
	mux.HandleFunc("GET /healthz.json", func(w http.ResponseWriter, _ *http.Request) {
		problems := h.problems()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(healthStatus(problems))
		_ = json.NewEncoder(w).Encode(status.Health{Node: h.cfg.Name, Healthy: len(problems) == 0, Problems: problems})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		problems := h.problems()
		var b bytes.Buffer
		if !h.loop.Ask(func() { h.pictures.writeMetrics(&b, problems) }) {
			http.Error(w, refusal.ErrShuttingDown.Reason, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	})
	return shortly(mux)
}

// shortly closes a connection that has the last descriptor after its first answer.
func shortly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if last, _ := r.Context().Value(lastKey{}).(bool); last {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func healthStatus(problems []status.Problem) int {
	if len(problems) > 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}
