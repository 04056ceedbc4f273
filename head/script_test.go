package head_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/head/record"
	"muster/internal/scripts"
	"muster/model"
	"muster/model/clusterfile"
	"muster/model/strictyaml"
	"muster/policy/catalog"
	"muster/policy/history"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// A script is lines that say what happened; below each, indented, is what followed. Agents obey by
// themselves, unless a line says "agents silent". -update rewrites the indented lines: read the
// difference before you keep it.
//
//	policy easy                          the policy, first; fcfs if it is not said
//	limits jobs=2 running=1 gpus=1
//	priority fairshare=1000 age=10
//	window W 100 200 nodes=n1,n2 users=alice   seconds since the beginning; also while it runs
//	partitions {gpu: {Nodes: g1}}        as in head.yaml; also while it runs. Without any, they are listed
//	at 10                                seconds since the beginning
//	node n1 cores=4 memory=1000000 gpus=2 user=alice    an agent greets, with what it had before; last=17 is
//	                                     the largest number of a job that it remembers
//	away n1                              its connection ends
//	unsent start 1.1.0 n1                a message to it is not sent, as it would be refused
//	alice submit -n2 --gres=gpu:1        ... key=K names a key, script makes it a script, allocation an allocation
//	inactive 60                          how long the command of an allocation may be silent
//	alice keep 1 | finish 1 3            its command is there, or has ended with status 3
//	alice cancel 1 | hold 1 | release 1 | suspend 1 | resume 1 | requeue 1 | move 1
//	root drain n1 | undrain n1 | remove n1; root priority 1 100; alice nice 1 5
//	node n1 checkpoints=f                its jobs can be saved in a folder of that name; no_checkpoints=WHY: they cannot
//	saves n1 WHY                         from now on its agent saves no task, for that reason; without one, it does;
//	                                     ... for a reason: it saves them until a line says how that ended: saved n1 WHY
//	lends n1 WHY                         from now on its agent serves no devices of other nodes, for that reason; without one, it does
//	restores n1 no                       from now on none of its tasks begins from where it was saved, or, with
//	                                     not_begun for no, for a reason that would fail other tasks; yes: they do
//	agents slow                          tasks do not begin before a line says that they do: begins 1
//	ends 1 exit=3                        all tasks of a job end; part=0 for one
//	jobs | job 1 | nodes | priorities | usage
//	disk                                 all records, to the letter
//	alter 1 OLD NEW                      a text in the job's record on the disk is another one
//	restart                              the head is killed, and starts from its disk
//
// What the policy was told and decided is recorded, from each start of the head on, and a replay
// must decide the same.
func TestScripts(t *testing.T) { scripts.Run(t, playScript) }

type player struct {
	cfg      head.Config
	policy   string
	core     *head.Core
	now      time.Duration
	disk     map[head.Bucket]map[string][]byte
	names    map[head.Session]string
	session  map[string]head.Session
	hello    map[string]agent.Hello
	sessions head.Session
	tasks    map[agent.Task]string // running tasks, and where they run
	silent   bool
	unheard  bool // answers of agents are lost
	slow     bool // tasks do not begin by themselves
	young    map[agent.Task]bool
	loans    map[string]bool // loans that nodes have, as ID@NODE
	records  []*bytes.Buffer // of each start of the head
	out      strings.Builder
	sent     func(head.Send) // is told of each message before its agent; nil: nobody is
	began    time.Duration   // what agents say of tasks that they stop
	asleep   map[agent.Task]bool
	steps    int                         // how often effects were carried out
	killAt   int                         // at which of these the head is killed, when its records are written and nothing is sent; 0: at none
	saves    map[string]string           // why the agents of nodes save no tasks
	lends    map[string]string           // why nodes do not have devices of other nodes
	saving   map[string]agent.Checkpoint // what those save whose answer is still to come
	restores map[string]agent.Cause      // why tasks do not begin from where they were saved
	late     map[agent.Task]agent.Report // ends that the head was not told, since their node was away
}

