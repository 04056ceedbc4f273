package daemon

import (
	"fmt"
	"slices"
	"time"

	"muster/head"
	"muster/internal/units"
	"muster/internal/wholefile"
	"muster/model"
	"muster/model/clusterfile"
	"muster/model/slurmopt"
	"muster/model/strictyaml"
	"muster/policy"
	"muster/policy/catalog"
)

// fileLimit is larger than any real configuration: one with 100,000 users fits.
var fileLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it the configuration of a head?"}

// ReadFile reads a head's configuration, a strict YAML file. Settings that the file does not name
// keep their values.
func ReadFile(path string, into *Config) error {
	text, err := fileLimit.ReadFile(path)
	if err != nil {
		return err
	}
	return Read(text, path, into)
}

// Read parses a configuration. name stands for the file in errors.
func Read(text []byte, name string, into *Config) error {
	d := &decoder{strictyaml.File{Name: name, What: "a head's configuration", Empty: "say what differs from the defaults, as policy: easy, or do without a file"}}
	return strictyaml.Into(&d.File, text, into, d.document)
}

type decoder struct{ strictyaml.File }

func (d *decoder) document(root strictyaml.Node, c *Config) error {
	_, err := d.Fields(root, d.What,
		strictyaml.Key("cluster", d.Identifier("cluster", &c.Core.Cluster)),
		strictyaml.Key("policy", d.Text("policy", &c.Policy)),
		strictyaml.Key("priority", d.Text("priority", &c.Priority)),
		strictyaml.Key("windows", func(n strictyaml.Node) error { return d.windows(n, &c.Core) }),
		strictyaml.Key("nodes", func(n strictyaml.Node) error { return d.nodes(n, &c.Core) }),
		strictyaml.Key("partitions", func(n strictyaml.Node) (err error) {
			c.Core.Partitions, err = clusterfile.Partitions(&d.File, n)
			return err
		}),
		strictyaml.Key("admins", func(n strictyaml.Node) error { return d.admins(n, &c.Core) }),
		strictyaml.Key("limits", func(n strictyaml.Node) error { return d.limits(n, &c.Core) }),
		strictyaml.Key("licenses", func(n strictyaml.Node) (err error) {
			c.Core.Licenses, err = entriesOf(d, n, "a licence", func(n strictyaml.Node, count *int) error { return d.Count("licenses", 1, most, count)(n) })
			return err
		}),
		strictyaml.Key("grants", func(n strictyaml.Node) error { return d.holds(n, &c.Core.Holds) }),
		strictyaml.Key("max_job_count", d.Count("max_job_count", 1, most, &c.Core.MaxJobCount)),
		strictyaml.Key("max_array_size", d.Count("max_array_size", 1, slurmopt.MaxArrayTasks, &c.Core.MaxArraySize)),
		strictyaml.Key("node_timeout", d.some("node_timeout", &c.Core.NodeTimeout)),
		strictyaml.Key("silence", d.some("silence", &c.Core.Silence)),
		strictyaml.Key("grace", d.some("grace", &c.Core.Grace)),
		strictyaml.Key("time_limit", d.Duration("time_limit", &c.Core.TimeLimit)),
		strictyaml.Key("inactive_limit", d.some("inactive_limit", &c.Core.InactiveLimit)),
		strictyaml.Key("keep", d.some("keep", &c.Core.Keep)),
		strictyaml.Key("keep_output", d.some("keep_output", &c.Core.KeepOutput)),
		strictyaml.Key("listen", strictyaml.Value(&d.File, "listen", &c.Listen, parseAddress)),
		strictyaml.Key("socket", d.Text("socket", &c.Socket)),
		strictyaml.Key("state", d.Text("state", &c.State)),
		strictyaml.Key("http", strictyaml.Value(&d.File, "http", &c.HTTP, parseAddress)),
		strictyaml.Key("page", strictyaml.Value(&d.File, "page", &c.Page, parsePage)),
		strictyaml.Key("record", func(n strictyaml.Node) error { return d.record(n, c) }),
		strictyaml.Key("whatif", func(n strictyaml.Node) error { return d.whatif(n, &c.WhatIf) }),
		strictyaml.Key("join", d.Text("join", &c.Join)),
		strictyaml.Key("address", strictyaml.Value(&d.File, "address", &c.Address, parseAddress)),
		strictyaml.Key("tls_dir", d.Text("tls_dir", &c.TLSDir)),
		strictyaml.Key("connections", func(n strictyaml.Node) error { return d.connections(n, &c.Connections) }),
	)
	if err != nil {
		return err
	}
	c.Said = map[string]string{}
	entries, err := d.Entries(root, d.What)
	for _, e := range entries {
		c.Said[e.Key.Text] = fmt.Sprintf("%s:%d:%d", d.Name, e.Key.Place.Line, e.Key.Place.Column)
	}
	return err
}

