package vgpu

import (
	"fmt"
	"testing"
	"time"
)

// crowd is 1,000 clients on 16 devices with 64 slots.
func crowd(b *testing.B, policy Policy, need uint64) *Core {
	core, err := New(Config{Devices: gpus(16, 4), Policy: policy, MaxIdle: 10 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		core.Step(0, Attach{Client: ClientID(i), User: fmt.Sprint("user", i%20), Weight: 1 + i%3})
		core.Step(0, Want{Client: ClientID(i), Need: need, Estimate: time.Duration(i%50) * time.Millisecond, Pinned: AnyDevice})
	}
	return core
}

// spread is 60 clients on 15 devices, and an idle one which is so slow that nobody
// is moved there, though all have lost enough to be looked at.
func spread(b testing.TB, migrate bool) *Core {
	devices := append(gpus(15, 4), Device{Name: "idle", Speed: 0.1, Memory: 1000})
	core, err := New(Config{Devices: devices, MaxIdle: 10 * time.Millisecond, Migrate: migrate})
	if err != nil {
		b.Fatal(err)
	}
	for id := range ClientID(60) {
		core.Step(0, Attach{Client: id, User: fmt.Sprint("user", id%20), Weight: 1})
		core.Step(0, Want{Client: id, Need: 100, Pinned: DeviceID(id / 4)})
		core.Step(0, Ran{id, 1, time.Second})
	}
	for id := range ClientID(60) { // any of them might move
		core.clients[id].want.Pinned = AnyDevice
	}
	return core
}

// BenchmarkEvent is one event with 936 clients in the ready queue. "turnover"
// has a slot change hands (Released, Want); "tight" has slots but no memory
// free, so that every event looks at the whole queue. With "nobody waits" the
// queue is empty and a device idle: then it is looked for moves.
func BenchmarkEvent(b *testing.B) {
	for _, policy := range []Policy{FCFS, SJF, Credit} {
		b.Run(fmt.Sprint("report/", policy), func(b *testing.B) {
			core := crowd(b, policy, 100)
			for i := 0; b.Loop(); i++ {
				now := Time(i) * time.Microsecond
				if i%2 == 0 {
					core.Step(now, Busy{ClientID(i % 64)})
				} else {
					core.Step(now, Ran{ClientID(i % 64), 1, time.Microsecond})
				}
			}
		})
		b.Run(fmt.Sprint("turnover/", policy), func(b *testing.B) {
			core := crowd(b, policy, 100)
			bound := make([]ClientID, 0, 64)
			for _, v := range core.View().Clients {
				if v.State == Assigned {
					bound = append(bound, v.ID)
				}
			}
			for i := 0; b.Loop(); i++ {
				now := Time(i) * time.Microsecond
				id := bound[i%64]
				for _, e := range core.Step(now, Released{Client: id, Keeps: 0}) {
					if e.Kind == Grant {
						bound[i%64] = e.Client
					}
				}
				core.Step(now, Want{Client: id, Need: 100, Pinned: AnyDevice})
			}
		})
		b.Run(fmt.Sprint("tight/", policy), func(b *testing.B) {
			core := crowd(b, policy, 400)
			for i := 0; b.Loop(); i++ {
				core.Step(Time(i)*time.Microsecond, Busy{ClientID(i % 32)})
			}
		})
	}
	for _, migrate := range []bool{false, true} {
		name := map[bool]string{false: "off", true: "on"}[migrate]
		b.Run("nobody waits/report/migrate "+name, func(b *testing.B) {
			core := spread(b, migrate)
			for i := 0; b.Loop(); i++ {
				now := Time(i) * time.Microsecond
				if i%2 == 0 {
					core.Step(now, Busy{ClientID(i % 60)})
				} else {
					core.Step(now, Ran{ClientID(i % 60), 1, time.Microsecond})
				}
			}
		})
		b.Run("nobody waits/turnover/migrate "+name, func(b *testing.B) {
			core := spread(b, migrate)
			for i := 0; b.Loop(); i++ {
				now, id := Time(i)*time.Microsecond, ClientID(i%60)
				core.Step(now, Released{Client: id, Keeps: 0})
				core.Step(now, Want{Client: id, Need: 100, Pinned: DeviceID(i % 60 / 4)})
			}
		})
	}
	b.Run("view", func(b *testing.B) {
		core := crowd(b, FCFS, 100)
		for b.Loop() {
			core.View()
		}
	})
}

// Whoever says that it ran is looked at without taking memory for it.
func TestReportsAllocateNothing(t *testing.T) {
	for _, migrate := range []bool{false, true} {
		core := spread(t, migrate)
		if n := testing.AllocsPerRun(100, func() {
			core.Step(0, Ran{1, 1, time.Microsecond})
			core.Step(0, Busy{2})
		}); n != 0 {
			t.Errorf("migrate %v: %v allocations", migrate, n)
		}
	}
}