func newPlayer() *player {
	return &player{
		cfg: head.Config{
			Cluster: "test", Admins: []string{"root"}, NodeTimeout: 5 * time.Minute, Silence: time.Minute, Grace: 10 * time.Second,
			TimeLimit: time.Hour, Keep: 10 * time.Minute, Authority: "ca",
		},
		policy: "fcfs", now: began, disk: map[head.Bucket]map[string][]byte{}, names: map[head.Session]string{}, session: map[string]head.Session{},
		hello: map[string]agent.Hello{}, tasks: map[agent.Task]string{}, loans: map[string]bool{},
		asleep: map[agent.Task]bool{}, young: map[agent.Task]bool{}, saves: map[string]string{}, saving: map[string]agent.Checkpoint{}, lends: map[string]string{}, restores: map[string]agent.Cause{},
		late: map[agent.Task]agent.Report{},
	}
}

func playScript(t *testing.T, text string) string {
	t.Helper()
	p := newPlayer()
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&p.out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := p.play(words); err != nil {
			t.Fatalf("line %d: %q: %v", i+1, line, err)
		}
	}
	for i, r := range p.records {
		mustReplay(t, fmt.Sprintf("start %d of the head", i+1), r)
	}
	return p.out.String()
}

// mustReplay replays a history, which must make the same decisions.
func mustReplay(t testing.TB, what string, recorded *bytes.Buffer) history.Result {
	t.Helper()
	r, err := history.Replay(recorded, catalog.New)
	if err != nil || r.Difference != nil {
		t.Errorf("%s: played again: %v", what, err)
		if d := r.Difference; d != nil {
			t.Errorf("line %d at %v:\n%s\n%s", d.Line, d.At, d.Then, d.Now)
		}
	}
	return r
}

// partitions takes partitions over, or lists those that there are.
func (p *player) partitions(text string) error {
	if text == "" {
		for _, d := range p.core.Partitions() {
			p.say("%s %s default %v nodes %d of %s, cores %d, GPUs %d, rGPUs %d", d.Name, d.State, d.Default, d.Nodes, cmp.Or(d.NodeList, "ALL"), d.Cores, d.GPUs, d.RemoteGPUs)
		}
		return nil
	}
	f := &strictyaml.File{Name: "script", What: "partitions"}
	root, err := f.Parse([]byte(text))
	if err != nil {
		return err
	}
	if p.cfg.Partitions, err = clusterfile.Partitions(f, root); err != nil || p.core == nil {
		return err
	}
	p.core.Configure(p.cfg)
	p.core.Handle(p.now, head.Tick{})
	p.settle()
	return nil
}

func (p *player) say(format string, args ...any) {
	fmt.Fprintf(&p.out, "  "+format+"\n", args...)
}

