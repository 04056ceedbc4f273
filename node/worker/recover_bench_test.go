package worker

import (
	"slices"
	"testing"
	"time"

	"muster/device/soft"
	"muster/wire"
)

// BenchmarkRecover says what it costs that a client can be rebuilt: each line is the
// time with a journal over the time without, of the same work, taken in turns. An
// operation is what the name says.
//
//	go test -run - -bench Recover ./node/worker
func BenchmarkRecover(b *testing.B) {
	const large = 16 * mib
	data := pattern(large, 1)
	works := []struct {
		name  string
		bytes int
		do    func(v *vectors)
	}{
		{"launch", 0, func(v *vectors) {
			for range 1000 {
				v.launch(0)
			}
			v.call(&wire.Synchronise{}, nil)
		}},
		{"launch-and-wait", 0, func(v *vectors) {
			for range 100 {
				v.launch(0)
				v.call(&wire.Synchronise{}, nil)
			}
		}},
		{"copy-in-4k", 4096, func(v *vectors) {
			for range 200 {
				v.in(v.a, data[:4096])
			}
			v.call(&wire.Synchronise{}, nil)
		}},
		{"copy-in-16m", large, func(v *vectors) {
			v.in(v.large, data)
			v.call(&wire.Synchronise{}, nil)
		}},
		{"copy-in-16m-and-launch", large, func(v *vectors) {
			v.in(v.large, data)
			v.launch(0)
			v.call(&wire.Synchronise{}, nil)
		}},
		{"copy-out-1m", mib, func(v *vectors) {
			for range 4 {
				v.out(v.large, mib)
			}
		}},
		{"step", 0, func(v *vectors) { v.round(1) }}, // two vectors in, a kernel, one out
	}
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			open := func(recovers bool) *vectors {
				c := newClient(b, options{recovers: recovers, devices: []soft.Profile{{Name: "test", Memory: 128 * mib, Speed: 1, Workers: 1}}})
				v := newVectors(c, 10_000)
				v.large = c.alloc(large)
				v.in(v.large, data)
				v.round(1)
				return v
			}
			with, without := open(true), open(false)
			var ratios []float64
			for b.Loop() {
				measure := func(v *vectors) time.Duration {
					start := time.Now()
					w.do(v)
					return time.Since(start)
				}
				if len(ratios)%2 == 0 {
					a := measure(without)
					ratios = append(ratios, float64(measure(with))/float64(a))
				} else {
					a := measure(with)
					ratios = append(ratios, float64(a)/float64(measure(without)))
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "times")
		})
	}
}
