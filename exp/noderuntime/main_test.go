package noderuntime

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/node/worker"
	"muster/wire/control"
)

// The tests' worker is this very binary.
func TestMain(m *testing.M) {
	if os.Getenv("MUSTER_TEST_PROCESS") == "worker" {
		if err := testWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	workerCommand = func() ([]string, error) {
		return []string{"/usr/bin/env", "MUSTER_TEST_PROCESS=worker", os.Args[0]}, nil
	}
	os.Exit(m.Run())
}

func testWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		turns, err := worker.NewTurns(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers},
			soft.Options{Turns: turns, Clock: soft.SystemClock()})
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}
