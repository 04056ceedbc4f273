package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/device"
	"muster/device/fault"
	"muster/internal/need"
	"muster/node/fate"
	"muster/node/inventory"
	"muster/node/loop"
	"muster/node/mps"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/node/worker"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// fatedWorker is a worker whose device lets all contexts fault that use MPS when one does.
func fatedWorker() error {
	open := func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		d, err := openSoft(c)
		if err != nil {
			return nil, err
		}
		rules, err := fault.Parse(os.Getenv("MUSTER_TEST_RULES"))
		return fault.Wrap(d, rules, time.Sleep), err
	}
	return worker.Main(os.NewFile(3, "control"), open, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// controlProgram stands for NVIDIA's: it is there until somebody says quit.
const controlProgram = `#!/bin/sh
p=$CUDA_MPS_PIPE_DIRECTORY
[ -n "$MUSTER_TEST_MPS_FAILS" ] && { echo "no GPU can be shared here"; exit 1; }
if [ "$1" = -f ]; then
	echo $$ >"$p/nvidia-cuda-mps-control.pid"
	mkfifo "$p/control"
	while read line <"$p/control"; do
		[ "$line" = quit ] && { rm -f "$p/control"; exit 0; }
	done
else
	cat >"$p/control"
fi
`

// fakeMPS puts a control program where programs are looked for.
func fakeMPS(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, mps.Program), []byte(controlProgram), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(device.MPSVariable, "")
}

// newFated is a house whose node has MPS, on a device where faults are shared.
func newFated(t *testing.T, rules ...string) *house {
	t.Helper()
	fakeMPS(t)
	h := newHouse(t)
	dir, err := os.MkdirTemp("", "fated") // the sockets of MPS want short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mps.KillLeft(filepath.Join(dir, "state", mps.Folder)) // of a node that was killed with the test
		os.RemoveAll(dir)
	})
	rules = append(rules, "any:shared="+filepath.Join(dir, "fate")+":fail=illegal-address")
	h.cfg.State = filepath.Join(dir, "state")
	h.cfg.Recover, h.cfg.MPS, h.cfg.VGPUs = true, settings.MPSOn, 8
	h.worker, h.environment = "fated worker", []string{"MUSTER_TEST_RULES=" + strings.Join(rules, ",")}
	return h
}

// fault launches a kernel that reads where nothing is.
func (a *accumulator) fault() error {
	params := binary.LittleEndian.AppendUint64(nil, 8)
	params = binary.LittleEndian.AppendUint64(params, 8)
	params = binary.LittleEndian.AppendUint64(params, a.scratch)
	params = binary.LittleEndian.AppendUint32(params, uint32(a.n))
	return a.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: params})
}

// told waits for all and wants to hear of an illegal address.
func (a *accumulator) told() error {
	result, err := a.Call(&wire.Synchronise{}, nil)
	if err != nil || result != 700 {
		return fmt.Errorf("told %d, %w", result, err)
	}
	return nil
}

// more adds for a while.
func (a *accumulator) more(rounds int) error {
	for range rounds {
		if err := a.round(); err != nil {
			return err
		}
	}
	return nil
}

// awaitFate waits until a client shares what it should.
func (h *house) awaitFate(id uint64, want fate.State) {
	h.Helper()
	eventually(h.T, fmt.Sprintf("client %d is %s", id, want), func() bool { return h.client(id).MPS == string(want) })
}

// One program faults, and the three that share its GPU are not told and come to the right
// results: also when two fault, when the node is killed in between, and when workers are.
func TestFaultsAreNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		guilty int
		meddle func(h *house)
	}{
		"one":                 {1, func(*house) {}},
		"two":                 {2, func(*house) {}},
		"the node is killed":  {1, func(h *house) { h.restart() }},
		"workers are killed":  {2, killWorkers},
		"the node hands over": {1, func(h *house) { h.handOver() }},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "one" {
				t.Skip("takes a second or more")
			}
			h := newFated(t)
			h.start()
			var all []*accumulator
			for range 4 {
				a := newAccumulator(t, h.connect(), 5000)
				if err := errors.Join(a.more(3), a.check()); err != nil {
					t.Fatal(err)
				}
				all = append(all, a)
			}
			for id := range uint64(4) {
				h.awaitFate(id+1, fate.Shared)
			}
			guilty, innocent := all[:c.guilty], all[c.guilty:]
			for _, a := range innocent {
				if err := a.more(20); err != nil {
					t.Fatal(err)
				}
			}
			for _, a := range guilty {
				if err := errors.Join(a.more(2), a.fault()); err != nil {
					t.Fatal(err)
				}
			}
			c.meddle(h)
			for i, a := range guilty {
				within(t, fmt.Sprintf("the guilty %d is told", i), a.told)
			}
			for i, a := range innocent {
				within(t, fmt.Sprintf("the innocent %d knows of nothing", i), func() error { return errors.Join(a.more(5), a.check()) })
			}
			if faults := h.mpsNow().Faults; name == "one" && faults != 1 {
				t.Errorf("%d faults were shared", faults)
			}
			for i := range innocent {
				if s := h.client(uint64(c.guilty+i) + 1); s.Rebuilds == 0 {
					t.Errorf("nothing happened to an innocent: %+v", s)
				}
			}
			for i := range c.guilty {
				if s := h.client(uint64(i) + 1); s.MPS == string(fate.Shared) {
					t.Errorf("the guilty shares again: %+v", s)
				}
			}
			for i := range innocent {
				h.awaitFate(uint64(c.guilty+i)+1, fate.Shared)
			}
			for _, a := range innocent {
				if err := errors.Join(a.more(5), a.check()); err != nil {
					t.Error("after it shares again:", err)
				}
			}
		})
	}
}