func (p *player) play(words []string) error {
	switch words[0] {
	case "policy":
		p.policy = words[1]
		return nil
	case "authority":
		p.cfg.Authority = strings.Join(words[1:], " ")
		return nil
	case "priority":
		cfg := priority.Defaults()
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return err
			}
			switch name {
			case "fairshare":
				cfg.WeightFairshare = n
			case "age":
				cfg.WeightAge = n
			case "qos":
				cfg.QOS = append(cfg.QOS, priority.QOS{Name: "normal", Priority: n})
			case "account":
				cfg.Accounts = append(cfg.Accounts, priority.Account{Name: "physics", Shares: n, Accounts: []priority.Account{{Name: "optics", Shares: 1}}})
			}
		}
		p.cfg.Priority = &cfg
		return nil
	case "limits": // [account=NAME | qos=NAME | user_in=QOS] LIMIT=N...
		return p.limits(words[1:])
	}
	switch words[0] {
	case "window":
		return p.window(words[1:])
	case "licenses": // NAME=N...
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			p.cfg.Licenses = withEntry(p.cfg.Licenses, name, n)
		}
		if p.core != nil {
			p.core.Configure(p.cfg)
			p.settle()
		}
		return nil
	case "rule": // NODES [weight=W] [features=A,B]
		return p.rule(words[1:])
	case "partitions":
		return p.partitions(strings.Join(words[1:], " "))
	case "inactive":
		n, err := strconv.Atoi(words[1])
		p.cfg.InactiveLimit = time.Duration(n) * time.Second
		if p.core != nil {
			p.core.Configure(p.cfg)
		}
		return err
	case "usual":
		return p.usual(words[1:])
	}
	if p.core == nil {
		if err := p.boot(); err != nil {
			return err
		}
	}
	switch words[0] {
	case "at":
		s, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return err
		}
		p.now = began + time.Duration(s*float64(time.Second))
		p.core.Handle(p.now, head.Tick{})
	case "restart":
		p.names, p.session = map[head.Session]string{}, map[string]head.Session{}
		if err := p.boot(); err != nil {
			return err
		}
	case "alter":
		n, err := strconv.ParseUint(words[1], 10, 64)
		key := string(head.Number(n))
		was := p.disk[head.Jobs][key]
		p.disk[head.Jobs][key] = bytes.ReplaceAll(was, []byte(words[2]), []byte(words[3]))
		if err != nil || bytes.Equal(was, p.disk[head.Jobs][key]) {
			return fmt.Errorf("nothing is altered: %v: %s", err, was)
		}
		return nil
	case "agents":
		p.slow = words[1] == "slow"
		p.unheard = words[1] == "unheard" // they obey, and their answers are lost
		p.silent = words[1] == "silent" || p.unheard
		if p.began = 0; words[1] == "begin" { // they obey, and what they stop had begun
			p.began = 1
		}
	case "node":
		p.node(words[1:])
	case "away":
		p.core.Handle(p.now, head.HungUp{Session: p.session[words[1]], Reason: "it closed the connection"})
		delete(p.session, words[1])
	case "trouble": // NODE [WHY]: its agent takes no tasks for now, or takes them again
		p.core.Handle(p.now, head.Said{Session: p.session[words[1]], Message: agent.Inventory{Devices: p.hello[words[1]].Devices, Trouble: strings.Join(words[2:], " ")}})
	case "measured": // NODE TASK CPU GPU WAITED, in seconds
		var of agent.Profile
		m := &of.Measured
		if _, err := fmt.Sscanf(strings.Join(words[2:], " "), "%d.%d.%d %f %f %f", &of.Task.Job, &of.Task.Attempt, &of.Task.Part, &m.CPU, &m.GPU, &m.Waited); err != nil {
			return err
		}
		p.core.Handle(p.now, head.Said{Session: p.session[words[1]], Message: agent.Profiles{Tasks: []agent.Profile{of}}})
	case "unsent": // what its node would refuse
		var m agent.ToAgent = agent.Lend{Loan: grant.Loan{ID: words[2]}}
		if words[1] == "start" {
			start := agent.Start{}
			if _, err := fmt.Sscanf(words[2], "%d.%d.%d", &start.Task.Job, &start.Task.Attempt, &start.Task.Part); err != nil {
				return err
			}
			m = start
		}
		p.core.Handle(p.now, head.Unsent{Session: p.session[words[3]], Message: m, Reason: words[1] + " with something wrong"})
	case "refuses": // NODE LOAN WHY: its agent has answered that it does not serve the loan
		p.core.Handle(p.now, head.Said{Session: p.session[words[1]], Message: agent.Lent{ID: words[2], Error: strings.Join(words[3:], " ")}})
	case "lost": // the node's spool is lost with what ran there
		for id, where := range p.tasks {
			if where == words[1] {
				delete(p.tasks, id)
			}
		}
		maps.DeleteFunc(p.loans, func(loan string, _ bool) bool { return strings.HasSuffix(loan, "@"+words[1]) })
		h := p.hello[words[1]]
		h.Incarnation += "'"
		p.hello[words[1]] = h
	case "saves":
		p.saves[words[1]] = strings.Join(words[2:], " ")
		return nil
	case "lends":
		p.lends[words[1]] = strings.Join(words[2:], " ")
		return nil
	case "saved":
		m := p.saving[words[1]]
		p.core.Handle(p.now, head.Said{Session: p.session[words[1]], Message: agent.Checkpointed{Task: m.Task, Folder: m.Folder, Bytes: 1000, Error: strings.Join(words[2:], " ")}})
	case "restores":
		p.restores[words[1]] = map[string]agent.Cause{"no": agent.NotReady, "not_begun": agent.NotBegun}[words[2]]
		return nil
	case "begins":
		for _, id := range p.sorted() {
			if fmt.Sprint(id.Job) == words[1] {
				p.report(id, agent.Report{Task: id, State: agent.Running})
			}
		}
	case "ends":
		p.ends(words[1:])
	case "disk":
		for _, b := range slices.Sorted(maps.Keys(p.disk)) {
			for _, key := range slices.Sorted(maps.Keys(p.disk[b])) {
				p.say("%s %x %s", b, key, p.disk[b][key])
			}
		}
		return nil
	case "jobs":
		for _, d := range p.core.JobList(p.now, head.Filter{}) {
			p.sayJob(d)
		}
		return nil
	case "job":
		docs, _ := p.core.Job(p.now, ref(words[1]))
		for _, d := range docs {
			p.sayJob(d)
			p.say("  %s: %s", d.Reason, d.Why)
		}
		return nil
	case "priorities":
		lines, _ := p.core.Priorities(0, 1000)
		for _, l := range lines {
			p.say("job %d %s/%s %d fairshare %d", l.Job, l.Account, l.User, l.Priority, l.Factors["fairshare"])
		}
		return nil
	case "usage":
		for _, l := range p.core.Usage(p.now) {
			factor := "none"
			if l.Factor != nil {
				factor = fmt.Sprintf("%.3f", *l.Factor)
			}
			p.say("%s/%s shares %.3f used %.3f factor %s raw %.0f", l.Account, l.User, l.Shares, l.Used, factor, l.Raw)
		}
		return nil
	case "nodes":
		for _, d := range p.core.NodeList(p.now) {
			up := ""
			for i, g := range d.Devices {
				if g.Lender != "" {
					up += fmt.Sprintf(" device %d of %s up %v", i, g.Lender, g.Up)
				}
			}
			for _, label := range slices.Sorted(maps.Keys(d.Labels)) {
				up += fmt.Sprintf(" label %s=%s", label, d.Labels[label])
			}
			p.say("%s %s cores %d/%d jobs %v%s", d.Name, d.State, d.CoresUsed, d.Cores, d.Jobs, up)
		}
		return nil
	default:
		if err := p.user(words[0], words[1], words[2:]); err != nil {
			return err
		}
	}
	p.settle()
	return nil
}

