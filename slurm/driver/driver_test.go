package driver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/engine"
)

// stub is a Slurm with one node, which drains, and one held job.
type stub struct {
	mu      sync.Mutex
	away    bool
	handed  []string
	rounds  int
	changed chan struct{}
}

func (s *stub) Jobs(context.Context, int64, map[string]int) (engine.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	select {
	case s.changed <- struct{}{}:
	default:
	}
	if s.away {
		return engine.Listing{}, errors.New("slurmctld is away")
	}
	return engine.Listing{Jobs: []slurm.Job{{ID: 17, User: "ann", Name: "waits", Partition: "main", State: "PENDING", Held: true, Reason: "JobHeldUser", AdminComment: "muster:req", MinNodes: 1, CPUs: 1},
		{ID: 18, State: "PENDING", Held: true, AdminComment: "muster:req rgpu=1", MinNodes: 1, CPUs: 1, Partition: "main"}}}, nil
}
func (s *stub) Nodes(context.Context) ([]slurm.Node, error) {
	return []slurm.Node{{Name: "n1", CPUs: 4, Memory: 1 << 30, Threads: 1, GPUs: 1, States: []string{"IDLE", "DRAIN"}}}, nil
}
func (s *stub) Partitions(context.Context) ([]slurm.Partition, error) {
	return []slurm.Partition{{Name: "main", Nodes: "n1", Up: true}}, nil
}
func (s *stub) Reservations(context.Context) ([]slurm.Reservation, error) {
	return []slurm.Reservation{}, nil
}
func (s *stub) Accounting(context.Context) (*slurm.Accounting, error) { return nil, nil }
func (s *stub) Place(context.Context, slurm.Place) error              { return errors.New("nothing can be placed") }
func (s *stub) Hold(context.Context, slurm.Ref) error                 { return nil }
func (s *stub) Comment(context.Context, slurm.Ref, string) error      { return nil }
func (s *stub) Split(context.Context, slurm.Split) error              { return nil }
func (s *stub) Stop(context.Context, slurm.Stop) error                { return nil }
func (s *stub) Resume(context.Context, slurm.Ref, string) error       { return nil }
func (s *stub) Handover(_ context.Context, j slurm.Ref, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = append(s.handed, j.String()+" "+text)
	return nil
}

// A driver that ends hands waiting jobs to Slurm if it is configured so, but not those that Slurm
// cannot serve; while it runs it writes that it is alive, and answers on its socket.
func TestFallback(t *testing.T) {
	for _, fallback := range []driver.Fallback{driver.FallbackWait, driver.FallbackSlurm} {
		dir := t.TempDir()
		socket, alive := filepath.Join(dir, "s"), filepath.Join(dir, "alive")
		s := &stub{changed: make(chan struct{})}
		d, err := driver.New(s, driver.Config{Spec: "easy", Policy: catalog.New, Fallback: fallback, Socket: socket, Alive: alive, Poll: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		<-s.changed
		<-s.changed
		<-s.changed // two rounds are over
		status, err := driver.AskStatus(ctx, socket)
		if err != nil || status.Waiting != 2 || status.Nodes != 1 || status.Up != 0 || len(status.Jobs) != 2 || !strings.Contains(status.Jobs[0].Why, "draining") {
			t.Errorf("%+v, %v", status, err)
		}
		if text, err := os.ReadFile(alive); err != nil || len(text) < 10 {
			t.Errorf("the driver is not alive: %q, %v", text, err)
		}
		other, err := driver.New(s, driver.Config{Spec: "easy", Policy: catalog.New, Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(ctx); err == nil || !strings.Contains(err.Error(), "another driver answers") {
			t.Errorf("a second driver: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := ""
		if fallback == driver.FallbackSlurm {
			want = "17 muster:req muster:wait why=Muster's driver has ended: Slurm's scheduler has it"
		}
		if got := strings.Join(s.handed, "\n"); got != want {
			t.Errorf("%s: handed over %q", fallback, got)
		}
		if _, err := net.Dial("unix", socket); err == nil {
			t.Error("the socket still answers")
		}
	}
}

// The status says that Slurm does not answer, and why, until it answers again.
func TestStatusSaysThatSlurmIsAway(t *testing.T) {
	s := &stub{away: true}
	d, err := driver.New(s, driver.Config{Spec: "easy", Policy: catalog.New})
	if err != nil {
		t.Fatal(err)
	}
	d.Round(t.Context())
	if got := d.Status().Problem; got != "slurmctld is away" {
		t.Errorf("the status says %q", got)
	}
	s.away = false
	d.Round(t.Context())
	if got := d.Status(); got.Problem != "" || got.Nodes != 1 {
		t.Errorf("when Slurm is back: %+v", got)
	}
}

// A user who asks where no driver runs is told what to do.
func TestNoDriver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if _, err := driver.AskStatus(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "no driver runs here") || !strings.Contains(err.Error(), "muster slurm drive") {
		t.Errorf("without a driver: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as if it had been killed
	l.Close()
	if _, err := driver.AskStatus(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "was killed, and jobs wait for the next") {
		t.Errorf("after it was killed: %v", err)
	}
}

func TestWrongSettings(t *testing.T) {
	if _, err := driver.New(&stub{}, driver.Config{Spec: "easy", Policy: catalog.New, Fallback: "backfill"}); err == nil {
		t.Error("an unknown fallback was taken")
	}
	if _, err := driver.New(&stub{}, driver.Config{Spec: "eazy", Policy: catalog.New}); err == nil {
		t.Error("an unknown policy was taken")
	}
}