// killWorkers kills all workers that there are.
func killWorkers(h *house) {
	for _, c := range h.status().Clients {
		if c.Worker != 0 {
			_ = syscall.Kill(c.Worker, syscall.SIGKILL)
		}
	}
}

// handOver starts the next daemon in the place of one that hands over.
func (h *house) handOver() {
	h.Helper()
	if err := h.daemon.Process.Signal(syscall.SIGUSR2); err != nil {
		h.Fatal(err)
	}
	_ = h.daemon.Wait()
	h.start()
}

// A program that waits for ever keeps nobody from going on after a fault.
func TestFaultBesideEndlessKernel(t *testing.T) {
	h := newFated(t, "launch:take="+filepath.Join(t.TempDir(), "slow")+":delay=1h")
	h.start()
	slow := newAccumulator(t, h.connect(), 1000)
	guilty, innocent := newAccumulator(t, h.connect(), 1000), newAccumulator(t, h.connect(), 1000)
	for _, a := range []*accumulator{slow, guilty, innocent} {
		if err := errors.Join(a.more(3), a.check()); err != nil {
			t.Fatal(err)
		}
	}
	_, file, _ := strings.Cut(h.environment[0], "take=")
	file, _, _ = strings.Cut(file, ":")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := slow.round(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its kernel runs", func() bool { _, err := os.Stat(file); return err != nil })
	if err := guilty.fault(); err != nil {
		t.Fatal(err)
	}
	within(t, "the guilty is told", guilty.told)
	within(t, "the innocent goes on", func() error { return errors.Join(innocent.more(5), innocent.check()) })
}

// A client that cannot be rebuilt is told of the fault, whoever caused it.
func TestFaultWithoutRecovery(t *testing.T) {
	h := newFated(t)
	h.cfg.Recover = false
	h.start()
	guilty, other := newAccumulator(t, h.connect(), 1000), newAccumulator(t, h.connect(), 1000)
	for _, a := range []*accumulator{guilty, other} {
		if err := errors.Join(a.more(3), a.check()); err != nil {
			t.Fatal(err)
		}
	}
	if err := guilty.fault(); err != nil {
		t.Fatal(err)
	}
	within(t, "the guilty is told", guilty.told)
	within(t, "so is the other", func() error { _ = other.round(); return other.told() })
}

// someFaults are those of a daemon with a clock.
func someFaults(clock func() time.Time) *faults {
	c := common{log: slog.New(slog.DiscardHandler), loop: loop.New(clock), settings: new(settings.Live), clients: map[vgpu.ClientID]*client{}}
	c.settings.Store(&settings.Config{})
	s := &staff{common: c, terms: &terms{}, sharing: mps.At("").Share(""), precedence: &precedence{}}
	return &faults{common: c, sharing: s.sharing, spares: s.newSpares(c, "")}
}

// A program is told of a fault under MPS: spares that share it have broken contexts, and end.
func TestAFaultThatIsToldEndsSpares(t *testing.T) {
	f := someFaults(time.Now)
	f.spares.Tend(1, false, &inventory.Inventory{})
	rests, _ := f.spares.Next(1, &inventory.Inventory{Entries: []inventory.Device{{Here: true}}})
	f.sharing.Adopt(0, 1, fate.Shared)
	f.faultTold(&client{id: 1}, 0)
	if looks, _ := f.spares.Next(1, &inventory.Inventory{Entries: []inventory.Device{{Here: true}}}); looks >= rests {
		t.Error("spares are not looked after")
	}
}

// mpsNow is what the node says of MPS.
func (h *house) mpsNow() status.MPS {
	h.Helper()
	m := h.status().MPS
	if m == nil {
		h.Fatal("the node says nothing of MPS")
	}
	return *m
}

// The control daemon is there while the node is, outlives one that is killed, is found by the
// next, and is started again when it ends.
func TestControlDaemon(t *testing.T) {
	h := newFated(t)
	h.start()
	first := h.mpsNow()
	if !first.Up || first.Site || first.Pid == 0 || first.Folder != filepath.Join(h.cfg.State, "mps/pipe") {
		t.Fatalf("%+v", first)
	}
	if info, err := os.Stat(first.Folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info, err)
	}
	h.restart()
	if now := h.mpsNow(); now.Pid != first.Pid {
		t.Errorf("the next node has another: %+v", now)
	}
	h.handOver()
	if now := h.mpsNow(); now.Pid != first.Pid {
		t.Errorf("the node after the next has another: %+v", now)
	}
	if err := syscall.Kill(first.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is started again", func() bool { m := h.mpsNow(); return m.Up && m.Pid != first.Pid && m.Restarts == 1 })
	last := h.mpsNow().Pid
	a := newAccumulator(t, h.connect(), 1000)
	if err := errors.Join(a.more(3), a.check()); err != nil {
		t.Error(err)
	}
	h.awaitFate(1, fate.Shared)
	a.leave()
	if err := h.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = h.daemon.Wait()
	if _, there := proc.Start(last); there {
		t.Error("it outlives a node that has ended")
	}
	if _, err := os.Stat(h.cfg.State); err == nil {
		t.Error("its folder is there still")
	}
}

// A client that was told of a fault, and had nothing on that device, sees another one later: the
// others hear of that, too.
func TestLaterFaultsAreTold(t *testing.T) {
	now := time.Now()
	f := someFaults(func() time.Time { return now })
	for id := range vgpu.ClientID(4) {
		f.clients[id] = &client{id: id, worker: workers.Fake(0, 0)}
		f.sharing.Adopt(0, fate.Client(id), fate.Shared)
	}
	last := f.clients[3].worker
	f.sharedFault(f.clients[0], 0, "a fault")
	f.sharedFault(f.clients[1], 0, "the same")
	if n := len(last.Posted()); n != 1 {
		t.Errorf("a fault that two saw was told %d times", n)
	}
	now = now.Add(time.Hour)
	f.sharedFault(f.clients[2], 1, "another")
	if n := len(last.Posted()); n != 1 {
		t.Errorf("two faults were told %d times", n)
	}
}

// A service that the site runs is used, and left alone.
func TestSitesMPS(t *testing.T) {
	fakeMPS(t)
	site := t.TempDir()
	if err := os.WriteFile(filepath.Join(site, mps.Program+".pid"), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(device.MPSVariable, site)
	cfg := testConfig()
	cfg.MPS, cfg.OrphanGrace = settings.MPSAuto, 0
	f := run(t, cfg)
	if m := statusOf(t, f).MPS; m == nil || !m.Up || !m.Site || m.Folder != site {
		t.Errorf("%+v", m)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can give files to others")
	}
}

// Where MPS cannot be had, on says why and auto goes on without.
func TestNoMPS(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, cfg *settings.Config)
		want   string
	}{
		"no program": {func(t *testing.T, cfg *settings.Config) { t.Setenv("PATH", "/nonexistent") }, "nvidia-cuda-mps-control is not there"},
		"it ends":    {func(t *testing.T, cfg *settings.Config) { t.Setenv("MUSTER_TEST_MPS_FAILS", "1") }, "ended at once: no GPU can be shared here"},
		"no state":   {func(t *testing.T, cfg *settings.Config) { cfg.OrphanGrace = 0 }, "give it an orphan_grace above 0"},
		"too long": {func(t *testing.T, cfg *settings.Config) {
			cfg.State = filepath.Join(t.TempDir(), strings.Repeat("x", 100))
		}, "give the node a shorter state folder"},
	} {
		t.Run(name, func(t *testing.T) {
			fakeMPS(t)
			dir, err := os.MkdirTemp("", "nomps")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			cfg := testConfig()
			cfg.OrphanGrace, cfg.State, cfg.MPS = time.Minute, filepath.Join(dir, "state"), settings.MPSOn
			c.change(t, &cfg)
			if err := Run(t.Context(), cfg, testOptions()); err == nil || !strings.HasPrefix(err.Error(), "mps: on: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("on says %v", err)
			}
			cfg.MPS = settings.MPSAuto
			f := run(t, cfg)
			if m := statusOf(t, f).MPS; m != nil { // there is no GPU that one would expect it for
				t.Errorf("auto: %+v", m)
			}
		})
	}
}
