package soft

import (
	"fmt"
	"os"
	"strings"
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

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The devices have one worker, then two, then three: work moves between
// unequal ones.
func TestConformance(t *testing.T) {
	made := 0
	open := func(t *testing.T) device.Device {
		p := testProfile()
		p.Workers = 1 + made%3
		made++
		return newDevice(t, p, Options{})
	}
	for range 2 { // so that most tests use two different devices
		devicetest.Run(t, open, devicetest.Options{
			Isolated:       true,
			Located:        true,
			Stoppable:      true,
			FixedVariables: true,
			ExactMemory:    true,
			Prints:         true,
			Cubin:          readFile(t, "testdata/cubin.fatbin"),
			Fatbin:         readFile(t, "testdata/basic.fatbin"),
		})
	}
}

// The count of resident blocks is that of a real GPU.
func TestOccupancyAsMeasured(t *testing.T) {
	rows := 0
	for line := range strings.Lines(string(readFile(t, "testdata/occupancy.txt"))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var registers, static, threads, dynamic uint64
		var want int
		if _, err := fmt.Sscan(line, &registers, &static, &threads, &dynamic, &want); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := residentBlocks(registers, static, threads, dynamic); got != want {
			t.Errorf("%d registers, %d+%d bytes, %d threads: %d blocks, want %d", registers, static, dynamic, threads, got, want)
		}
		rows++
	}
	if rows < 100 {
		t.Errorf("only %d rows", rows)
	}
}