// some reads a duration above 0.
func (d *decoder) some(what string, into *time.Duration) func(strictyaml.Node) error {
	return strictyaml.Value(&d.File, what, into, func(s string) (time.Duration, error) {
		t, err := time.ParseDuration(s)
		if err != nil || t <= 0 {
			return 0, fmt.Errorf("must be a time above 0 as 30s or 5m, not %q", s)
		}
		return t, nil
	})
}

func (d *decoder) admins(n strictyaml.Node, c *head.Config) (err error) {
	c.Admins, err = d.names(n, "admins", "users")
	return err
}

// names reads a list of names.
func (d *decoder) names(n strictyaml.Node, what, of string) ([]string, error) {
	items, ok := strictyaml.Items(n)
	if !ok {
		return nil, d.Errorf(strictyaml.Start(n), "%s must be a list of %s, as [alice, bob], not %s", what, of, strictyaml.Kind(n))
	}
	names := []string{}
	for _, item := range items {
		var name string
		if err := d.Identifier("a name of "+of, &name)(item); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// windows reads reservations and maintenance windows.
func (d *decoder) windows(n strictyaml.Node, c *head.Config) error {
	items, ok := strictyaml.Items(n)
	if !ok || len(items) > policy.MaxWindows {
		return d.Errorf(strictyaml.Start(n), "windows must be a list of at most %d, as - {name: upkeep, from: 2031-05-06T08:00, until: 2031-05-06T18:00}", policy.MaxWindows)
	}
	zone := time.UTC
	if c.Zone != nil {
		zone = c.Zone
	}
	c.Windows = nil
	for _, item := range items {
		w, err := d.window(item, zone)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.Windows, func(o head.Window) bool { return o.Name == w.Name }) {
			return d.Errorf(strictyaml.Start(item), "there are two windows of the name %s: jobs name them (--reservation)", w.Name)
		}
		c.Windows = append(c.Windows, w)
	}
	return nil
}

func (d *decoder) window(n strictyaml.Node, zone *time.Location) (w head.Window, err error) {
	at := func(what string, into *time.Duration) func(strictyaml.Node) error {
		return strictyaml.Value(&d.File, what, into, func(s string) (time.Duration, error) {
			for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
				if t, err := time.ParseInLocation(layout, s, zone); err == nil && t.Unix() > 0 {
					return time.Duration(t.UnixNano()), nil
				}
			}
			return 0, fmt.Errorf("must be a time as 2031-05-06T08:00, not %q", s)
		})
	}
	given, err := d.Fields(n, "a window",
		strictyaml.Key("name", d.Identifier("name", &w.Name)),
		strictyaml.Key("from", at("from", &w.From)), strictyaml.Key("until", at("until", &w.Until)),
		strictyaml.Key("nodes", strictyaml.Value(&d.File, "nodes", &w.Nodes, model.ExpandNodes)),
		strictyaml.Key("users", func(n strictyaml.Node) (err error) { w.Users, err = d.names(n, "users", "users"); return err }),
		strictyaml.Key("accounts", func(n strictyaml.Node) (err error) { w.Accounts, err = d.names(n, "accounts", "accounts"); return err }),
	)
	if err == nil && (!given["name"] || !given["from"] || !given["until"] || w.Until <= w.From) {
		err = d.Errorf(strictyaml.Start(n), "a window needs a name, from, and a later until")
	}
	return w, err
}

// nodes reads what administrators say of nodes.
func (d *decoder) nodes(n strictyaml.Node, c *head.Config) error {
	items, ok := strictyaml.Items(n)
	if !ok || len(items) > maxNodeRules {
		return d.Errorf(strictyaml.Start(n), "nodes must be a list of at most %d, as - {nodes: \"n[1-4]\", vgpus: 2, policy: sjf}", maxNodeRules)
	}
	c.NodeRules = nil
	for _, item := range items {
		rule, err := d.nodeRule(item)
		if err != nil {
			return err
		}
		c.NodeRules = append(c.NodeRules, rule)
	}
	return nil
}

// maxNodeRules is more than anybody writes; each node is looked for in all of them.
const maxNodeRules = 1000