func (p *player) sayJob(d api.Job) {
	name := fmt.Sprint(d.ID)
	if d.ArrayTask != nil {
		name = fmt.Sprintf("%d (%d_%d)", d.ID, d.ArrayJob, *d.ArrayTask)
	}
	if d.ArrayTasks != "" {
		name = fmt.Sprintf("%d (%d_[%s])", d.ID, d.ArrayJob, d.ArrayTasks)
	}
	text := fmt.Sprintf("job %s %s %s", name, d.User, d.State)
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	if d.NodeList != "" {
		text += " on " + d.NodeList
	}
	if len(d.Before) > 0 {
		text += " before on " + strings.Join(d.Before, ",")
	}
	for _, p := range d.Preempted {
		text += fmt.Sprintf(" attempt %d on %s: %s, %s", p.Attempt, strings.Join(append(p.Nodes, p.Devices...), ","), p.How, p.Reason)
	}
	for _, g := range d.Devices {
		text += fmt.Sprintf(" %s:%d", g.Node, g.Device)
	}
	if d.State.Over() && (d.ExitCode != 0 || d.Why != "") {
		text += fmt.Sprintf(" exit %d %s", d.ExitCode, d.Why)
	}
	if d.Measured != nil {
		text += fmt.Sprintf(" measured %+v: %s", *d.Measured, d.Why)
	}
	p.say("%s", text)
}

func (p *player) boot() error {
	policy, err := catalog.New(p.policy)
	if err != nil {
		return err
	}
	p.core, err = head.Restore(p.cfg, policy, p.policy, func(visit func(head.Record) error) error {
		for _, b := range []head.Bucket{head.Meta, head.Nodes, head.Jobs, head.Keys} {
			keys := make([]string, 0, len(p.disk[b]))
			for k := range p.disk[b] {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				if err := visit(head.Record{Bucket: b, Key: []byte(k), Value: p.disk[b][k]}); err != nil {
					return err
				}
			}
		}
		return nil
	}, p.now)
	if err == nil {
		p.records = append(p.records, new(bytes.Buffer))
		p.core.Record(p.records[len(p.records)-1], history.Header{Policy: p.policy})
		p.core.SetPast(p.past)
		p.core.SetEnded(func(job uint64) *record.Ended {
			e, err := record.ReadEnded([]byte(cmp.Or(string(p.disk[head.Ended][string(head.Number(job))]), "null")))
			if err != nil || e.ID == 0 {
				return nil
			}
			return e
		})
	}
	return err
}

