package node

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"muster/node/vgpu"
	"muster/wire/status"
)

// web serves metrics and health.
func (d *daemon) web() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		draining := true
		if !d.ask(func() { draining = d.draining }) || draining {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if !d.ask(func() { d.writeMetrics(&b) }) {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	})
	return mux
}

// writeMetrics writes the text format that Prometheus reads.
func (d *daemon) writeMetrics(w io.Writer) {
	view, total := d.core.View(), d.past
	for _, c := range d.clients {
		total.add(c.counters)
	}
	used := view.Total()
	m := status.Metrics{
		Node: d.pictureOf(view), Clients: total.clients + uint64(len(d.clients)), Refused: d.refused,
		Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds(), Grants: total.grants, Denials: total.denials, Faults: total.failures,
		Swaps: total.swaps, SwapIn: total.swapIn, SwapOut: total.swapOut, CopiedIn: total.copiedIn, CopiedOut: total.copiedOut,
		Preemptions: map[string]uint64{}, Waits: d.waits,
	}
	for state := vgpu.Unqueued; state <= vgpu.Failed; state++ {
		m.States = append(m.States, state.String())
	}
	for _, why := range []vgpu.Reason{vgpu.ForCredit, vgpu.ForIdle, vgpu.ForMemory, vgpu.ForSync} {
		m.Preemptions[string(why)] = d.preempted[why]
	}
	m.WriteText(w)
}
