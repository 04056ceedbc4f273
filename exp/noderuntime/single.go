package noderuntime

import (
	"context"
	"sync"
	"time"

	"muster/device"
	"muster/wire/control"
)

// outcome is one measurement.
type outcome struct {
	seconds float64 // until the last program had its results
	late    float64 // how late the machine woke sleepers meanwhile, in seconds
	use
}

// onNode plays scripts at the same time on a node of its own. The clock starts
// when all are attached: how long processes take to start is not scaled.
func onNode(ctx context.Context, s setting, scripts []*script) (outcome, error) {
	var out outcome
	err := withNode(ctx, s, func(socket string) error {
		clients := make([]gpu, len(scripts))
		err := together(len(scripts), func(i int) error {
			a, err := attach(socket, scripts[i].name)
			if err != nil {
				return err
			}
			clients[i] = a
			return a.prepare(scripts[i].size, scripts[i].kernel)
		})
		if err != nil {
			return err
		}
		out, err = playAll(scripts, clients)
		return err
	})
	return out, err
}

// onBare plays scripts at the same time on devices of this process, which are
// given out in turn, as programs do that choose one themselves.
func onBare(devices []control.DeviceConfig, scripts []*script) (outcome, error) {
	opened := make([]device.Device, len(devices))
	for i, c := range devices {
		var err error
		if opened[i], err = openSoft(c); err != nil {
			return outcome{}, err
		}
	}
	contexts := make([]gpu, len(scripts))
	for i, s := range scripts {
		b, err := newBare(opened[i%len(opened)])
		if err != nil {
			return outcome{}, err
		}
		contexts[i] = b
		if err := b.prepare(s.size, s.kernel); err != nil {
			return outcome{}, err
		}
	}
	return playAll(scripts, contexts)
}

// playAll plays scripts at the same time, each where it was prepared.
func playAll(scripts []*script, on []gpu) (outcome, error) {
	var out outcome
	var mu sync.Mutex
	start := time.Now()
	err := together(len(scripts), func(i int) error {
		defer on[i].close()
		if err := scripts[i].play(on[i]); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		u, err := on[i].usage()
		mu.Lock()
		defer mu.Unlock()
		out.seconds = max(out.seconds, took)
		out.swaps += u.swaps
		out.preemptions += u.preemptions
		return err
	})
	return out, err
}