// rule adds what is said of nodes to the configuration.
func (p *player) rule(words []string) (err error) {
	var r head.NodeRule
	if r.Nodes, err = model.ExpandNodes(words[0]); err != nil {
		return err
	}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "weight":
			if r.Weight, err = strconv.Atoi(value); err != nil {
				return err
			}
		case "features":
			r.Features = strings.Split(value, ",")
		}
	}
	p.cfg.NodeRules = append(slices.Clone(p.cfg.NodeRules), r)
	if p.core != nil {
		p.core.Configure(p.cfg)
		p.settle()
	}
	return nil
}

// limits sets limits of users, or of an account or class.
func (p *player) limits(words []string) error {
	l, set := p.cfg.Limits, func(l head.Limits) { p.cfg.Limits = l }
	switch of, name, _ := strings.Cut(words[0], "="); of {
	case "account":
		l, set = head.Limits{}, func(l head.Limits) { p.cfg.Accounts = withEntry(p.cfg.Accounts, name, l) }
		words = words[1:]
	case "qos", "user_in":
		all := p.cfg.QOS[name]
		l, set = head.Limits{}, func(l head.Limits) {
			if all.Limits = l; of == "user_in" {
				all.Limits, all.PerUser = p.cfg.QOS[name].Limits, l
			}
			p.cfg.QOS = withEntry(p.cfg.QOS, name, all)
		}
		words = words[1:]
	}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		switch name {
		case "weight":
			l.Weight = n
		case "latency":
			l.Latency = n > 0
		case "jobs":
			l.Jobs = n
		case "running":
			l.Running = n
		case "gpus":
			l.GPUs = n
		case "cores":
			l.Cores = n
		case "deny":
			l.Deny = n > 0
		}
	}
	set(l)
	if p.core != nil {
		p.core.Configure(p.cfg)
		p.settle()
	}
	return nil
}

// withEntry is a copy of a map with another entry.
func withEntry[T any](all map[string]T, name string, one T) map[string]T {
	out := map[string]T{name: one}
	for k, v := range all {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// window adds a window to the configuration.
func (p *player) window(words []string) error {
	w := head.Window{Name: words[0]}
	for i, into := range []*time.Duration{&w.From, &w.Until} {
		s, err := strconv.ParseInt(words[1+i], 10, 64)
		if err != nil {
			return err
		}
		*into = began + time.Duration(s)*time.Second
	}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "nodes":
			w.Nodes = strings.Split(value, ",")
		case "users":
			w.Users = strings.Split(value, ",")
		}
	}
	p.cfg.Windows = append(slices.Clone(p.cfg.Windows), w)
	if p.core != nil {
		p.core.Configure(p.cfg)
		p.settle()
	}
	return nil
}

// past takes the store's part: it says how forgotten jobs ended.
func (p *player) past(job uint64) (head.Past, bool) {
	past, known, err := head.PastOf(job, func(b head.Bucket, number uint64) []byte { return p.disk[b][string(head.Number(number))] })
	if err != nil {
		panic(err)
	}
	return past, known
}

