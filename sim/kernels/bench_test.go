package kernels

import (
	"fmt"
	"testing"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/model/clusterfile"
	"muster/workload/phased"
)

// BenchmarkPaper is the paper's configuration: 24 nodes, 72 GPUs, 10,000 s.
func BenchmarkPaper(b *testing.B) {
	for _, load := range []string{"W3", "W4", "W5"} {
		for _, mapper := range []string{"st", "gr", "ag", "ar", "probe"} {
			b.Run(load+"/"+mapper, func(b *testing.B) { benchmark(b, 24, load, mapper, 10_000*time.Second) })
		}
	}
}

// BenchmarkNodes is W4 on more and more nodes, for less and less time.
func BenchmarkNodes(b *testing.B) {
	for _, nodes := range []int{24, 240, 2400, 10_000} {
		for _, mapper := range []string{"st", "gr", "probe"} {
			b.Run(fmt.Sprint("nodes=", nodes, "/", mapper), func(b *testing.B) {
				benchmark(b, nodes, "W4", mapper, 300_000*time.Second/time.Duration(nodes))
			})
		}
	}
}

func benchmark(b *testing.B, nodes int, load, mapper string, span time.Duration) {
	cluster := paperCluster(b, nodes)
	work, err := phased.Load(load, nodes)
	if err != nil {
		b.Fatal(err)
	}
	var done, events int64
	for b.Loop() {
		r, err := Run(b.Context(), Config{
			Cluster: cluster, Workload: work, Seed: 1, Span: span,
			Mapper: func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New(mapper, l) },
		})
		if err != nil {
			b.Fatal(err)
		}
		events += r.Events
		for i := range r.Apps {
			done += r.Apps[i].Done
		}
	}
	b.ReportMetric(float64(done)/float64(b.N), "kernels/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
}

func paperCluster(tb testing.TB, nodes int) *model.Cluster {
	c, err := clusterfile.Preset("gremm")
	if err != nil {
		tb.Fatal(err)
	}
	if c, err = c.Resize(nodes); err != nil {
		tb.Fatal(err)
	}
	return c
}
