package head_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/model"
	"muster/policy/catalog"
	"muster/policy/mccs"
	"muster/wire/agent"
	"muster/wire/api"
)

// configuring is a program that says how nodes serve programs, and what it hears of them.
type configuring struct {
	say   func(*mccs.Library) error
	heard string
}

func (c *configuring) Init(l *mccs.Library) error {
	return l.SetCallBack(mccs.NewJobArrival, func(j *mccs.Job) error { return l.AddJob(j, l.UnassignedJobQueue) })
}

func (c *configuring) Main(l *mccs.Library) error {
	c.heard = ""
	for _, n := range l.GetNodeList() {
		q, info := l.QueryNodeQueues(n), l.QueryNodeInfo(n)
		c.heard += fmt.Sprintf("%s %v %v: %d, %d, %v. ", n.Name, info.Alive, info.LastWord, q.Programs, q.Waiting, q.Age)
	}
	c.heard = strings.TrimSpace(c.heard)
	return c.say(l)
}

// configured is a head whose nodes take what they are told, but for one called stubborn.
type configured struct {
	t    *testing.T
	core *head.Core
	cfg  head.Config
	now  time.Duration
	disk map[head.Bucket]map[string][]byte
	told map[head.Session]model.NodeSettings
	sent []string
	next head.Session
	of   map[string]head.Session
}

func newConfigured(t *testing.T, cfg head.Config, p *configuring) *configured {
	c := &configured{t: t, cfg: cfg, now: began, disk: map[head.Bucket]map[string][]byte{}, told: map[head.Session]model.NodeSettings{}, of: map[string]head.Session{}}
	c.boot(p)
	return c
}

