package node

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestStrangers(t *testing.T) {
	cfg := Config{
		Allow:  []string{"alice", "bbo", "1007", AllowAny},
		Limits: Limits{Users: map[string]UserLimits{"alice": {}, "remote": {}, "elsewhere": {}, "1008": {}}},
	}
	allowed, limited := cfg.strangers(func(name string) bool { return name == "alice" })
	if !slices.Equal(allowed, []string{"bbo"}) || !slices.Equal(limited, []string{"elsewhere", "remote"}) {
		t.Errorf("got %v and %v", allowed, limited)
	}
}

// A name that no user of the machine has is allowed, and said.
func TestStrangersAreSaid(t *testing.T) {
	var log bytes.Buffer
	cfg := testConfig()
	cfg.Allow = []string{"root", "no-such-user-here"}
	cfg.Limits.Users = map[string]UserLimits{"no-such-user-there": {Clients: 1}}
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
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.HTTP = "99999" }, `the port for metrics and health (http, --http) cannot be opened: "99999" is no address`},
		{func(c *Config) { c.Socket = Socket{Address: t.TempDir() + "/socket", Group: "no-such-group"} },
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
