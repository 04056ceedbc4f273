package launch

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/misuse"
)

// Every wish has its variable, and what makes no sense is refused with what to type.
func TestEnvironment(t *testing.T) {
	lib := t.TempDir()
	base := []string{"PATH=/bin", "LD_LIBRARY_PATH=/opt", "MUSTER_WEIGHT=7"}
	for _, c := range []struct {
		wishes Wishes
		want   string // a variable, or what an error says
		wrong  bool
	}{
		{Wishes{}, "LD_LIBRARY_PATH=" + lib + ":/opt", false},
		{Wishes{}, "MUSTER_WEIGHT=7", false},
		{Wishes{Memory: "2GiB"}, "MUSTER_MEMORY=2147483648", false},
		{Wishes{Memory: "40"}, "--memory 40 is 40 B: give 1 MiB or more, with a unit", true},
		{Wishes{Memory: "much"}, "--memory:", true},
		{Wishes{Class: "latency"}, "MUSTER_CLASS=latency", false},
		{Wishes{Class: "fast"}, "--class fast: use latency or batch", true},
		{Wishes{Weight: 20}, "MUSTER_WEIGHT=20", false},
		{Wishes{Weight: 1001}, "--weight 1001: give a number from 1 to 1000", true},
		{Wishes{Weight: -1}, "--weight -1", true},
		{Wishes{Mapping: "ag"}, "MUSTER_MAPPING=ag", false},
		{Wishes{Mapping: "best"}, "--mapping:", true},
		{Wishes{GPUs: 4}, "MUSTER_GPUS=4", false},
		{Wishes{GPUs: 17}, "--gpus 17: give a number from 1 to 16", true},
		{Wishes{Explain: 3}, "MUSTER_EXPLAIN=3", false},
		{Wishes{Share: "25%"}, "MUSTER_SHARE=25", false},
		{Wishes{Share: "all"}, "--share", true},
		{Wishes{Nodes: "a,b:1"}, "MUSTER_IVM_NODES=a,b:1", false},
	} {
		got, err := c.wishes.Environment(base, lib)
		if c.wrong && (!misuse.Is(err) || !strings.Contains(err.Error(), c.want)) || !c.wrong && (err != nil || !slices.Contains(got, c.want)) {
			t.Errorf("%+v: %q, %v; want %s", c.wishes, got, err, c.want)
		}
	}
	mpi := Wishes{MPI: true}
	if _, err := mpi.Environment(base, lib); err == nil || misuse.Is(err) {
		t.Errorf("without the library: %v", err)
	}
	library := filepath.Join(lib, "libmuster-mpi.so")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := mpi.Environment(base, lib); err != nil || !slices.Contains(got, "LD_PRELOAD="+library) {
		t.Errorf("%q, %v", got, err)
	}
}

// The libraries are where the user says, in lib beside the program, or where they are installed.
func TestLibraries(t *testing.T) {
	root := t.TempDir()
	self := filepath.Join(root, "bin", "muster")
	if got, err := librariesOf(self, ""); err == nil {
		t.Errorf("there are none, and %s was found", got)
	}
	for _, place := range []string{"lib/muster", "bin/lib", "mine"} { // each is looked at before those in front of it
		folder := filepath.Join(root, place)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := librariesOf(self, filepath.Join(root, "mine")); err != nil || got != folder {
			t.Errorf("%s, %v; want %s", got, err, folder)
		}
	}
}

// What contradicts itself, or shows nothing that says who the user is, is refused before anything is
// dialled.
func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		at   Elsewhere
		want string
		typo bool
	}{
		{Elsewhere{Node: "h"}, "--node needs --tls-dir", true},
		{Elsewhere{Node: "h", Plain: true, TLSDir: "x"}, "instead of --tls-dir", true},
		{Elsewhere{Node: "h", Plain: true}, "$MUSTER_TOKEN", false},
		{Elsewhere{Node: "h", TLSDir: t.TempDir()}, "ca.pem", false},
		{Elsewhere{Node: "h", Plain: true, Token: "t"}, "", false},
	} {
		r, err := c.at.Remote()
		switch {
		case c.want == "":
			if err != nil || r.Dial == nil || r.Lane == nil {
				t.Errorf("%+v: %v", c.at, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want) || misuse.Is(err) != c.typo:
			t.Errorf("%+v: %v, want %q", c.at, err, c.want)
		}
	}
}

// A program is served at a socket of its own until stop is called.
func TestServe(t *testing.T) {
	ended := false
	socket, stop, err := Serve(Remote, func(ctx context.Context, l *net.UnixListener) error {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		conn.Close()
		<-ctx.Done()
		ended = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(socket, Prefix(Remote)) {
		t.Error(socket)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("something was read")
	}
	stop()
	if !ended {
		t.Error("stop does not wait")
	}
}

func TestFewerCopyThreads(t *testing.T) {
	for _, c := range []struct {
		environment, want string
		processors        int
	}{
		{"A=1", "A=1 MUSTER_COPY_THREADS=2", 16}, {"A=1", "A=1", 6}, {"MUSTER_COPY_THREADS=5", "MUSTER_COPY_THREADS=5", 16},
	} {
		if got := strings.Join(FewerCopyThreads(strings.Fields(c.environment), c.processors), " "); got != c.want {
			t.Errorf("%s, %d processors: %s", c.environment, c.processors, got)
		}
	}
}