func (d *decoder) nodeRule(n strictyaml.Node) (r head.NodeRule, err error) {
	s, keep := &r.Settings, 0
	period := time.Duration(0)
	given, err := d.Fields(n, "an entry of nodes",
		strictyaml.Key("nodes", strictyaml.Value(&d.File, "nodes", &r.Nodes, model.ExpandNodes)),
		strictyaml.Key("weight", d.Count("weight", 1, model.MaxNodeWeight, &r.Weight)),
		strictyaml.Key("features", func(n strictyaml.Node) (err error) { r.Features, err = d.features(n); return err }),
		strictyaml.Key("vgpus", d.Count("vgpus", 1, model.MaxVGPUs, &s.VGPUs)),
		strictyaml.Key("sharing", d.Text("sharing", &s.Sharing)),
		strictyaml.Key("policy", d.Text("policy", &s.Policy)),
		strictyaml.Key("above", d.Count("above", 1, most, &s.Above)),
		strictyaml.Key("keep", d.Count("keep", 0, most, &keep)),
		strictyaml.Key("profiling", d.some("profiling", &period)),
	)
	if given["keep"] {
		s.Keep = &keep
	}
	s.Profiling = period.Seconds()
	if err == nil {
		err = s.Check() // as nodes do
		if err != nil {
			err = d.Errorf(strictyaml.Start(n), "%v", err)
		}
	}
	return r, err
}

// features reads a list of features.
func (d *decoder) features(n strictyaml.Node) ([]string, error) {
	names, err := d.names(n, "features", "features")
	for _, name := range names {
		if wrong := model.CheckFeature(name); wrong != nil {
			return nil, d.Errorf(strictyaml.Start(n), "%v", wrong)
		}
	}
	return names, err
}

// record reads the file and the limit of the recording.
func (d *decoder) record(n strictyaml.Node, c *Config) error {
	_, err := d.Fields(n, "record",
		strictyaml.Key("file", d.Text("file", &c.Record)),
		strictyaml.Key("limit", d.Size("limit", &c.RecordLimit)),
	)
	return err
}

// whatif reads when the history is simulated, and the limits of that process.
func (d *decoder) whatif(n strictyaml.Node, w *WhatIf) error {
	_, err := d.Fields(n, "whatif",
		strictyaml.Key("at", strictyaml.Value(&d.File, "at", &w.At, parseTimeOfDay)),
		strictyaml.Key("policies", func(n strictyaml.Node) error { return d.specs(n, &w.Policies) }),
		strictyaml.Key("time", d.some("time", &w.Time)),
		strictyaml.Key("memory", strictyaml.Value(&d.File, "memory", &w.Memory, parseMemory)),
	)
	return err
}

// leastMemory is the memory that the simulating process needs to start at all.
const leastMemory = 64 << 20

func parseMemory(s string) (int64, error) {
	size, err := units.ParseSize(s)
	if err != nil || size < leastMemory {
		return 0, fmt.Errorf("must be a size of at least %s, as 2GiB, not %q", units.FormatSize(leastMemory), s)
	}
	return size, nil
}

// specs reads a list of policies.
func (d *decoder) specs(n strictyaml.Node, into *[]string) error {
	items, ok := strictyaml.Items(n)
	if !ok || len(items) > maxTried {
		return d.Errorf(strictyaml.Start(n), "policies must be a list of at most %d, as [easy:depth=500, mine.star]", maxTried)
	}
	*into = []string{}
	for _, item := range items {
		var spec string
		if err := d.Text("a policy", &spec)(item); err != nil {
			return err
		}
		if !isFile(spec) {
			if _, err := catalog.New(spec); err != nil {
				return d.Errorf(strictyaml.Start(item), "%v", err)
			}
		}
		*into = append(*into, spec)
	}
	return nil
}

// limits reads the limits of every user, and those of single users.
func (d *decoder) limits(n strictyaml.Node, c *head.Config) error {
	var users strictyaml.Node
	_, err := d.Fields(n, "limits",
		strictyaml.Key("accounts", func(n strictyaml.Node) (err error) {
			c.Accounts, err = entriesOf(d, n, "an account", func(n strictyaml.Node, l *head.Limits) error {
				_, err := d.Fields(n, "limits of an account", d.bounds(l)...)
				return err
			})
			return err
		}),
		strictyaml.Key("qos", func(n strictyaml.Node) (err error) {
			c.QOS, err = entriesOf(d, n, "a QOS", func(n strictyaml.Node, l *head.QOSLimits) error {
				_, err := d.Fields(n, "limits of a QOS", append(d.bounds(&l.Limits), strictyaml.Key("per_user", func(n strictyaml.Node) error {
					_, err := d.Fields(n, "limits of each user in a QOS", d.bounds(&l.PerUser)...)
					return err
				}))...)
				return err
			})
			return err
		}),
		strictyaml.Key("default", func(n strictyaml.Node) error {
			c.Limits = head.Limits{Jobs: c.Limits.Jobs}
			return d.limit(n, &c.Limits)
		}),
		strictyaml.Key("users", func(n strictyaml.Node) error { users = n; return nil }),
	)
	if err != nil || users == nil {
		return err
	}
	c.Users, err = entriesOf(d, users, "a user", func(n strictyaml.Node, own *head.Limits) error {
		*own = c.Limits // what a user's entry does not say is as for all users
		return d.limit(n, own)
	})
	return err
}