func (p *player) node(words []string) {
	name := words[0]
	h, known := p.hello[name]
	if !known {
		h = agent.Hello{Version: agent.Version, Node: name, Incarnation: "1", Cores: 4, Memory: 16 << 30, Gateway: name + ":1"}
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "memory":
			h.Memory = int64(n)
		case "cores":
			h.Cores = n
		case "gpus":
			for range n {
				h.Devices = append(h.Devices, agent.Device{Name: "gpu", Memory: 8 << 30, Speed: 1, Up: true})
			}
		case "lent": // by the node with this gateway
			h.Devices = append(h.Devices, agent.Device{Name: "gpu", Memory: 8 << 30, Speed: 1, Up: true, Lender: value})
		case "user":
			h.User = value
		case "gateway":
			h.Gateway = value
		case "last":
			h.Cluster, h.Last = "test", uint64(n)
		case "cluster":
			h.Cluster = value
		case "checkpoints":
			h.Checkpoints, h.NoCheckpoints = value, ""
		case "no_checkpoints":
			h.Checkpoints, h.NoCheckpoints = "", strings.ReplaceAll(value, "_", " ")
		}
	}
	p.hello[name] = h
	h.Tasks = nil
	for _, id := range p.sorted() {
		if p.tasks[id] == name {
			state := agent.Running
			if p.asleep[id] {
				state = agent.Suspended
			} else if p.young[id] {
				state = agent.Starting
			}
			if r, ended := p.late[id]; ended {
				h.Tasks = append(h.Tasks, r)
				continue
			}
			h.Tasks = append(h.Tasks, agent.Report{Task: id, State: state})
		}
	}
	for _, loan := range slices.Sorted(maps.Keys(p.loans)) {
		if id, where, _ := strings.Cut(loan, "@"); where == name {
			h.Loans = append(h.Loans, id)
		}
	}
	p.sessions++
	p.names[p.sessions], p.session[name] = name, p.sessions
	p.core.Handle(p.now, head.Greeted{Session: p.sessions, Hello: h})
}

func (p *player) sorted() []agent.Task {
	var ids []agent.Task
	for id := range p.tasks {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b agent.Task) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// ends ends tasks of a job.
func (p *player) ends(words []string) {
	end := agent.End{Cause: agent.Exited}
	part := -1
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "exit":
			end.Exit = n
		case "part":
			part = n
		case "ran":
			end.Began, end.Ended = 1, 1+time.Duration(n)*time.Second
		case "cause":
			end.Cause = agent.Cause(strings.ReplaceAll(value, "_", " "))
		}
	}
	for _, id := range p.sorted() {
		if fmt.Sprint(id.Job) == words[0] && (part < 0 || int(id.Part) == part) {
			p.report(id, agent.Report{Task: id, State: agent.Ended, End: &end})
		}
	}
}

func (p *player) report(id agent.Task, r agent.Report) {
	where := p.tasks[id]
	if r.State == agent.Ended {
		delete(p.tasks, id)
	}
	p.asleep[id], p.young[id] = r.State == agent.Suspended, false
	if s := p.session[where]; s != 0 {
		p.core.Handle(p.now, head.Said{Session: s, Message: r})
	} else if r.State == agent.Ended {
		p.tasks[id], p.late[id] = where, r
	}
}

func ref(word string) head.Ref {
	job, task, array := strings.Cut(word, "_")
	r := head.Ref{Task: -1}
	r.Job, _ = strconv.ParseUint(job, 10, 64)
	if array {
		r.Task, _ = strconv.ParseInt(task, 10, 64)
	}
	return r
}

