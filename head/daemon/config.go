package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"muster/head"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy/preempt"
	"muster/wire/api"
)

// Where a head listens by default.
const (
	DefaultListen = ":9422"
	DefaultSocket = "@muster-head"
)

// Config is what an administrator decides.
type Config struct {
	Core   head.Config
	Policy string // as muster sim takes it
	// Priority is the file from which Core.Priority was read; "" for none.
	Priority string
	// Listen is the TLS port, HOST:PORT; "" for none.
	Listen string
	// Socket is the Unix socket, a path or @NAME; "" for none.
	Socket string
	// State is the folder of the store.
	State string
	// HTTP is where metrics and health are served, HOST:PORT; "" for nowhere.
	HTTP string
	// Page is where the page is served, HOST:PORT; "" or NoPage if it is not.
	Page string
	// Join is a head that has this one join it and its peers, if it is not one of them; "" for none. Address is
	// where other heads reach this one; "" is the name in its certificate, and the port at which it listens. Pace
	// is how long heads wait for the one that leads before they choose another; 0 is quorum.DefaultPace.
	Join, Address string
	Pace          time.Duration
	// TLSDir is the folder that muster cert made for the head.
	TLSDir string
	// Record is the file to which everything that the policy is told and decides is written, up to
	// RecordLimit bytes; "" for none.
	Record      string
	RecordLimit int64
	WhatIf      WhatIf
	Connections Connections
	// Said is where the file says its settings, as head.yaml:3:1; others are defaults or flags.
	Said map[string]string
}

// Default is the configuration of a head without a configuration file.
func Default() Config {
	return Config{
		Core: head.Config{
			Cluster: "muster", NodeTimeout: 5 * time.Minute, Silence: 30 * time.Second, Grace: 30 * time.Second, InactiveLimit: head.DefaultInactiveLimit, Keep: 5 * time.Minute, KeepOutput: 30 * 24 * time.Hour,
			MaxJobCount: 20_000, MaxArraySize: slurmopt.MaxArrayTasks, Limits: head.Limits{Jobs: 1_000_000},
			Holds: model.DefaultHolds(),
		},
		RecordLimit: DefaultRecordLimit, WhatIf: DefaultWhatIf,
		Policy: "easy", Socket: DefaultSocket, Connections: DefaultConnections,
	}
}

// Connections limits the connections of callers, and how long they may be silent.
type Connections struct {
	Unknown int // connections that are not authenticated yet
	All     int // connections of users
	User    int // of these, connections of one user
	Nodes   int // connections of nodes
	Node    int // of these, connections of one node

	Greet   time.Duration // to authenticate and send the first request
	Idle    time.Duration // between two requests
	Request time.Duration // to send a request, and to receive each part of the answer
}

// DefaultConnections are used for settings that are 0.
var DefaultConnections = Connections{
	Unknown: 2048, All: 4096, User: 256, Nodes: 40_000, Node: 64,
	Greet: 10 * time.Second, Idle: 2 * time.Minute, Request: time.Minute,
}

func (c Connections) complete() Connections {
	d := DefaultConnections
	return Connections{
		Unknown: cmp.Or(c.Unknown, d.Unknown), All: cmp.Or(c.All, d.All), User: cmp.Or(c.User, d.User), Nodes: cmp.Or(c.Nodes, d.Nodes), Node: cmp.Or(c.Node, d.Node),
		Greet: cmp.Or(c.Greet, d.Greet), Idle: cmp.Or(c.Idle, d.Idle), Request: cmp.Or(c.Request, d.Request),
	}
}

// At adds to an error of a setting where the file says it.
func (c *Config) At(setting string, err error) error {
	if at := c.Said[setting]; at != "" && err != nil {
		return fmt.Errorf("%s: %s: %w", at, setting, err)
	}
	return err
}

// Check refuses a configuration with which a head could not work.
func (c *Config) Check() error {
	switch {
	case c.Listen == "" && c.Socket == "":
		return errors.New("nobody could reach the head: give a port (--listen) or a socket (--socket)")
	case c.State == "":
		return errors.New("the head needs a folder for what it must not forget: give --state")
	case c.Core.Silence < time.Second || c.Core.NodeTimeout < c.Core.Silence:
		setting := "silence"
		if c.Said[setting] == "" {
			setting = "node_timeout"
		}
		return c.At(setting, fmt.Errorf("silence %v and node_timeout %v: give a silence of at least 1s, and a longer node_timeout", c.Core.Silence, c.Core.NodeTimeout))
	}
	_, err := c.rules()
	return err
}

// rules says which jobs make way for which.
func (c *Config) rules() (preempt.Rules, error) {
	return preempt.RulesOf(c.Core.Priority, c.Core.Partitions)
}

// standing is the configuration that is in force, and how another one takes its place.
type standing struct {
	// inForce is the policy that decides; only the loop replaces it.
	inForce atomic.Pointer[chosen]
	// loading is held while the configuration is read again; read is what was read last.
	loading    sync.Mutex
	read       Config
	configured chan *configured
}

// configured is a configuration that was read again, for the loop.
type configured struct {
	cfg head.Config
	// policy is to decide from now on; nil if that stays.
	policy *chosen
	done   chan error
}

