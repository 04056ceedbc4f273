package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"muster/cmd/muster/programs"
	"muster/device"
	"muster/node"
	"muster/node/devices"
	"muster/node/nodefile"
	"muster/node/settings"
	"muster/wire/control"
)

// The page about nodes shows what the commands print of this one.
func TestNodePageShowsRealOutput(t *testing.T) {
	t.Chdir("../..")
	cfg := settings.Default()
	cfg.Name = "n1"
	cfg.Socket.Address = fmt.Sprintf("@muster-docs-%d", os.Getpid())
	cfg.Swap.Size = 1 << 30
	cfg.Warm = 0
	named, err := nodefile.Devices("soft:memory=256M,speed=0.5;soft:memory=512M")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Devices, _, err = devices.Complete(named, false); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_SOCKET", cfg.Socket.Address)
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- node.Run(ctx, cfg, node.Options{
			Open:          func(c control.DeviceConfig) (device.Device, error) { return devices.Open(c, nil) },
			WorkerCommand: []string{"/bin/false"},
			Log:           slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
			Ready: func() { close(ready) },
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	checkPage(t, "docs/node.md")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What the help says of the configuration can be read, and so can the file that
// comes along.
func TestConfigurationInHelp(t *testing.T) {
	_, text, _ := strings.Cut(programs.NodeHelp, "where there are some):\n")
	text, _, _ = strings.Cut(text, "\nThe socket is")
	cfg := settings.Default()
	if err := nodefile.Read([]byte(text), "help", &cfg); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	if len(cfg.Devices) != 5 || len(cfg.Offload.Peers) != 2 || cfg.Remote.Token != "SECRET" || cfg.Limits.Users["alice"].Weight != 2 {
		t.Errorf("%+v", cfg)
	}
	cfg = settings.Default()
	if err := nodefile.ReadFile("../../dist/node.yaml", &cfg); err != nil {
		t.Error(err)
	}
}
