package devices

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/device/cuda"
	"muster/internal/confine"
	"muster/internal/machine"
	"muster/node/gateway"
	"muster/node/nodefile"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/control"
	"muster/wire/trust"
)

// What a machine serves follows from its driver, the configuration and whether it is in a cluster.
func TestComplete(t *testing.T) {
	none := func() (int, error) { return 0, fmt.Errorf("libcuda.so.1: %w", cuda.ErrNoDriver) }
	broken := func() (int, error) { return 0, errors.New("the driver does not match the kernel's module") }
	three := func() (int, error) { return 3, nil }
	for _, c := range []struct {
		name, list string // "" if the configuration names none
		inCluster  bool
		gpus       func() (int, error)
		want, note string
	}{
		{"a machine with GPUs", "", false, three, "cuda:0 cuda:1 cuda:2", "using the 3 GPUs"},
		{"the same in a cluster", "", true, three, "cuda:0 cuda:1 cuda:2", "using the 3 GPUs"},
		{"a machine without", "", false, none, "soft:0", "using a software GPU"},
		{"the same in a cluster", "", true, none, "", "programs here use GPUs of other nodes"},
		{"a broken driver", "", false, broken, "error", ""},
		{"all of the driver, beside another", "cuda:all;soft:memory=1G", false, three, "cuda:0 cuda:1 cuda:2 soft:0", ""},
		{"all of no driver", "cuda:all", false, none, "error", ""},
		{"two software GPUs", "soft:memory=1G;soft:memory=2G", false, broken, "soft:0 soft:1", ""},
	} {
		named, err := nodefile.Devices(c.list)
		if c.list == "" {
			named, err = nil, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		got, note, err := complete(named, c.inCluster, c.gpus)
		var kinds []string
		for _, d := range got {
			kinds = append(kinds, fmt.Sprintf("%s:%d", d.Kind, d.Index))
			if d.Kind == "soft" && d.Workers != machine.CPUs() {
				t.Errorf("%s: a software GPU has %d threads", c.name, d.Workers)
			}
		}
		what := strings.Join(kinds, " ")
		if err != nil {
			what = "error"
		}
		if what != c.want || !strings.Contains(note, c.note) || (c.note == "") != (note == "") {
			t.Errorf("%s: %s (%s, %v), want %s", c.name, what, note, err, c.want)
		}
	}
}

// The error of a device that cannot be opened names what the user wrote.
func TestOpenRefusals(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte("no rule\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	soft := control.DeviceConfig{Kind: "soft", Name: "gpu", Memory: 1 << 30, Speed: 1, Workers: 1}
	for _, c := range []struct {
		name, want string
		change     func(*control.DeviceConfig)
	}{
		{"an unknown kind", "soft, cuda and remote", func(d *control.DeviceConfig) { d.Kind = "rocm" }},
		{"an unknown engine", "there is no engine \"fast\"", func(d *control.DeviceConfig) { d.Engine = "fast" }},
		{"no rules", "rules by which the device is to fail", func(d *control.DeviceConfig) { d.Faults = rules + ".not" }},
		{"bad rules", rules, func(d *control.DeviceConfig) { d.Faults = rules }},
		{"no token", "the token of the node at h:1", func(d *control.DeviceConfig) {
			d.Kind, d.Lender = "remote", control.Lender{Address: "h:1", Token: rules + ".not"}
		}},
		{"no certificates", "the certificates for the node at h:1", func(d *control.DeviceConfig) {
			d.Kind, d.Lender = "remote", control.Lender{Address: "h:1", TLS: rules + ".not"}
		}},
		{"no authority", "is no certificate", func(d *control.DeviceConfig) {
			d.Kind, d.Lender = "remote", control.Lender{Address: "h:1", Ticket: "t", Authority: "none"}
		}},
	} {
		d := soft
		c.change(&d)
		if opened, err := Open(d, nil); opened != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// What a worker must reach for a device, and no more.
func TestNeeds(t *testing.T) {
	t.Setenv(checkReportVariable, "/tmp/reports")
	t.Setenv("CUDA_CACHE_PATH", "/var/cache/cuda")
	reports := []string{"/tmp/reports"}
	for _, c := range []struct {
		device control.DeviceConfig
		want   confine.Rules
	}{
		{control.DeviceConfig{Kind: "soft"}, confine.Rules{Write: reports}},
		{control.DeviceConfig{Kind: "soft", Faults: "/srv/faults/rules"}, confine.Rules{Write: append(reports, "/srv/faults")}},
		{control.DeviceConfig{Kind: "cuda"}, confine.Rules{Write: append(reports, "/dev/shm", "/var/cache/cuda"), Devices: cuda.Files(), Threads: true, Sockets: true}},
		{control.DeviceConfig{Kind: "remote", Lender: control.Lender{TLS: "/etc/muster/me", Token: "/etc/muster/token"}},
			confine.Rules{Read: []string{"/etc/muster/me", "/etc/muster/token", ""}, Write: reports, Connect: true}},
	} {
		if got := Needs(c.device); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v needs %+v, not %+v", c.device, got, c.want)
		}
	}
}

// A software GPU is the same device to every process that opens it.
func TestSameDeviceEverywhere(t *testing.T) {
	c := control.DeviceConfig{Kind: "soft", Name: "gpu", Memory: 1 << 30, Speed: 1, Workers: 1}
	var seen [3][16]byte
	for i := range seen {
		c.Index = i / 2
		d, err := Open(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen[i] = d.Info().UUID
	}
	if seen[0] != seen[1] || seen[0] == seen[2] {
		t.Errorf("two processes see %x and %x, another device is %x", seen[0], seen[1], seen[2])
	}
}

// What one process asks for in the environment, workers find there; what they report is counted.
func TestChecksTravelInTheEnvironment(t *testing.T) {
	reports := filepath.Join(t.TempDir(), "reports")
	if err := os.WriteFile(reports, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if checks, found, err := checksWanted(func(string) string { return "" }); found != nil || err != nil || checks.Any() {
		t.Errorf("without the variable: %v, %v", checks, err)
	}
	if _, _, err := checksWanted(func(string) string { return "speed" }); err == nil || !strings.Contains(err.Error(), "$MUSTER_CHECK") {
		t.Error(err)
	}
	wanted, _, err := checksWanted(func(name string) string { return map[string]string{checkVariable: "race,init"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	environment := CheckEnvironment(wanted, reports)
	got, found, err := checksWanted(func(name string) string { return environment[name] })
	if err != nil || got != wanted {
		t.Fatalf("%v, %v", got, err)
	}
	found("muster check: race in k\nmuster check:   at line 1\n")
	found("muster check: race in m\n")
	if n, err := CountReports(reports); n != 2 || err != nil {
		t.Errorf("%d reports, %v", n, err)
	}
	if n, err := CountReports(reports + ".not"); n != 0 || err != nil {
		t.Errorf("%d reports in no file, %v", n, err)
	}
	appendReport(reports+".not", "x") // a worker goes on
}

// A worker shows its ticket only to a node, and to none whose certificate was revoked.
func TestLenderIsANode(t *testing.T) {
	dir := t.TempDir()
	authority, _, err := gateway.OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := authority.Node([]string{"lender", "127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	head, err := authority.Head([]string{"127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	vouches, err := trust.ReadAuthority(filepath.Join(dir, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	dial := func(folder, kind string) error {
		t.Helper()
		own, err := trust.Load(filepath.Join(folder, kind+".pem"), filepath.Join(folder, kind+"-key.pem"), "")
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", trust.Listen(own, tls.NoClientCert, slog.New(slog.DiscardHandler), wire.StreamProtocol))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				conn.Close()
			}
		}()
		to, err := lenderOf(control.Lender{Address: l.Addr().String(), Ticket: "t", Authority: vouches, Revoked: trust.ListBeside(filepath.Join(dir, client.FileCA))})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := to.Dial(t.Context())
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(folder, "node"); err != nil {
		t.Error(err)
	}
	if err := dial(head, "head"); err == nil || !strings.Contains(err.Error(), "not that of a node") {
		t.Errorf("a head lends: %v", err)
	}
	if _, _, err := authority.Revoke([]string{"node-lender"}); err != nil {
		t.Fatal(err)
	}
	if err := dial(folder, "node"); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a node that was revoked lends: %v", err)
	}
}