// user performs a user's request.
func (p *player) user(name, verb string, words []string) error {
	caller := head.Caller{Request: 1, User: name}
	change := func(action head.Action, priority api.Priority) {
		p.core.Handle(p.now, head.Change{Caller: caller, Jobs: ref(words[0]), Action: action, Priority: priority})
	}
	node := func(action head.NodeAction) {
		p.core.Handle(p.now, head.Node{Caller: caller, Nodes: words, Action: action, Reason: "to be mended"})
	}
	number := func(i int) *int64 {
		if i >= len(words) {
			return nil
		}
		n, _ := strconv.ParseInt(words[i], 10, 64)
		return &n
	}
	switch verb {
	case "submit":
		s := api.Submission{Arguments: []string{"prog"}, Directory: "/home"}
		for _, w := range words {
			if key, ok := strings.CutPrefix(w, "key="); ok {
				s.Key = key
			} else if w == "script" {
				s.Script = "#!/bin/sh\n"
			} else if w == "allocation" {
				s.Allocation = true
			} else {
				s.Options = append(s.Options, w)
			}
		}
		p.core.Handle(p.now, head.Submit{Caller: caller, Submission: s, Secret: "secret"})
	case "output": // asks where the job's output is
		_, task, refused := p.core.TaskOf(ref(words[0]), "", name, true)
		if refused != nil {
			p.say("refused: %s", refused.Reason)
		} else {
			p.say("at task %v", task)
		}
	case "cancel":
		p.core.Handle(p.now, head.Cancel{Caller: caller, Jobs: ref(words[0])})
	case "keep":
		p.core.Handle(p.now, head.Keep{Caller: caller, Job: ref(words[0])})
	case "finish":
		p.core.Handle(p.now, head.Finish{Caller: caller, Job: ref(words[0]), Exit: int(*number(1))})
	case "priority":
		change(head.Prioritise, api.Priority{Priority: number(1), Nice: number(2)})
	case "nice":
		change(head.Prioritise, api.Priority{Nice: number(1)})
	case "drain":
		node(head.DrainNode)
	case "undrain":
		node(head.ResumeNode)
	case "remove":
		node(head.RemoveNode)
	case "force-remove", "rename", "label":
		ev := head.Node{Caller: caller, Nodes: words[:1], Action: head.NodeAction(strings.TrimPrefix(verb, "force-")), Force: verb == "force-remove"}
		if verb == "rename" {
			ev.Name = words[1]
		}
		if verb == "label" {
			name, value, _ := strings.Cut(words[1], "=")
			ev.Labels = map[string]string{name: value}
		}
		p.core.Handle(p.now, ev)
	case "hold", "release", "suspend", "resume", "requeue", "move":
		change(head.Action(verb), api.Priority{})
	default:
		return fmt.Errorf("%q is nothing that can be played", verb)
	}
	return nil
}

// settle carries out what follows, until nothing more does.
func (p *player) settle() {
	for range 100 {
		p.core.Step(p.now)
		e := p.core.Take()
		if len(e.Records)+len(e.Sends)+len(e.Answers)+len(e.HangUps) == 0 {
			return
		}
		for _, r := range e.Records {
			if p.disk[r.Bucket] == nil {
				p.disk[r.Bucket] = map[string][]byte{}
			}
			if p.disk[r.Bucket][string(r.Key)] = r.Value; r.Value == nil {
				delete(p.disk[r.Bucket], string(r.Key))
			}
		}
		if p.steps++; p.steps == p.killAt {
			nodes := slices.Sorted(maps.Keys(p.session))
			p.names, p.session = map[head.Session]string{}, map[string]head.Session{}
			if err := p.boot(); err != nil {
				panic(err)
			}
			for _, n := range nodes {
				p.node([]string{n})
			}
			continue
		}
		for _, a := range e.Answers {
			switch r := a.Result.(type) {
			case *api.Submitted:
				p.say("submitted %d, %d tasks %q", r.Job, r.Tasks, r.Notes)
			case *api.Changed:
				p.say("changed %v", r.Jobs)
			case *api.Kept:
				p.say("kept for %v s", r.Lapses)
			default:
				p.say("%d: %s", a.Err.Status, a.Err.Reason)
			}
		}
		for _, s := range e.Sends {
			p.send(s)
		}
		for _, s := range e.HangUps {
			p.say("hang up on %s", p.names[s])
		}
	}
	p.say("it does not come to rest")
}

// usual says how jobs have GPUs: whole=, shares= and remote=, each a reach and perhaps +BEYOND.
func (p *player) usual(words []string) error {
	p.cfg.Holds = model.Holds{}
	for _, w := range words {
		kind, text, _ := strings.Cut(w, "=")
		h := map[string]*model.Hold{"whole": &p.cfg.Holds.Whole, "shares": &p.cfg.Holds.Shares, "remote": &p.cfg.Holds.Remote}[kind]
		reach, beyond, _ := strings.Cut(text, "+")
		var err error
		if h.Beyond, err = model.ParseBeyond(cmp.Or(beyond, "0")); err != nil {
			return err
		}
		if h.Reach, err = model.ParseReach(reach); err != nil {
			return err
		}
	}
	return nil
}

// told is how firmly a job has a device; "" if it has it alone and never leaves it.
func told(d grant.Device) string {
	text := ""
	if d.Beyond > 0 {
		text += "+" + model.BeyondText(d.Beyond)
	}
	if d.Reach != model.ReachDevice {
		text += "(" + d.Reach.String() + ")"
	}
	return text
}

