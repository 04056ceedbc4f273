// Package emulatetest starts Slurm clusters for tests, skips tests that cannot have one, with a
// reason, and shows the daemons' logs when a test fails.
//
// With MUSTER_REQUIRE=slurm a test that cannot have its cluster fails instead; with
// MUSTER_REQUIRE=slurm-releases older releases that are missing are fetched, too. Tests with clusters
// skip themselves under -short.
package emulatetest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/slurm/emulate"
	"muster/slurm/fetch"
	"muster/slurm/release"
)

// startTime is how long a cluster may take to start, including the fetching of its release.
const startTime = 3 * time.Minute

// Start starts a cluster that ends with the test. The newest release is fetched if it is missing;
// others only if they are required.
func Start(t testing.TB, o emulate.Options) *emulate.Cluster {
	t.Helper()
	Need(t, o.Release)
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	c, err := emulate.Start(ctx, o)
	if errors.Is(err, syscall.EPERM) {
		need.Missing(t, need.Slurm, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, c)
		}
		if err := c.Close(); err != nil {
			t.Errorf("ending the cluster: %v", err)
		}
	})
	return c
}

// Need skips a test that cannot have a cluster of a release here; nil is the newest.
func Need(t testing.TB, r *release.Release) {
	t.Helper()
	if testing.Short() {
		t.Skip("a real Slurm takes a few seconds: run without -short")
	}
	if r == nil {
		r = release.Newest()
	}
	if r == release.Newest() {
		if err := fetched(t, r); err != nil {
			need.Missing(t, need.Slurm, err)
		}
		return
	}
	if _, err := fetch.Cached(r, fetch.Options{}); err == nil {
		return
	} else if required, _ := need.Required(need.SlurmReleases); !required {
		need.Missing(t, need.SlurmReleases, err)
	}
	if err := fetched(t, r); err != nil {
		need.Missing(t, need.SlurmReleases, err)
	}
}

// missing has the releases that could not be fetched, and why: each is tried once.
var missing sync.Map

func fetched(t testing.TB, r *release.Release) error {
	if err, failed := missing.Load(r.Name); failed {
		return err.(error)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	_, err := fetch.Get(ctx, r, fetch.Options{})
	if err != nil {
		missing.Store(r.Name, err)
	}
	return err
}

// showLogs writes the ends of the daemons' logs to the test's output.
func showLogs(t testing.TB, c *emulate.Cluster) {
	logs, _ := filepath.Glob(filepath.Join(c.Folder, "log", "*"))
	for _, path := range logs {
		name := filepath.Base(path)
		if name != "slurmctld.log" && name != "slurmrestd.out" && !strings.HasPrefix(name, "n1.") && !strings.HasPrefix(name, "n01.") {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > 4096 {
			f.Seek(-4096, io.SeekEnd)
		}
		text, _ := io.ReadAll(io.LimitReader(f, 4096))
		f.Close()
		if len(text) > 0 {
			t.Logf("the end of %s:\n%s", name, text)
		}
	}
}

// Tree returns a release that is present, for its headers. Call Need first.
func Tree(t testing.TB, r *release.Release) *fetch.Tree {
	t.Helper()
	tree, err := fetch.Cached(r, fetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
