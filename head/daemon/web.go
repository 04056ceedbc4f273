package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"muster/head"
	"muster/internal/door"
	"muster/wire/api"
	"muster/wire/status"
	"muster/wire/trust"
)

// metrics are the counters for GET /metrics.
type metrics struct {
	requests, refusedRequests, refusedConnections atomic.Uint64
	commits, records, bytes, commitNanos          atomic.Uint64
}

func (m *metrics) commit(records, bytes int, took time.Duration) {
	m.commits.Add(1)
	m.records.Add(uint64(records))
	m.bytes.Add(uint64(bytes))
	m.commitNanos.Add(uint64(max(0, took)))
}

// webServer serves metrics and health. The methods of a nil webServer do nothing.
type webServer struct {
	server   *http.Server
	listener net.Listener
}

// How many connections the server for metrics and health may have at a time, in all and of one
// address.
const maxWeb, maxWebEach = 128, 32

func (o *doors) openWeb() error {
	if o.cfg.HTTP == "" {
		return nil
	}
	l, err := o.listen("tcp", o.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("the port for metrics and health (--http): %w", door.PortTrouble(o.cfg.HTTP, err))
	}
	o.addresses.HTTP = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", o.serveHealth)
	mux.HandleFunc("GET /healthz.json", o.serveHealthJSON)
	mux.HandleFunc("GET /metrics", o.serveMetrics)
	o.web = &webServer{
		&http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader},
		door.Bounded(door.Listen(l.(*net.TCPListener), false), door.NewPlaces(maxWebEach, maxWeb)),
	}
	return nil
}

func (w *webServer) serve() {
	if w != nil {
		go func() { _ = w.server.Serve(w.listener) }()
	}
}

func (w *webServer) close() {
	if w != nil {
		_ = w.server.Close()
		_ = w.listener.Close()
	}
}

// problems are what an administrator should attend to.
func (d *daemon) problems() (all []string) {
	for _, l := range d.doors.listeners {
		if err := l.Trouble(); err != nil {
			all = append(all, fmt.Sprintf("no connection can be accepted at %s: %v", l.Addr(), err))
		}
	}
	if broken := trust.ListTrouble(d.TLS); broken != nil {
		all = append(all, fmt.Sprintf("nobody who uses TLS is let in: %v", broken))
	}
	all = append(all, d.inForce.Load().script.problems()...)
	if altered := d.altered.Load(); altered != nil {
		all = append(all, *altered)
	}
	if d.peers != nil && d.peers.node.Leader() == "" {
		all = append(all, "no head leads: if it lasts, a majority of the heads is away")
	}
	select {
	case <-d.dead:
		all = append(all, d.reason.Error())
	default:
	}
	return all
}

func (d *daemon) serveHealth(w http.ResponseWriter, _ *http.Request) {
	problems := d.problems()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
}

func (d *daemon) serveHealthJSON(w http.ResponseWriter, _ *http.Request) {
	h := status.Health{Node: d.cfg.Core.Cluster, Healthy: true}
	code := http.StatusOK
	for _, p := range d.problems() {
		h.Healthy, code = false, http.StatusServiceUnavailable
		h.Problems = append(h.Problems, status.Problem{Part: "head", What: p})
	}
	sendJSON(w, code, h)
}

func (d *daemon) serveMetrics(w http.ResponseWriter, r *http.Request) {
	var info api.Cluster
	if d.follows() {
		// Whoever leads tells of the cluster.
	} else if err := d.look(r.Context(), "metrics", func(core *head.Core) { info = core.Info(d.now()) }); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	d.writeMetrics(w, info)
}

// writeMetrics writes the text format that Prometheus reads.
func (d *daemon) writeMetrics(w io.Writer, info api.Cluster) {
	m, leads := &d.metrics, 1.0
	if d.follows() {
		leads = 0
	}
	for _, v := range []struct {
		name, kind, help string
		value            float64
	}{
		{"muster_head_leads", "gauge", "1 if this head leads, or is alone; 0 if another one leads.", leads},
		{"muster_head_problems", "gauge", "What is wrong with the head, as /healthz lists it.", float64(len(d.problems()))},
		{"muster_head_nodes", "gauge", "Nodes that the head knows.", float64(info.Nodes)},
		{"muster_head_agents", "gauge", "Agents that are connected.", float64(d.sessions.server.Count())},
		{"muster_head_jobs_pending", "gauge", "Jobs that wait.", float64(info.Pending)},
		{"muster_head_jobs_running", "gauge", "Jobs that run.", float64(info.Running)},
		{"muster_head_gpus_busy", "gauge", "GPUs in use, in sum, as the connected nodes report.", info.Busy},
		{"muster_head_programs_waiting", "gauge", "Programs that wait for a GPU of their node.", float64(info.Waiting)},
		{"muster_head_listeners", "gauge", "Connections that hear of changes.", float64(d.listeners.count())},
		{"muster_head_connections_users", "gauge", "Connections of users.", float64(d.doors.users.Taken())},
		{"muster_head_connections_nodes", "gauge", "Connections of nodes.", float64(d.doors.nodes.Taken())},
		{"muster_head_connections_unknown", "gauge", "Connections that have not said whose they are.", float64(d.doors.unknown.Taken())},
		{"muster_head_queue", "gauge", "Events that wait for the core.", float64(d.queue.waiting())},
		{"muster_head_store_bytes", "gauge", "Size of the file on disk.", float64(d.store.Size())},
		{"muster_head_requests_total", "counter", "Requests that came.", float64(m.requests.Load())},
		{"muster_head_requests_refused_total", "counter", "Requests that were refused.", float64(m.refusedRequests.Load())},
		{"muster_head_connections_refused_total", "counter", "Connections that were refused.", float64(m.refusedConnections.Load())},
		{"muster_head_commits_total", "counter", "Transactions that were written to disk.", float64(m.commits.Load())},
		{"muster_head_records_total", "counter", "Records that were written to disk.", float64(m.records.Load())},
		{"muster_head_written_bytes_total", "counter", "Bytes of these records.", float64(m.bytes.Load())},
		{"muster_head_commit_seconds_total", "counter", "Time that transactions took.", float64(m.commitNanos.Load()) / 1e9},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", v.name, v.help, v.name, v.kind, v.name, v.value)
	}
	status.WriteBuild(w)
}
