package step

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/wire/grant"
)

// written makes a file with a grant, or an empty one.
func written(t *testing.T, path, id string) {
	t.Helper()
	var text []byte
	if id != "" {
		g := grant.Grant{ID: id, User: "alice", Secret: grant.NewCredential(), Limit: grant.AllDevices, Devices: []grant.Device{{Node: "n1"}}}
		var err error
		if text, err = g.Encode(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A node has a grant of its own, or that of all nodes, or was lent nothing.
func TestFind(t *testing.T) {
	folder := t.TempDir()
	written(t, filepath.Join(folder, "grant"), "all")
	written(t, filepath.Join(folder, "n1"), "own")
	written(t, filepath.Join(folder, "n2"), "")
	written(t, filepath.Join(filepath.Dir(folder), "outside"), "outside")
	file := filepath.Join(t.TempDir(), "17")
	written(t, file, "file")
	for _, c := range []struct{ path, node, want string }{
		{folder, "n1", "own"},
		{folder, "n2", "nothing"},
		{folder, "n3", "all"},
		{folder, "", "all"},
		{folder, "../outside", "all"}, // a name is no path
		{file, "n1", "file"},
		{file + ".not", "n1", "is its folder shared by all nodes?"},
	} {
		s := Step{Grant: c.path, Node: c.node}
		g, err := s.find(t.Context())
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case g != nil:
			got = g.ID
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s on %s: %s, want %s", c.path, c.node, got, c.want)
		}
	}
}

// A grant that a shared file system shows late is waited for.
func TestFindLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "late")
	s := Step{Grant: file, Wait: time.Hour}
	tries := 0
	err := s.patiently(t.Context(), func() (bool, error) {
		if tries++; tries == 2 {
			return false, nil
		}
		return true, errors.New("not yet")
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
	ended := errors.New("the step has ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if _, err := s.find(ctx); !errors.Is(err, ended) {
		t.Errorf("a step that has ended: %v", err)
	}
}

// A node that was lent nothing shows its programs no device.
func TestServeNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	written(t, file, "")
	var told bytes.Buffer
	s := Step{Grant: file}
	if err := s.Serve(t.Context(), &told); err != nil || told.String() != "set RCUDA_DEVICE_COUNT 0\nready\n" {
		t.Errorf("%q, %v", told.String(), err)
	}
}

// The plug-in is told nothing of a grant that no node honours.
func TestServeRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "17")
	written(t, file, "17.1.0")
	var told bytes.Buffer
	s := Step{Grant: file, Socket: "@muster-no-such-node"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // or it would wait for a daemon that is being replaced
	if err := s.Serve(ctx, &told); err == nil || !strings.Contains(err.Error(), "the job's GPUs") || told.Len() > 0 {
		t.Errorf("%q, %v", told.String(), err)
	}
}