// reload reads the configuration again and applies what may change while the head runs. If anything is wrong,
// nothing changes.
func (d *daemon) reload() (*api.Reloaded, error) {
	d.loading.Lock()
	defer d.loading.Unlock()
	done, err := d.apply()
	if err != nil {
		d.log.Error("the configuration was read again and is wrong: everything stays as it was", "error", err)
		return nil, err
	}
	if len(done.Restart) > 0 {
		d.log.Warn("some of what has changed takes effect at the next start", "settings", done.Restart)
	}
	d.log.Info("the configuration was read again", "changed", done.Changed)
	return done, nil
}

func (d *daemon) apply() (*api.Reloaded, error) {
	if d.Load == nil {
		return nil, errors.New("this head was started without a configuration that could be read again")
	}
	again, err := d.Load()
	if err == nil {
		err = again.Check()
	}
	if err != nil {
		return nil, err
	}
	done := &api.Reloaded{Changed: d.read.changed(&again), Restart: d.cfg.fixed(&again)}
	c := &configured{cfg: again.Core, done: make(chan error, 1)}
	if d.read.Policy != again.Policy || !reflect.DeepEqual(d.read.Core.Priority, again.Core.Priority) || !reflect.DeepEqual(d.read.Core.Partitions, again.Core.Partitions) {
		if c.policy, err = d.openPolicy(&again); err != nil {
			return nil, err
		}
	}
	select {
	case d.configured <- c:
	case <-d.dead:
		return nil, d.reason
	}
	if err := <-c.done; err != nil {
		return nil, again.At("priority", err)
	}
	d.read = again
	return done, nil
}

// take applies a configuration that was read again.
func (l *loop) take(c *configured) {
	if c.policy != nil {
		if err := l.core.SetPriority(c.cfg.Priority, c.cfg.Partitions); err != nil {
			c.done <- err
			return
		}
		l.replacePolicy(c.policy)
	}
	l.core.Configure(c.cfg)
	l.warnUnknown(l.core)
	c.done <- nil
}

// fixed resets in again what cannot change while the head runs, and names the settings that differ.
func (c *Config) fixed(again *Config) []string {
	names := []string{}
	note := func(name string, changed bool) {
		if changed {
			names = append(names, name)
		}
	}
	note("cluster", c.Core.Cluster != again.Core.Cluster)
	note("silence", c.Core.Silence != again.Core.Silence)
	note("listen", c.Listen != again.Listen)
	note("socket", c.Socket != again.Socket)
	note("state", c.State != again.State)
	note("http", c.HTTP != again.HTTP)
	note("whatif", !reflect.DeepEqual(c.WhatIf, again.WhatIf))
	note("page", c.Page != again.Page)
	note("record", c.Record != again.Record || c.RecordLimit != again.RecordLimit)
	note("tls_dir", c.TLSDir != again.TLSDir)
	note("connections", c.Connections != again.Connections.complete())
	note("join", c.Join != again.Join)
	note("address", c.Address != again.Address)
	again.Core.Cluster, again.Core.Silence = c.Core.Cluster, c.Core.Silence
	again.Core.Heads, again.Core.Term = c.Core.Heads, c.Core.Term
	return names
}

// settingOf is what the file calls the fields of head.Config whose names are not its own.
var settingOf = map[string]string{"Users": "limits", "NodeRules": "nodes", "Holds": "grants", "Authority": "tls_dir"}

// changed names the settings of the core, and the policy, that are not as they were.
func (c *Config) changed(again *Config) []string {
	names := map[string]bool{}
	if c.Policy != again.Policy {
		names["policy"] = true
	}
	was, is := reflect.ValueOf(c.Core), reflect.ValueOf(again.Core)
	for i := range was.NumField() {
		field := was.Type().Field(i).Name
		switch {
		case field == "Cluster" || field == "Silence" || field == "Zone" || field == "Heads" || field == "Term": // see fixed
		case reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()):
		case settingOf[field] != "":
			names[settingOf[field]] = true
		default:
			names[snake(field)] = true
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(names))...)
}

// snake writes a field's name as the file does.
func snake(field string) string {
	var b strings.Builder
	for i, r := range field {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// serveReload has the head read its configuration again.
func serveReload(q *request) (any, error) {
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	if !admin {
		return nil, refuse(http.StatusForbidden, "only administrators may have the head read its configuration again")
	}
	q.log.Info("the configuration is read again", "user", q.who.user)
	done, err := q.reload()
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "%v: everything stays as it was", err)
	}
	return done, nil
}

// DefaultState is the default folder in which a head keeps its records; "" if this user has none.
func DefaultState() string {
	if os.Getuid() == 0 {
		return "/var/lib/muster/head"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "muster", "head")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "muster", "head")
}

// RaiseFileLimit lets the head have as many connections as the system allows it.
func RaiseFileLimit(log *slog.Logger) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("the limit of open files cannot be raised", "error", err)
	}
	if limit.Max < 16384 {
		log.Warn("few files may be open, and each node needs one: raise the limit (ulimit -Hn, LimitNOFILE)", "limit", limit.Max)
	}
}
