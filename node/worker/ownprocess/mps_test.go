package ownprocess

import (
	"os"
	"testing"

	"muster/device"
	"muster/wire/control"
)

// What the driver reads in the environment follows what the daemon says, and nothing of the
// daemon's own stays.
func TestEnvironmentUnderMPS(t *testing.T) {
	const share, priority, queues = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_DEVICE_MAX_CONNECTIONS"
	latency, batch := &control.Pace{Latency: true}, &control.Pace{}
	for _, one := range []struct {
		name            string
		mps             *control.MPS
		pace            *control.Pace
		share, priority string
		queues          string
	}{
		{"without MPS", nil, batch, "77", "0", ""},
		{"where there is no service", &control.MPS{Pipe: "/p", Share: 25}, batch, "", "", ""},
		{"batch", &control.MPS{Pipe: "/p", Shared: true}, batch, "", "1", ""},
		{"batch with a share", &control.MPS{Pipe: "/p", Shared: true, Share: 25, Queues: 4}, batch, "25", "1", "4"},
		{"latency", &control.MPS{Pipe: "/p", Shared: true, Queues: 8}, latency, "", "", "8"},
		{"no classes", &control.MPS{Pipe: "/p", Shared: true}, nil, "", "", ""},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Setenv(device.MPSVariable, "")
			t.Setenv(share, "77")
			t.Setenv(priority, "0")
			for given, want := range map[string]string{"3": "3", "": one.queues} {
				t.Setenv(queues, given)
				UseMPS(one.mps, one.pace)
				if got := os.Getenv(queues); got != want {
					t.Errorf("%s was %q and is %q, want %q", queues, given, got, want)
				}
			}
			if got := os.Getenv(share); got != one.share {
				t.Errorf("%s is %q, want %q", share, got, one.share)
			}
			if got := os.Getenv(priority); got != one.priority {
				t.Errorf("%s is %q, want %q", priority, got, one.priority)
			}
			if got := os.Getenv(device.MPSVariable); one.mps != nil && got != one.mps.Pipe {
				t.Errorf("the service is looked for in %q", got)
			}
		})
	}
}
