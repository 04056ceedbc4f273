package daemon

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/model"
)

func TestRead(t *testing.T) {
	cfg := Default()
	if err := Read([]byte(`
cluster: tsubame
policy: easy
priority: /etc/muster/priority.yaml
record: {file: decisions.jsonl, limit: 1MiB}
whatif: {at: "22:30", policies: [easy:depth=5, mine.star:a=b], time: 5m, memory: 1GiB}
windows:
  - {name: upkeep, from: 2031-05-06T08:00, until: 2031-05-06T18:00, nodes: "n[1-2]", users: [alice]}
nodes:
  - {vgpus: 2, policy: sjf, profiling: 10s, weight: 10}
  - {nodes: "n[1-2]", sharing: exclusive, above: 3, keep: 0}
partitions:
  gpu: {Nodes: "g[1-2]", Default: YES, MaxTime: 1-00:00:00, PriorityTier: 2}
  cpu: {Lenders: g1, Nodes: c1, AllowUsers: [alice]}
admins: [alice, bob]
limits:
  default: {max_submit_jobs: 1000, gpus: 8}
  users:
    carol: {gpus: 64, memory: 1TiB, class: any, weight: 4}
  accounts: {physics: {gpus: 32}}
  qos: {long: {running: 40, per_user: {cores: 64}, deny_on_limit: true}}
grants: {whole: {reach: cluster}, shares: {beyond: all}, remote: {reach: device}}
licenses: {matlab: 4}
max_job_count: 5000
max_array_size: 1001
node_timeout: 10m
silence: 20s
grace: 1m
time_limit: 2h
inactive_limit: 3m
keep: 30m
keep_output: 48h
listen: :9500
socket: /run/muster/head.sock
state: /var/lib/muster/head
http: 127.0.0.1:9423
tls_dir: /etc/muster/head
connections: {user: 16, greet: 5s}
`), "head.yaml", &cfg); err != nil {
		t.Fatal(err)
	}
	at := func(hour int) time.Duration {
		return time.Duration(time.Date(2031, 5, 6, hour, 0, 0, 0, time.UTC).UnixNano())
	}
	want := Config{
		Core: head.Config{
			Cluster: "tsubame", Admins: []string{"alice", "bob"}, Limits: head.Limits{Jobs: 1000, GPUs: 8},
			Licenses: map[string]int{"matlab": 4},
			Accounts: map[string]head.Limits{"physics": {GPUs: 32}}, QOS: map[string]head.QOSLimits{"long": {Limits: head.Limits{Running: 40, Deny: true}, PerUser: head.Limits{Cores: 64}}},
			Users:       map[string]head.Limits{"carol": {Jobs: 1000, GPUs: 64, Memory: 1 << 40, Latency: true, Weight: 4}},
			MaxJobCount: 5000, MaxArraySize: 1001, Holds: model.Holds{Whole: model.Hold{Reach: model.ReachCluster}, Shares: model.Hold{Reach: model.ReachNode, Beyond: model.AllBeyond}},

			NodeTimeout: 10 * time.Minute, Silence: 20 * time.Second, Grace: time.Minute, TimeLimit: 2 * time.Hour, InactiveLimit: 3 * time.Minute, Keep: 30 * time.Minute, KeepOutput: 48 * time.Hour,
			Windows: []head.Window{{Name: "upkeep", From: at(8), Until: at(18), Nodes: []string{"n1", "n2"}, Users: []string{"alice"}}},
			Partitions: []model.Partition{
				{Name: "gpu", Nodes: []string{"g1", "g2"}, Default: true, MaxTime: 24 * time.Hour, PriorityTier: 2},
				{Name: "cpu", Nodes: []string{"c1"}, Lenders: []string{"g1"}, PriorityTier: 1, AllowUsers: []string{"alice"}},
			},
			NodeRules: []head.NodeRule{
				{Weight: 10, Settings: model.NodeSettings{VGPUs: 2, Policy: "sjf", Profiling: 10}},
				{Nodes: []string{"n1", "n2"}, Settings: model.NodeSettings{Sharing: model.Exclusive, Above: 3, Keep: new(int)}},
			},
		},
		Policy: "easy", Priority: "/etc/muster/priority.yaml", Listen: ":9500", Socket: "/run/muster/head.sock", State: "/var/lib/muster/head", HTTP: "127.0.0.1:9423", TLSDir: "/etc/muster/head",
		Record: "decisions.jsonl", RecordLimit: 1 << 20,
		WhatIf:      WhatIf{At: 22*time.Hour + 30*time.Minute, Policies: []string{"easy:depth=5", "mine.star:a=b"}, Time: 5 * time.Minute, Memory: 1 << 30},
		Connections: DefaultConnections,
	}
	want.Connections.User, want.Connections.Greet = 16, 5*time.Second
	if at := cfg.Said["silence"]; len(cfg.Said) != 27 || at != "head.yaml:27:1" {
		t.Errorf("silence is said at %s, of %d settings", at, len(cfg.Said))
	}
	cfg.Said = nil
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	for text, want := range map[string]string{
		"":                               "head.yaml:1:1: the file is empty: say what differs from the defaults",
		"polcy: easy":                    `head.yaml:1:1: "polcy" is no key of a head's configuration: did you mean policy?`,
		"admins: alice":                  "head.yaml:1:9: admins must be a list of users",
		"admins: [a b]":                  "head.yaml:1:10: a name of users: must be made of letters",
		"limits: {default: {gpus: -1}}":  "head.yaml:1:26: gpus: must be a whole number",
		"limits: {users: {a: {gpu: 1}}}": `head.yaml:1:22: "gpu" is no key of limits of a user: did you mean gpus?`,
		"windows: [{name: a, from: 2031-05-06T08:00}]":       "head.yaml:1:11: a window needs a name, from, and a later until",
		"partitions: {a: {MaxTime: soon}}":                   "head.yaml:1:27: MaxTime: time",
		"partitions: {a: {Default: YES}, b: {Default: YES}}": "head.yaml:1:33: partitions a and b are both the default: only one can be",
		"partitions: [a]":                  "head.yaml:1:13: partitions",
		"windows: [{name: a, from: noon}]": "head.yaml:1:27: from: must be a time as 2031-05-06T08:00",
		"windows: [{name: a, from: 2031-05-06, until: 2031-05-07T00:00}]":                                 "head.yaml:1:27: from: must be a time as",
		"windows:" + strings.Repeat("\n- {name: a, from: 2031-05-06T08:00, until: 2031-05-06T09:00}", 2):  "head.yaml:3:3: there are two windows of the name a",
		"windows:" + strings.Repeat("\n- {name: a, from: 2031-05-06T08:00, until: 2031-05-06T09:00}", 65): "windows must be a list of at most 64",
		"nodes: {vgpus: 2}":                           "head.yaml:1:8: nodes must be a list of at most 1000",
		"nodes: [{vgpu: 2}]":                          `head.yaml:1:10: "vgpu" is no key of an entry of nodes: did you mean vgpus?`,
		"nodes: [{vgpus: 0}]":                         "head.yaml:1:17: vgpus: must be a whole number from 1 to 1024",
		"nodes: [{policy: easy}]":                     `head.yaml:1:9: policy: must be one of fcfs, sjf, credit, not "easy"`,
		"nodes: [{sharing: some}]":                    `head.yaml:1:9: sharing: must be shared or exclusive, not "some"`,
		"nodes: [{profiling: 1ms}]":                   "head.yaml:1:9: profiling: a period of 0.001 s: give 1 s to 3600 s",
		"nodes: [{keep: -1}]":                         "head.yaml:1:16: keep: must be a whole number from 0",
		"limits: {default: {class: latency}}":         "head.yaml:1:27: class: must be any or batch, not \"latency\"",
		"limits: {default: {weight: 1001}}":           "head.yaml:1:28: weight: must be a whole number from 1 to 1000",
		"grants: {share: {reach: node}}":              `head.yaml:1:10: "share" is no key of grants: did you mean shares?`,
		"grants: {shares: {reach: far}}":              `head.yaml:1:26: reach: "far" is no reach: write device, node, cluster`,
		"grants: {shares: {beyond: much}}":            `head.yaml:1:27: beyond: `,
		"grants: {whole: {beyond: 1GiB}}":             `head.yaml:1:18: "beyond" is no key of grants of whole`,
		"nodes: [{features: [a b]}]":                  `head.yaml:1:21: a name of features: must be made of`,
		"record: here":                                "record",
		"whatif: {at: noon}":                          "head.yaml:1:14: at: must be a time of day as 03:00, or never",
		"whatif: {policies: easy}":                    "head.yaml:1:20: policies must be a list of at most 100",
		"whatif: {policies: [esay]}":                  `head.yaml:1:21: there is no policy "esay": did you mean "easy"?`,
		"whatif: {memory: 1MiB}":                      "head.yaml:1:18: memory: must be a size of at least 64",
		"whatif: {time: 0}":                           "head.yaml:1:16: time: must be a time above 0",
		"silence: 0":                                  "head.yaml:1:10: silence: must be a time above 0",
		"listen: 9422":                                "head.yaml:1:9: listen: must be HOST:PORT",
		"connections: {user: 0}":                      "head.yaml:1:21: user: must be a whole number from 1",
		"cluster: a\ncluster: b":                      "head.yaml:2:1: \"cluster\" is given twice",
		"limits: {users: {a: {}, a: {}}}":             "is given twice",
		"licenses: {a: 0}":                            "must be a whole number from 1",
		"limits: {qos: {a: {weight: 2}}}":             `"weight" is no key of limits of a QOS`,
		"limits: {qos: {a: {per_user: 2}}}":           "head.yaml:1:30:",
		"limits: {accounts: {a: {gpus: -1}}}":         "gpus: must be a whole number from 0",
		"limits: {accounts: {a: {deny_on_limit: 1}}}": "must be true or false",
	} {
		before := Default()
		err := Read([]byte(text), "head.yaml", &before)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
		if !reflect.DeepEqual(before, Default()) {
			t.Errorf("%q changed the configuration", text)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	f.Add("cluster: a\nlimits: {default: {max_submit_jobs: 1}, users: {a: {gpus: 2}}}\nadmins: [a]\nsilence: 5s\n")
	f.Add("nodes:\n- {vgpus: 2, policy: sjf, profiling: 10s, weight: 10}\n- {nodes: \"n[1-2]\", sharing: exclusive, above: 3, keep: 0}\n")
	f.Add("grants: {whole: {reach: node}, shares: {reach: cluster, beyond: 4GiB}, remote: {}}\nlimits: {default: {class: any, weight: 9}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := Default()
		if err := Read([]byte(text), "f", &cfg); err != nil && !reflect.DeepEqual(cfg, Default()) {
			t.Error("what was refused changed the configuration")
		}
	})
}

// What changes while a head runs, and what does not.
func TestFixed(t *testing.T) {
	was, again := Default(), Default()
	again.Core.Cluster, again.Policy, again.Core.Silence, again.Core.Admins = "other", "fcfs", time.Hour, []string{"alice"}
	again.Core.NodeRules, again.Core.MaxJobCount = []head.NodeRule{{}}, 7
	if names := was.changed(&again); !reflect.DeepEqual(names, []string{"admins", "max_job_count", "nodes", "policy"}) {
		t.Errorf("changed %v", names)
	}
	if names := was.fixed(&again); !reflect.DeepEqual(names, []string{"cluster", "silence"}) {
		t.Errorf("named %v", names)
	}
	if again.Core.Cluster != was.Core.Cluster || again.Core.Silence != was.Core.Silence || len(again.Core.Admins) != 1 {
		t.Errorf("kept %+v", again.Core)
	}
}
