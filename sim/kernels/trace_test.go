package kernels

import (
	"testing"
	"time"
)

func TestAppendSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", time.Second: "1", 1500 * time.Millisecond: "1.5", 1: "0.000000001", 10_050_000_000: "10.05", time.Hour + 20: "3600.00000002"} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%d ns are %q, want %q", d, got, want)
		}
	}
}
