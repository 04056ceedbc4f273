package noderuntime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node/worker"
	"muster/wire"
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
	open := func(c wire.DeviceConfig, lock *os.File) (device.Device, error) {
		turns, err := worker.NewTurns(lock)
		if err != nil {
			return nil, err
		}
		return soft.New(soft.Profile{Name: c.Name, Memory: c.Memory, Speed: c.Speed, CopyBandwidth: c.CopyBandwidth, Workers: c.Workers},
			soft.Options{Turns: turns, Clock: soft.SystemClock()})
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

func TestTry(t *testing.T) {
	c := &calibrator{scale: short, profile: short.profile(c2050), known: map[program]*script{}}
	var all []*script
	for _, p := range shortPrograms {
		start := time.Now()
		s, err := c.write(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		cal := time.Since(start)
		o, err := onBare([]wire.DeviceConfig{c.profile}, []*script{s})
		if err != nil {
			t.Fatal(err)
		}
		o1, err := onNode(context.Background(), setting{devices: short.devices(c2050), vgpus: 1}, []*script{s})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-5s units %4d want %v takes %v: bare %.1f ms, node %.1f ms; calibration %v", s.name, s.units, short.duration(p.gpu), s.takes, 1e3*o.seconds, 1e3*o1.seconds, cal)
		all = append(all, s)
	}
	for range 2 {
		bare, err := onBare([]wire.DeviceConfig{c.profile}, all[:8])
		t.Log(bare, err)
		for _, v := range []int{1, 2, 4, 8} {
			o, err := onNode(context.Background(), setting{devices: short.devices(c2050), vgpus: v}, all[:8])
			t.Log(v, o, err)
		}
	}
	m := &calibrator{scale: multi, profile: multi.profile(gtx480), known: map[program]*script{}}
	v, err := m.vectors(context.Background())
	t.Log(v, err)
	for _, how := range []scheme{batchScheme, twoWay, fourWay, preemptive, preemptiveTwoWay} {
		var jobs []parallel
		for range 4 {
			jobs = append(jobs, parallel{phases: []float64{.5, .25, .25, .25}, pattern: allToAll, iterations: 6})
		}
		o, err := parallelOnNode(context.Background(), how, v, jobs)
		t.Log(how.key, o, err)
	}
	for _, how := range []scheme{batchScheme, twoWay, fourWay, preemptive, preemptiveTwoWay} {
		var jobs []parallel
		for range 4 {
			jobs = append(jobs, parallel{phases: []float64{.5, .5, .5}, pattern: allToAll, iterations: 6})
		}
		o, err := parallelOnNode(context.Background(), how, v, jobs)
		t.Log(how.key, o, err)
	}
	l := &calibrator{scale: long, profile: long.profile(c2050), known: map[program]*script{}}
	for _, cpu := range []float64{0, 1, 2} {
		p := matmulLarge
		p.cpu = cpu
		s, err := l.write(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		var jobs []*script
		for range 36 {
			jobs = append(jobs, s)
		}
		for _, v := range []int{1, 4} {
			o, err := onNode(context.Background(), setting{devices: long.devices(c2050, c2050, c1060), vgpus: v}, jobs)
			t.Log(cpu, s.takes, v, o, err)
		}
	}
}