// entriesOf reads limits by the names of those that they are of.
func entriesOf[T any](d *decoder, n strictyaml.Node, what string, read func(strictyaml.Node, *T) error) (map[string]T, error) {
	entries, err := d.Entries(n, what)
	if err != nil {
		return nil, err
	}
	all := map[string]T{}
	for _, e := range entries {
		if err := strictyaml.CheckName(e.Key.Text); err != nil {
			return nil, d.Errorf(e.Key.Place, "the name of %s %v", what, err)
		}
		var one T
		if err := read(e.Value, &one); err != nil {
			return nil, err
		}
		all[e.Key.Text] = one
	}
	return all, nil
}

const most = 1 << 30

func (d *decoder) limit(n strictyaml.Node, l *head.Limits) error {
	_, err := d.Fields(n, "limits of a user", append(d.bounds(l),
		strictyaml.Key("weight", d.Count("weight", 1, model.MaxWeight, &l.Weight)),
		strictyaml.Key("class", strictyaml.Value(&d.File, "class", &l.Latency, parseClass)))...)
	return err
}

// bounds are the keys of limits that users, accounts and classes have.
func (d *decoder) bounds(l *head.Limits) []strictyaml.Field {
	return []strictyaml.Field{
		strictyaml.Key("max_submit_jobs", d.Count("max_submit_jobs", 0, most, &l.Jobs)),
		strictyaml.Key("running", d.Count("running", 0, most, &l.Running)),
		strictyaml.Key("gpus", d.Count("gpus", 0, most, &l.GPUs)),
		strictyaml.Key("cores", d.Count("cores", 0, most, &l.Cores)),
		strictyaml.Key("memory", d.Size("memory", &l.Memory)),
		strictyaml.Key("deny_on_limit", strictyaml.Value(&d.File, "deny_on_limit", &l.Deny, parseYes)),
	}
}

// parseYes reads true or false.
func parseYes(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("must be true or false, not %q", s)
	}
	return s == "true", nil
}

// parseClass says whether a user's jobs may be of class latency.
func parseClass(s string) (latency bool, err error) {
	if s != "any" && s != model.ClassBatch {
		return false, fmt.Errorf("must be any or %s, not %q", model.ClassBatch, s)
	}
	return s == "any", nil
}

// holds reads how jobs have their GPUs if their users say nothing.
func (d *decoder) holds(n strictyaml.Node, h *model.Holds) error {
	kind := func(name string, into *model.Hold, keys ...strictyaml.Field) strictyaml.Field {
		keys = append(keys, strictyaml.Key("reach", strictyaml.Value(&d.File, "reach", &into.Reach, model.ParseReach)))
		return strictyaml.Key(name, func(n strictyaml.Node) error {
			_, err := d.Fields(n, "grants of "+name, keys...)
			return err
		})
	}
	_, err := d.Fields(n, "grants",
		kind("whole", &h.Whole), kind("remote", &h.Remote),
		kind("shares", &h.Shares, strictyaml.Key("beyond", strictyaml.Value(&d.File, "beyond", &h.Shares.Beyond, model.ParseBeyond))),
	)
	return err
}

func (d *decoder) connections(n strictyaml.Node, c *Connections) error {
	const most = 1 << 20 // more than the descriptors of a process
	_, err := d.Fields(n, "connections",
		strictyaml.Key("unknown", d.Count("unknown", 1, most, &c.Unknown)),
		strictyaml.Key("users", d.Count("users", 1, most, &c.All)),
		strictyaml.Key("user", d.Count("user", 1, most, &c.User)),
		strictyaml.Key("nodes", d.Count("nodes", 1, most, &c.Nodes)),
		strictyaml.Key("node", d.Count("node", 1, most, &c.Node)),
		strictyaml.Key("greet", d.some("greet", &c.Greet)),
		strictyaml.Key("idle", d.some("idle", &c.Idle)),
		strictyaml.Key("request", d.some("request", &c.Request)),
	)
	return err
}

// parsePage reads the address of the page.
func parsePage(s string) (string, error) {
	if s == NoPage {
		return s, nil
	}
	return parseAddress(s)
}

var parseAddress = strictyaml.ListenAddress("9422")
