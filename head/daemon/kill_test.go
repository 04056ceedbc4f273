package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/wire/api"
	"muster/wire/dial"
)

// child is a head in a process of its own, which the test kills.
func child() {
	cfg := Default()
	cfg.Listen, cfg.Socket, cfg.State = "", os.Getenv("MUSTER_HEAD_TEST_SOCKET"), os.Getenv("MUSTER_HEAD_TEST_CHILD")
	if limit := os.Getenv("MUSTER_HEAD_TEST_FSIZE"); limit != "" {
		var bytes uint64
		if _, err := fmt.Sscan(limit, &bytes); err != nil {
			panic(err)
		}
		signal.Ignore(syscall.SIGXFSZ) // a write beyond it fails
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: bytes}); err != nil {
			panic(err)
		}
	}
	err := Run(context.Background(), cfg, Options{
		Policy: catalog.New, Now: time.Now, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Ready: func(Addresses) { fmt.Println("ready") },
	})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startChild starts such a head, and returns when it serves.
func startChild(t *testing.T, state, socket string, environment ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), "MUSTER_HEAD_TEST_CHILD="+state, "MUSTER_HEAD_TEST_SOCKET="+socket)
	c.Env = append(c.Env, environment...)
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		_ = c.Wait()
		t.Fatalf("the head did not start: %v %s", err, errors.String())
	}
	return c
}

// A head that is killed at any moment has all that it acknowledged, and a submission
// that is repeated with its key is one job.
func TestKilledUnderSubmissions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	const seed, lives, clients = 3, 8, 4
	random := rand.New(rand.NewPCG(seed, 0))
	state, socket := t.TempDir(), fmt.Sprintf("@muster-head-kill-%d", os.Getpid())
	var mu sync.Mutex
	acknowledged := map[string]uint64{} // key -> job
	unsure := map[string]bool{}         // keys that were sent and not acknowledged
	var again []string                  // unsure keys of earlier heads
	for life := range lives {
		process := startChild(t, state, socket)
		stop := make(chan struct{})
		var all sync.WaitGroup
		enough := make(chan struct{}, 1)
		wanted := 1 + random.IntN(60)
		count := 0
		for client := range clients {
			all.Go(func() {
				h, base, err := dial.Client(dial.Config{Head: "unix:" + socket})
				if err != nil {
					t.Error(err)
					return
				}
				defer h.CloseIdleConnections()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					key := fmt.Sprintf("%d-%d-%d", life, client, i)
					mu.Lock()
					if len(again) > 0 { // as a user does who got no answer
						key, again = again[0], again[1:]
					}
					unsure[key] = true
					mu.Unlock()
					done, err := submitOnce(h, base, key)
					if err != nil {
						return // killed
					}
					mu.Lock()
					if before, twice := acknowledged[key]; twice && before != done {
						t.Errorf("seed %d: key %s is job %d and job %d", seed, key, before, done)
					}
					acknowledged[key] = done
					delete(unsure, key)
					if count++; count == wanted {
						enough <- struct{}{}
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		_ = process.Process.Kill()
		_ = process.Wait()
		close(stop)
		all.Wait()
		again = slices.Sorted(maps.Keys(unsure))
	}
	startChild(t, state, socket)
	checkAcknowledged(t, socket, acknowledged, unsure)
}

func submitOnce(h *http.Client, base, key string) (uint64, error) {
	text, err := json.Marshal(api.Submission{Script: "#!/bin/sh\n", Directory: "/", Key: key, Options: []string{"--job-name=k" + key}})
	if err != nil {
		return 0, err
	}
	answer, err := h.Post(base+"/v1/jobs", "application/json", bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var done api.Submitted
	if err := json.NewDecoder(answer.Body).Decode(&done); err != nil || done.Job == 0 {
		return 0, fmt.Errorf("%d: %+v %w", answer.StatusCode, done, err)
	}
	return done.Job, nil
}

// checkAcknowledged compares the jobs that exist with what clients were told.
func checkAcknowledged(t *testing.T, socket string, acknowledged map[string]uint64, unsure map[string]bool) {
	t.Helper()
	h, base, err := dial.Client(dial.Config{Head: "unix:" + socket})
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t, h, base}
	var jobs api.Jobs
	a.must("GET", "/v1/jobs", nil, &jobs)
	there := map[string]uint64{}
	for _, j := range jobs.Jobs {
		key := strings.TrimPrefix(j.Name, "k")
		if before, twice := there[key]; twice {
			t.Errorf("key %s became job %d and job %d", key, before, j.ID)
		}
		there[key] = j.ID
		if _, known := acknowledged[key]; !known && !unsure[key] {
			t.Errorf("job %d of key %s was never sent", j.ID, key)
		}
	}
	for key, job := range acknowledged {
		if there[key] != job {
			t.Errorf("key %s was acknowledged as job %d, and is job %d", key, job, there[key])
		}
	}
	t.Logf("%d acknowledged, %d unsure, %d there", len(acknowledged), len(unsure), len(there))
}

// When the disk is full, the head says so and ends; when there is room again, it has everything
// that it acknowledged.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	state, socket := t.TempDir(), fmt.Sprintf("@muster-head-full-%d", os.Getpid())
	process := startChild(t, state, socket, "MUSTER_HEAD_TEST_FSIZE=20000000")
	h, base, err := dial.Client(dial.Config{Head: "unix:" + socket})
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t, h, base}
	acknowledged := map[string]uint64{}
	for i := 0; ; i++ {
		key := fmt.Sprint(i)
		var done api.Submitted
		status, problem := a.do("POST", "/v1/jobs", api.Submission{Script: "#!/bin/sh\n" + strings.Repeat("#", 300_000), Directory: "/", Key: key, Options: []string{"--job-name=k" + key}}, &done)
		if status == http.StatusOK && i < 1000 {
			acknowledged[key] = done.Job
			continue
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(problem, "cannot write to its disk") {
			t.Errorf("after %d: %d %s", i, status, problem)
		}
		break
	}
	if err := process.Wait(); err == nil {
		t.Error("it ended as if all were well")
	}
	h.CloseIdleConnections()
	if len(acknowledged) == 0 {
		t.Fatal("nothing was taken")
	}
	startChild(t, state, socket)
	checkAcknowledged(t, socket, acknowledged, map[string]bool{fmt.Sprint(len(acknowledged)): true})
}
