package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/node/settings"
)

// A name that no user of the machine has is allowed, and said.
func TestStrangersAreSaid(t *testing.T) {
	var log bytes.Buffer
	cfg := testConfig()
	cfg.Allow = []string{"root", "no-such-user-here"}
	cfg.Limits.Users = map[string]settings.UserLimits{"no-such-user-there": {Clients: 1}}
	opts := testOptions()
	opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, stop := context.WithCancel(t.Context())
	opts.Ready = stop
	if err := Run(ctx, cfg, opts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=WARN msg="allow names a user that this machine does not have: look for a mistake in the name" user=no-such-user-here`,
		`level=INFO msg="limits.users names a user that this machine does not have: that is right if it is a user of another machine" user=no-such-user-there`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not say once %s:\n%s", want, &log)
		}
	}
	if strings.Contains(log.String(), "user=root") {
		t.Errorf("root is said to be unknown:\n%s", &log)
	}
}

// What is wrong with a port or a group is said with the remedy.
func TestPortsAndGroupsHaveRemedies(t *testing.T) {
	for _, c := range []struct {
		change func(*settings.Config)
		want   string
	}{
		{func(c *settings.Config) { c.HTTP = "99999" }, `the port for metrics and health (http, --http) cannot be opened: "99999" is no address`},
		{func(c *settings.Config) {
			c.Socket = settings.Socket{Address: t.TempDir() + "/socket", Group: "no-such-group"}
		},
			"the socket's group: there is no group no-such-group on this machine: make it with groupadd, or name another (socket.group)"},
	} {
		cfg, opts := testConfig(), testOptions()
		c.change(&cfg)
		ctx, stop := context.WithCancel(t.Context())
		opts.Ready = stop // it must not get there
		if err := Run(ctx, cfg, opts); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
		stop()
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
		swap settings.Swap
		want string
	}
	trials := []trial{
		{settings.Swap{Size: 1 << 30, Dir: filepath.Join(t.TempDir(), "nowhere")}, "there is no such folder: make it, or name another"},
		{settings.Swap{Size: 1 << 30, Dir: file}, "it is no folder: name one"},
		{settings.Swap{Size: 1 << 62, Dir: t.TempDir()}, "in all: give it less, or another folder (swap.dir, --swap-dir)"},
	}
	if os.Geteuid() != 0 { // who may write everywhere
		trials = append(trials, trial{settings.Swap{Size: 1 << 30, Dir: closed}, "permission denied: give the node's user the right to"})
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

// What the folder lacks is said when the node starts, not when a program comes.
func TestANodeWithoutItsSwapFolderDoesNotStart(t *testing.T) {
	cfg := settings.Default()
	cfg.Devices, cfg.Swap = []settings.Device{{}}, settings.Swap{Size: 1 << 20, Dir: "/no/such/folder"}
	if _, err := newDaemon(cfg, Options{}); err == nil || !strings.Contains(err.Error(), "the swap area cannot be in /no/such/folder") {
		t.Errorf("got %v", err)
	}
}

// The socket is where nobody else can put one, is for whom it is to be from the
// beginning, and takes the place of nothing but a socket.
func TestSocketFolder(t *testing.T) {
	dir := t.TempDir()
	try := func(path string) error {
		cfg := testConfig()
		cfg.Socket.Address = path
		return Run(t.Context(), cfg, testOptions())
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o777), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := try(open + "/socket"); err == nil || !strings.Contains(err.Error(), "everybody can write to "+open) {
		t.Error(err)
	}
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(file); err == nil || !strings.Contains(err.Error(), file+" is a file, which is left alone") {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "words" {
		t.Errorf("%q, %v", text, err)
	}
	for mode, allow := range map[os.FileMode][]string{0o600: {}, 0o666: {"any"}} {
		cfg := testConfig()
		cfg.Allow, cfg.Socket.Address = allow, filepath.Join(dir, "socket")
		f := run(t, cfg)
		if info, err := os.Stat(cfg.Socket.Address); err != nil || info.Mode().Perm() != mode {
			t.Error(info.Mode(), err)
		}
		f.stop()
		if err := <-f.done; err != nil {
			t.Error(err)
		}
		f.done <- nil
	}
}
