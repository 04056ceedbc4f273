package node

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gib = 1 << 30

func TestSwapAgainstItsPlace(t *testing.T) {
	disk, memory := Swap{Size: 8 * gib, Dir: "/swap"}, Swap{Size: 8 * gib}
	type verdict struct {
		warning string
		err     error
	}
	onDisk := func(free, total uint64) (v verdict) {
		v.warning, v.err = disk.onDisk(free, total)
		return v
	}
	for _, c := range []struct {
		name          string
		got           verdict
		warning, fail string
	}{
		{"room", onDisk(8*gib, 9*gib), "", ""},
		{"too full", onDisk(3*gib, 9*gib),
			"the swap area may have 8 GiB and the disk of /swap has 3 GiB free: programs are refused memory when it is full; make room there, or give the swap area less (swap.size, --swap)", ""},
		{"too small", onDisk(3*gib, 4*gib), "",
			"the swap area is to have 8 GiB (swap.size, --swap), and the disk of /swap has 4 GiB in all: give it less, or another folder (swap.dir, --swap-dir)"},
		{"memory", verdict{warning: memory.inMemory(8 * gib)}, "", ""},
		{"little memory", verdict{warning: memory.inMemory(4 * gib)},
			"the swap area may have 8 GiB and is in memory, of which the machine has 4 GiB: when that is used up, the system kills programs; give the swap area less (swap.size, --swap) or a folder on a disk (swap.dir, --swap-dir)", ""},
	} {
		fail := ""
		if c.got.err != nil {
			fail = c.got.err.Error()
		}
		if c.got.warning != c.warning || fail != c.fail {
			t.Errorf("%s: got %q and %q, want %q and %q", c.name, c.got.warning, fail, c.warning, c.fail)
		}
	}
}

// A swap area that cannot be is found out when the node starts, not by its
// programs.
func TestSwapIsLookedAtFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	type trial struct {
		swap Swap
		want string
	}
	trials := []trial{
		{Swap{gib, filepath.Join(t.TempDir(), "nowhere")}, "there is no such folder: make it, or name another"},
		{Swap{gib, file}, "it is no folder: name one"},
		{Swap{1 << 62, t.TempDir()}, "in all: give it less, or another folder (swap.dir, --swap-dir)"},
	}
	if os.Geteuid() != 0 { // who may write everywhere
		trials = append(trials, trial{Swap{gib, closed}, "permission denied: give the node's user the right to"})
	}
	for _, c := range trials {
		cfg := testConfig()
		cfg.Swap = c.swap
		opts := testOptions()
		ctx, stop := context.WithCancel(t.Context())
		opts.Ready = stop // it must not get there
		if err := Run(ctx, cfg, opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.swap, err, c.want)
		}
		stop()
	}
}

// More than the machine has is allowed, and said.
func TestSwapLargerThanMemoryIsSaid(t *testing.T) {
	var log bytes.Buffer
	cfg := testConfig()
	cfg.Swap.Size = 1 << 62
	opts := testOptions()
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, stop := context.WithCancel(t.Context())
	opts.Ready = stop
	if err := Run(ctx, cfg, opts); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "level=WARN msg=\"the swap area may have") {
		t.Errorf("the log has no warning:\n%s", &log)
	}
}