// boot starts a head from what the last one wrote.
func (c *configured) boot(p *configuring) {
	core, err := head.Restore(c.cfg, mccs.NewPolicy(p), "mine", func(visit func(head.Record) error) error {
		for _, b := range []head.Bucket{head.Meta, head.Nodes} {
			for _, k := range slices.Sorted(maps.Keys(c.disk[b])) {
				if err := visit(head.Record{Bucket: b, Key: []byte(k), Value: c.disk[b][k]}); err != nil {
					return err
				}
			}
		}
		return nil
	}, c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	c.core = core
	c.of = map[string]head.Session{}
}

// is lets a second pass, and the head and the nodes do what there is to do. It returns what nodes were told.
func (c *configured) is(events ...head.Event) string {
	c.now += time.Second
	c.sent = nil
	for _, ev := range events {
		c.core.Handle(c.now, ev)
	}
	for again := true; again; {
		c.core.Step(c.now)
		again = c.carryOut(c.core.Take()) || c.core.Next() <= c.now
	}
	return strings.Join(c.sent, "; ")
}

func (c *configured) carryOut(e head.Effects) (did bool) {
	for _, r := range e.Records {
		if c.disk[r.Bucket] == nil {
			c.disk[r.Bucket] = map[string][]byte{}
		}
		c.disk[r.Bucket][string(r.Key)] = r.Value
	}
	for _, s := range e.Sends {
		switch m := s.Message.(type) {
		case agent.Ping:
			c.core.Handle(c.now, head.Said{Session: s.Session, Message: agent.Pong{}})
		case agent.Configure:
			c.sent = append(c.sent, fmt.Sprintf("%d: %v", s.Session, m.Settings))
			answer := agent.Configured{Told: m.Settings, InForce: m.Settings.Over(model.NodeSettings{VGPUs: 4, Policy: "fcfs"})}
			if c.of["stubborn"] == s.Session {
				answer = agent.Configured{Told: m.Settings, InForce: model.NodeSettings{VGPUs: 4, Policy: "fcfs"}, Error: "it does not want to"}
			}
			c.told[s.Session] = m.Settings
			c.core.Handle(c.now, head.Said{Session: s.Session, Message: answer})
		}
		did = true
	}
	return did
}

// greet has a node greet in a new session, and then say what an earlier head told it.
func (c *configured) greet(name string, before model.NodeSettings) []head.Event {
	c.next++
	c.of[name] = c.next
	return []head.Event{
		head.Greeted{Session: c.next, Hello: agent.Hello{Version: agent.Version, Node: name, Incarnation: "x", Cores: 1, Memory: 1 << 30}},
		head.Said{Session: c.next, Message: agent.Configured{Told: before, InForce: before.Over(model.NodeSettings{VGPUs: 4, Policy: "fcfs"})}},
	}
}

func (c *configured) node(name string) api.Node {
	nodes, _ := c.core.NodesFrom(c.now, 0, 10)
	at := slices.IndexFunc(nodes, func(n api.Node) bool { return n.Name == name })
	return nodes[at]
}

func (c *configured) want(got, want string) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Nodes are told what administrators and the policy say, once in each session, and again when it changes.
func TestNodesAreConfigured(t *testing.T) {
	quiet := func(*mccs.Library) error { return nil }
	p := &configuring{say: quiet}
	c := newConfigured(t, head.Config{
		Cluster: "test", NodeTimeout: time.Minute, Silence: time.Minute, Admins: []string{"root"},
		NodeRules: []head.NodeRule{{Nodes: []string{"n1", "stubborn"}, Settings: model.NodeSettings{VGPUs: 3, Policy: "sjf"}}},
	}, p)
	none := model.NodeSettings{}
	c.want(c.is(c.greet("n1", none)...), "1: vgpus 3, policy sjf")
	c.want(c.is(c.greet("n2", none)...), "")
	c.want(c.is(), "")
	if s := c.node("n2").Settings; s == nil || s.Asked != nil || s.InForce == nil || s.InForce.VGPUs != 4 {
		t.Errorf("%+v", s)
	}

	// The policy goes before what administrators say, field by field.
	p.say = func(l *mccs.Library) error { return l.SetNodeVGPUConf(l.GetNode(mccs.Attributes{Name: "n1"}), 1) }
	c.want(c.is(head.Submit{Caller: head.Caller{User: "alice"}, Submission: api.Submission{Arguments: []string{"a"}, Directory: "/", Options: []string{"-n1"}}, Secret: "s"}), "1: vgpus 1, policy sjf")
	if s := c.node("n1").Settings; s.Asked.String() != "vgpus 1, policy sjf" || s.InForce.String() != "vgpus 1, policy sjf" || s.Error != "" {
		t.Errorf("%+v", s)
	}

	// One that refuses is shown to be so.
	c.want(c.is(c.greet("stubborn", none)...), "3: vgpus 3, policy sjf")
	n := c.node("stubborn")
	if n.Settings.Error != "it does not want to" || n.Settings.InForce.VGPUs != 4 || n.State != api.NodeIdle || n.Reason != "it does not take the settings that the head sends (vgpus 3, policy sjf): it does not want to" {
		t.Errorf("%+v, %+v", n, n.Settings)
	}

	// A node that comes again hears it again.
	c.want(c.is(head.HungUp{Session: 1, Reason: "gone"}), "")
	if s := c.node("n1").Settings; s != nil {
		t.Errorf("a node that is away says %+v", s)
	}
	c.want(c.is(c.greet("n1", c.told[1])...), "4: vgpus 1, policy sjf")

	// The next head does not take anything back before its policy has spoken.
	c.boot(p)
	c.want(c.is(c.greet("n1", c.told[4])...), "5: vgpus 1, policy sjf")
	// What only an earlier head said is taken back.
	c.want(c.is(c.greet("n2", model.NodeSettings{VGPUs: 9})...), "6: ")

	// Administrators change their minds, and the policy.
	c.cfg.NodeRules = []head.NodeRule{{Settings: model.NodeSettings{Policy: "credit"}}, {Nodes: []string{"n2"}, Settings: model.NodeSettings{Policy: "fcfs"}}}
	c.core.Configure(c.cfg)
	c.want(c.is(), "5: vgpus 1, policy credit; 6: policy fcfs")
	other, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	c.core.SetPolicy(other, "fcfs")
	c.want(c.is(), "5: policy credit")

	// What a node cannot be told is refused before it is sent, and shown.
	c.is(head.Unsent{Session: 5, Message: agent.Configure{}, Reason: "it is too long"})
	if s := c.node("n1").Settings; s.Error != "it is too long" {
		t.Errorf("%+v", s)
	}
}

// A policy that asks for it hears when nodes said something last, and what.
func TestPolicyHearsOfNodes(t *testing.T) {
	p := &configuring{say: func(*mccs.Library) error { return nil }}
	c := newConfigured(t, head.Config{Cluster: "test", NodeTimeout: time.Minute, Silence: time.Minute}, p)
	look := func(want string) {
		t.Helper()
		c.is(head.Submit{Caller: head.Caller{User: "alice"}, Submission: api.Submission{Arguments: []string{"a"}, Directory: "/", Options: []string{"-n1"}}, Secret: "s"})
		c.want(p.heard, want)
	}
	c.is(c.greet("n1", model.NodeSettings{})...) // the policy has its first step
	look("n1 true 1s: 0, 0, -1ns.")
	c.is(head.Said{Session: 1, Message: agent.Load{Assigned: 3, Waiting: 2}})
	c.is(head.Said{Session: 1, Message: agent.Pong{}})
	look("n1 true 1s: 3, 2, 2s.")
	look("n1 true 2s: 3, 2, 3s.")
	c.is(head.HungUp{Session: 1, Reason: "gone"})
	look("n1 false 4s: 0, 0, -1ns.")
	c.is(c.greet("n1", model.NodeSettings{})...)
	look("n1 true 1s: 0, 0, -1ns.")
}
