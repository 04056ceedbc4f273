package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"muster/wire/status"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"muster/internal/door"
)

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
func (d *daemon) serveHTTP() (*webServer, error) {
	if d.cfg.HTTP == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", d.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("the port for metrics and health (http, --http) cannot be opened: %w", door.PortTrouble(d.cfg.HTTP, err))
	}
	w := &webServer{listener: door.Listen(l.(*net.TCPListener), true), places: door.NewPlaces(maxWebEach, maxWeb)}
	w.listener.Notice = d.notice("those who ask for metrics")
	w.server = &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, lastKey{}, c.(*door.Conn).Last)
		},
	}
	go func() {
		err := w.server.Serve(door.Bounded(w.listener, w.places))
		w.ended.Store(&err)
	}()
	d.log.Info("metrics and health are served", "address", "http://"+l.Addr().String())
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
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		problems := d.problems()
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
		problems := d.problems()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(healthStatus(problems))
		_ = json.NewEncoder(w).Encode(status.Health{Node: d.cfg.Name, Healthy: len(problems) == 0, Problems: problems})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		problems := d.problems()
		var b bytes.Buffer
		if !d.ask(func() { d.writeMetrics(&b, problems) }) {
			http.Error(w, errShuttingDown.Reason, http.StatusServiceUnavailable)
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