// send delivers a message to an agent, which obeys.
func (p *player) send(s head.Send) {
	name := p.names[s.Session]
	if p.sent != nil {
		p.sent(s)
	}
	switch m := s.Message.(type) {
	case agent.Start:
		text := fmt.Sprintf("%s: start %v %d/%d from %d, %s", name, m.Task, m.Spec.Processes, m.Spec.All, m.Spec.First, m.Spec.Output)
		if m.Grant != nil {
			for _, d := range m.Grant.Devices {
				text += " " + d.String() + told(d)
				if d.Address != "" {
					text += "@" + d.Address
				}
			}
		}
		for _, v := range m.Spec.Environment {
			text += " " + v
		}
		if m.From != "" {
			text += fmt.Sprintf(" from %s with %v left", m.From, m.Spec.Time)
		}
		p.say("%s", text)
		switch {
		case p.silent:
		case p.slow:
			p.tasks[m.Task], p.young[m.Task] = name, true
		case m.From != "" && p.restores[name] != "":
			end := &agent.End{Cause: p.restores[name], Reason: "it cannot go on here"}
			p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Report{Task: m.Task, State: agent.Ended, End: end}})
		default:
			p.tasks[m.Task] = name
			p.report(m.Task, agent.Report{Task: m.Task, State: agent.Running})
		}
	case agent.Stop:
		p.say("%s: stop %v: %s, %s", name, m.Task, m.Cause, m.Reason)
		if p.silent {
			return
		}
		if _, runs := p.tasks[m.Task]; runs {
			p.report(m.Task, agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: m.Cause, Reason: m.Reason, Signal: 15, Began: p.began}})
		} else {
			p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Report{Task: m.Task, State: agent.Unknown}})
		}
	case agent.Suspend:
		p.say("%s: suspend %v", name, m.Task)
		if !p.silent {
			p.report(m.Task, agent.Report{Task: m.Task, State: agent.Suspended})
		}
	case agent.Resume:
		p.say("%s: resume %v", name, m.Task)
		if !p.silent {
			p.report(m.Task, agent.Report{Task: m.Task, State: agent.Running})
		}
	case agent.Checkpoint:
		p.say("%s: checkpoint %v in %s", name, m.Task, m.Folder)
		switch {
		case p.silent:
		case p.saves[name] == "...":
			p.saving[name] = m
		default:
			p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Checkpointed{Task: m.Task, Folder: m.Folder, Bytes: 1000, Error: p.saves[name]}})
		}
	case agent.Discard:
		p.say("%s: discard %s", name, m.Folder)
	case agent.Lend:
		text := fmt.Sprintf("%s: lend %s %v to %s", name, m.Loan.ID, m.Loan.Devices, m.Loan.User)
		for _, d := range m.Loan.Devices {
			text += told(d)
		}
		if m.Loan.Turns != (model.Turns{}) {
			text += fmt.Sprintf(", class %q, weight %d", m.Loan.Class, m.Loan.Weight)
		}
		why := ""
		if m.Loan.Home != "" {
			text += " at home"
			why = p.lends[name]
		}
		p.say("%s", text)
		if why == "" && (!p.silent || p.unheard) {
			p.loans[m.Loan.ID+"@"+name] = true
		}
		if !p.silent {
			p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Lent{ID: m.Loan.ID, Error: why}})
		}
	case agent.Ping:
		if !p.silent {
			p.core.Handle(p.now, head.Said{Session: s.Session, Message: agent.Pong{}})
		}
	case agent.Signal:
		p.say("%s: signal %v %d", name, m.Task, m.Signal)
	case agent.Unlend:
		p.say("%s: unlend %s", name, m.ID)
		delete(p.loans, m.ID+"@"+name)
	case agent.Limit:
		p.say("%s: limit %s %d", name, m.ID, m.Limit)
	case agent.Done:
		if _, late := p.late[m.Task]; late {
			delete(p.late, m.Task)
			delete(p.tasks, m.Task)
			p.say("%s: done %v", name, m.Task)
		}
	case agent.Refused:
		p.say("%s: refused: %s", name, m.Reason)
	}
}
