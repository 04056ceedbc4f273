package soft

import (
	"testing"

	"muster/device"
	"muster/device/devicetest"
)

func testProfile() Profile {
	return Profile{Name: "test", Memory: 256 << 20, Speed: 1, Workers: 2}
}

func newDevice(t testing.TB, p Profile, o Options) *Device {
	t.Helper()
	d, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 2} {
		p := testProfile()
		p.Workers = workers
		t.Run(map[int]string{1: "one worker", 2: "two workers"}[workers], func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) device.Device { return newDevice(t, p, Options{}) }, devicetest.Options{
				Isolated:  true,
				Located:   true,
				Stoppable: true,
				Prints:    true,
				Cubin:     []byte("\x7fELF\x02\x01\x01\x33 and machine code"),
			})
		})
	}
}
