package head_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"muster/head"
	"muster/head/record"
	"muster/internal/need"
	"muster/model"
	"muster/policy/catalog"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// TestLies lets nodes with valid certificates send whatever they like, users do whatever they may,
// and the head restart at any moment, with a clock that may have been set back. The head must
// neither panic nor refuse to start from its own records.
func TestLies(t *testing.T) {
	runs, steps := need.Rounds(2, 12), 300
	for seed := range uint64(runs) {
		for _, spec := range []string{"fcfs", "easy", "easy:preempt=requeue:qos=low<high", "fcfs:preempt=suspend:qos=low<high", "easy:preempt=move:qos=low<high", "r-queue"} {
			if err := lie(seed, spec, steps); err != nil {
				t.Fatalf("seed %d, policy %s: %v", seed, spec, err)
			}
		}
	}
}

// A node that was away for too long may say anything of when its job ended: it ended before that was told.
func TestLateLie(t *testing.T) {
	l := newLive(t, "fcfs")
	l.greet(1)
	l.submit(began, "alice", "-n1", "-t10:00:00")
	l.settle(began)
	l.core.Handle(began, head.HungUp{Session: 1})
	l.core.Handle(began+90*time.Second, head.Tick{})
	end := &agent.End{Cause: agent.Exited, Began: 1, Ended: math.MaxInt64}
	back := began + 100*time.Second
	l.core.Handle(back, head.Greeted{Session: 2, Hello: agent.Hello{
		Version: agent.Version, Node: "n00000", Incarnation: "1", Cores: 32, Memory: 128 << 30, Gateway: "g:1",
		Tasks: []agent.Report{{Task: agent.Task{Job: 1, Attempt: 1}, State: agent.Ended, End: end}},
	}})
	jobs, _ := l.core.Job(back, head.Ref{Job: 1, Task: -1})
	if len(jobs) != 1 || jobs[0].State != api.Completed || jobs[0].End != back.Seconds() {
		t.Errorf("%+v", jobs)
	}
}

// What stands in for a script, or for the command of an allocation, is no command that anybody submits.
func TestMarks(t *testing.T) {
	l := newLive(t, "fcfs")
	for _, mark := range []string{"<allocation>", "<script>"} {
		l.core.Handle(began, head.Submit{Caller: head.Caller{Request: 1, User: "alice"}, Submission: api.Submission{Arguments: []string{mark}, Directory: "/", Options: []string{"-n1", "--array=0-9"}}})
		if answers := l.core.Take().Answers; len(answers) != 1 || answers[0].Err == nil {
			t.Errorf("%s: %+v", mark, answers)
		}
	}
}

type liar struct {
	rng      *rand.Rand
	spec     string
	cfg      head.Config
	core     *head.Core
	now      time.Duration
	disk     map[head.Bucket]map[string][]byte
	sessions head.Session
	sent     []agent.Task
	folders  []agent.Checkpoint
	answers  []head.Said // of agents that obey
	log      []string
}

func lie(seed uint64, spec string, steps int) (err error) {
	l := &liar{
		rng: rand.New(rand.NewPCG(seed, 1)), spec: spec, now: began, disk: map[head.Bucket]map[string][]byte{},
		cfg: head.Config{Cluster: "test", Admins: []string{"root"}, NodeTimeout: time.Minute, Silence: time.Second, Grace: time.Second, Keep: time.Minute},
	}
	if seed%2 == 1 {
		cfg := priority.Defaults()
		cfg.WeightFairshare, cfg.WeightAge = 1000, 100
		l.cfg.Priority = &cfg
	}
	if seed%3 > 0 {
		l.cfg.Authority = "ca"
		l.cfg.Holds.Remote.Reach = []model.Reach{model.ReachNode, model.ReachCluster}[seed/3%2]
		l.cfg.NodeRules = []head.NodeRule{{Nodes: []string{"n1"}, Settings: model.NodeSettings{VGPUs: 2}}}
	}
	defer func() {
		if trouble := recover(); trouble != nil {
			err = fmt.Errorf("after %q: %v\n%s", l.last(), trouble, debug.Stack())
		}
	}()
	if err := l.restart(); err != nil {
		return err
	}
	for range steps {
		if err := l.step(); err != nil {
			return fmt.Errorf("after %q: %w", l.last(), err)
		}
	}
	return nil
}

func (l *liar) last() []string { return l.log[max(0, len(l.log)-12):] }

func (l *liar) restart() error {
	p, err := catalog.New(l.spec)
	if err != nil {
		return err
	}
	l.core, err = head.Restore(l.cfg, p, l.spec, func(visit func(head.Record) error) error {
		for _, b := range []head.Bucket{head.Meta, head.Nodes, head.Jobs, head.Keys} {
			for _, k := range slices.Sorted(keysOf(l.disk[b])) {
				if err := visit(head.Record{Bucket: b, Key: []byte(k), Value: l.disk[b][k]}); err != nil {
					return err
				}
			}
		}
		return nil
	}, l.now)
	if err == nil {
		l.core.SetEnded(func(job uint64) *record.Ended {
			value := l.disk[head.Ended][string(head.Number(job))]
			if value == nil {
				return nil
			}
			e, err := record.ReadEnded(value)
			if err != nil {
				panic(err)
			}
			return e
		})
	}
	return err
}

func keysOf(m map[string][]byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (l *liar) step() error {
	switch n := l.rng.IntN(100); {
	case n < 3:
		l.now += time.Duration(l.rng.IntN(400)-100) * time.Second
		l.note("restart")
		if err := l.restart(); err != nil {
			return err
		}
	case n < 5:
		if err := l.reconfigure(); err != nil {
			return err
		}
	case n < 10:
		l.now += time.Duration(l.rng.IntN(120)) * time.Second
		l.handle(head.Tick{})
	case n < 22:
		l.sessions++
		l.handle(head.Greeted{Session: l.sessions, Hello: l.hello()})
	case n < 26:
		l.handle(head.HungUp{Session: l.session()})
	case n < 28:
		unsent := []agent.ToAgent{agent.Start{Task: l.task()}, agent.Lend{Loan: grant.Loan{ID: l.task().String()}}, agent.Ping{}, agent.Configure{}}
		l.handle(head.Unsent{Session: l.session(), Message: unsent[l.rng.IntN(len(unsent))], Reason: "it would be refused"})
	case n < 60:
		l.handle(head.Said{Session: l.session(), Message: l.message()})
	case n < 80:
		l.handle(head.Submit{Caller: l.caller(), Submission: l.submission(), Secret: "s"})
	case n < 82:
		l.handle(head.Keep{Caller: l.caller(), Job: l.ref()})
		l.handle(head.Finish{Caller: l.caller(), Job: l.ref(), Exit: l.rng.IntN(2)})
	case n < 84:
		l.handle(head.Cancel{Caller: l.caller(), Jobs: l.ref(), Signal: l.rng.IntN(2) * 10})
	case n < 96:
		actions := []head.Action{head.Hold, head.Release, head.SuspendJob, head.ResumeJob, head.RequeueJob, head.Prioritise, head.LimitDevices, head.MoveJob, head.MoveJob, head.MoveJob}
		nice := int64(l.rng.IntN(5))
		l.handle(head.Change{Caller: l.caller(), Jobs: l.ref(), Action: l.pick(len(actions), actions), Limit: l.rng.IntN(4) - 1, Priority: api.Priority{Nice: &nice}})
	default:
		actions := []head.NodeAction{head.DrainNode, head.ResumeNode, head.ResumeNode, head.RemoveNode, head.LabelNode, head.RenameNode}
		l.handle(head.Node{Caller: head.Caller{Request: 1, User: "root"}, Nodes: []string{l.name()}, Action: actions[l.rng.IntN(len(actions))], Reason: "r", Force: l.rng.IntN(2) == 0, Name: l.name(), Labels: map[string]string{"rack": "r1"}})
	}
	for _, said := range l.answers {
		l.handle(said)
	}
	l.answers = nil
	l.core.Step(l.now)
	l.commit()
	for _, j := range l.core.JobList(l.now, head.Filter{}) {
		if j.End < 0 || j.Elapsed < 0 {
			return fmt.Errorf("job %d ended at %v after %v", j.ID, j.End, j.Elapsed)
		}
	}
	l.core.NodeList(l.now)
	l.core.Partitions()
	return nil
}

// describe has administrators divide the cluster, bound its users and describe its nodes in another way.
func (l *liar) describe() {
	l.cfg.Partitions, l.cfg.Accounts, l.cfg.QOS, l.cfg.Licenses = nil, nil, nil, nil
	for _, name := range []string{"p", "q"}[:l.rng.IntN(3)] {
		part := model.Partition{Name: name, Default: name == "p", State: model.PartitionState(l.rng.IntN(4)), PriorityTier: l.rng.IntN(3), MaxNodes: l.rng.IntN(3)}
		if l.rng.IntN(2) == 0 {
			part.Nodes, part.Lenders = []string{l.name()}, []string{l.name()}
		}
		if l.rng.IntN(2) == 0 {
			part.PreemptMode = []string{"OFF", "REQUEUE", "SUSPEND"}[l.rng.IntN(3)]
		}
		l.cfg.Partitions = append(l.cfg.Partitions, part)
	}
	limits := func() head.Limits {
		return head.Limits{Jobs: 100 * l.rng.IntN(2), Running: l.rng.IntN(3), GPUs: l.rng.IntN(2), Cores: 4 * l.rng.IntN(3), Deny: l.rng.IntN(8) == 0}
	}
	if l.rng.IntN(2) == 0 {
		l.cfg.Limits = limits()
		l.cfg.Accounts = map[string]head.Limits{"a": limits()}
		l.cfg.QOS = map[string]head.QOSLimits{"low": {Limits: limits(), PerUser: limits()}}
	}
	if l.rng.IntN(2) == 0 {
		l.cfg.Licenses = map[string]int{"x": 1 + l.rng.IntN(3), "y": 1}
	}
	l.cfg.NodeRules = []head.NodeRule{
		{Nodes: []string{l.name()}, Settings: model.NodeSettings{VGPUs: l.rng.IntN(3)}, Weight: l.rng.IntN(3), Features: []string{"f"}},
		{Features: []string{"f", "g"}[:l.rng.IntN(3)]},
	}
	l.cfg.InactiveLimit = time.Duration(l.rng.IntN(3)) * time.Minute
}

// reconfigure has another policy decide, beside other priorities or none.
func (l *liar) reconfigure() error {
	l.spec = []string{"easy", "fcfs", "r-queue", "conservative"}[l.rng.IntN(4)]
	l.cfg.Priority = nil
	if l.rng.IntN(3) > 0 {
		cfg := priority.Defaults()
		cfg.WeightFairshare, cfg.WeightAge = int64(l.rng.IntN(1000)), 100
		l.cfg.Priority = &cfg
	}
	l.describe()
	l.note("reconfigure: %s %+v", l.spec, l.cfg)
	p, err := catalog.New(l.spec)
	if err != nil {
		return err
	}
	if err := l.core.SetPriority(l.cfg.Priority, l.cfg.Partitions); err != nil {
		return err
	}
	l.core.SetPolicy(p, l.spec)
	l.core.Configure(l.cfg)
	return nil
}

func (l *liar) pick(n int, all []head.Action) head.Action { return all[l.rng.IntN(n)] }

func (l *liar) note(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func (l *liar) handle(ev head.Event) {
	l.note("%T %+v", ev, ev)
	l.core.Handle(l.now, ev)
	if l.rng.IntN(3) == 0 {
		l.core.Step(l.now)
	}
}

func (l *liar) commit() {
	e := l.core.Take()
	for _, r := range e.Records {
		if l.disk[r.Bucket] == nil {
			l.disk[r.Bucket] = map[string][]byte{}
		}
		if l.disk[r.Bucket][string(r.Key)] = r.Value; r.Value == nil {
			delete(l.disk[r.Bucket], string(r.Key))
		}
	}
	for _, s := range e.Sends {
		if start, ok := s.Message.(agent.Start); ok {
			l.sent = append(l.sent, start.Task)
		}
		if c, ok := s.Message.(agent.Checkpoint); ok {
			l.folders = append(l.folders, c)
		}
		l.obey(s)
	}
}

// obey has an agent do what it is told, more often than not: else no job would come far.
func (l *liar) obey(s head.Send) {
	state := func(id agent.Task, state agent.State) agent.ToHead { return agent.Report{Task: id, State: state} }
	var answer agent.ToHead
	switch m := s.Message.(type) {
	case agent.Start:
		if answer = state(m.Task, agent.Running); m.From != "" && l.rng.IntN(3) == 0 {
			answer = agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: agent.NotReady, Reason: "not here"}}
		}
	case agent.Suspend:
		answer = state(m.Task, agent.Suspended)
	case agent.Resume:
		answer = state(m.Task, agent.Running)
	case agent.Stop:
		answer = agent.Report{Task: m.Task, State: agent.Ended, End: &agent.End{Cause: m.Cause, Reason: m.Reason}}
	case agent.Lend:
		answer = agent.Lent{ID: m.Loan.ID, Error: []string{"", "", "no"}[l.rng.IntN(3)]}
	case agent.Checkpoint:
		answer = agent.Checkpointed{Task: m.Task, Folder: m.Folder}
	case agent.Ping:
		answer = agent.Pong{}
	default:
		return
	}
	if l.rng.IntN(4) > 0 {
		l.answers = append(l.answers, head.Said{Session: s.Session, Message: answer})
	}
}

func (l *liar) name() string { return fmt.Sprint("n", 1+l.rng.IntN(3)) }
func (l *liar) session() head.Session {
	return l.sessions - min(l.sessions, head.Session(l.rng.IntN(4)))
}
func (l *liar) caller() head.Caller {
	return head.Caller{Request: 1, User: []string{"alice", "bob", "root"}[l.rng.IntN(3)]}
}
func (l *liar) ref() head.Ref {
	r := head.Ref{Job: 1 + uint64(l.rng.IntN(40)), Task: -1}
	if n := len(l.sent); n > 0 && l.rng.IntN(2) == 0 {
		r.Job = l.sent[n-1-l.rng.IntN(min(n, 6))].Job
	}
	return r
}

func (l *liar) task() agent.Task {
	if n := len(l.sent); n > 0 && l.rng.IntN(4) > 0 {
		return l.sent[n-1-l.rng.IntN(min(n, 12))]
	}
	return agent.Task{Job: 1 + uint64(l.rng.IntN(40)), Attempt: 1 + uint32(l.rng.IntN(3)), Part: int32(l.rng.IntN(3))}
}

func (l *liar) report() agent.Report {
	r := agent.Report{Task: l.task(), State: []agent.State{agent.Starting, agent.Running, agent.Suspended, agent.Ended, agent.Unknown}[l.rng.IntN(5)]}
	if r.State == agent.Ended {
		causes := []agent.Cause{agent.Exited, agent.Stopped, agent.TimedOut, agent.NoMemory, agent.NotBegun, agent.NotReady, agent.NodeLost, agent.Abandoned}
		r.End = &agent.End{Cause: causes[l.rng.IntN(len(causes))], Exit: l.rng.IntN(2), CPU: time.Duration(l.rng.Int64()), Memory: l.rng.Int64(), Began: time.Duration(l.rng.Int64()), Ended: time.Duration(l.rng.Int64())}
	}
	return r
}

func (l *liar) devices() []agent.Device {
	list := make([]agent.Device, l.rng.IntN(4))
	for i := range list {
		list[i] = agent.Device{Name: []string{"gpu", "GPU", "", "x\n"}[l.rng.IntN(8)/2], Memory: []int64{8 << 30, 8 << 30, 8 << 30, math.MaxInt64}[l.rng.IntN(4)], Speed: 1, Up: l.rng.IntN(4) > 0}
		if l.rng.IntN(4) > 0 {
			list[i].Name, list[i].Memory = "gpu", 8<<30
		}
	}
	return list
}

func (l *liar) hello() agent.Hello {
	h := agent.Hello{
		Version: agent.Version, Node: l.name(), Incarnation: []string{"1", "1", "1", "2"}[l.rng.IntN(4)], Cores: 4, Memory: 16 << 30, Devices: l.devices(),
		Gateway: []string{"g:1", "g:1", "g:2", ""}[l.rng.IntN(4)], User: []string{"", "", "", "alice", "bob"}[l.rng.IntN(5)],
	}
	if l.rng.IntN(4) > 0 {
		h.Checkpoints = []string{"f", "f", "f", "g"}[l.rng.IntN(4)]
	}
	if l.rng.IntN(8) == 0 {
		h.Cores, h.Memory = []int{1, 4, 1 << 20}[l.rng.IntN(3)], []int64{1, math.MaxInt64}[l.rng.IntN(2)]
	}
	seen := map[agent.Task]bool{}
	for range l.rng.IntN(6) {
		if r := l.report(); r.State != agent.Unknown && !seen[r.Task] {
			seen[r.Task] = true
			h.Tasks = append(h.Tasks, r)
		}
	}
	for range l.rng.IntN(4) {
		h.Loans = append(h.Loans, l.task().String())
	}
	return h
}

func (l *liar) message() agent.ToHead {
	switch l.rng.IntN(6) {
	case 2:
		return agent.Pong{}
	case 0:
		if l.rng.IntN(4) == 0 {
			return agent.AskPeers{}
		}
		if l.rng.IntN(2) == 0 {
			return agent.Profiles{Tasks: []agent.Profile{{Task: l.task(), Measured: model.Measured{GPU: l.rng.Float64()}}}}
		}
		if l.rng.IntN(4) == 0 {
			devices := l.rng.IntN(5)
			return agent.Load{Use: make([]int, devices), Used: make([]int, devices), Guaranteed: make([]int, devices), Waiting: l.rng.IntN(3)}
		}
		if l.rng.IntN(4) == 0 {
			return agent.Configured{Told: model.NodeSettings{VGPUs: l.rng.IntN(3)}, InForce: model.NodeSettings{VGPUs: 1}, Error: []string{"", "no"}[l.rng.IntN(2)]}
		}
		return agent.Inventory{Devices: l.devices()}
	case 3:
		if n := len(l.folders); n > 0 {
			c := l.folders[n-1-l.rng.IntN(min(n, 3))]
			return agent.Checkpointed{Task: c.Task, Folder: c.Folder, Error: []string{"", "", "no"}[l.rng.IntN(3)]}
		}
	case 1:
		return agent.Lent{ID: l.task().String(), Error: []string{"", "", "no"}[l.rng.IntN(3)]}
	}
	return l.report()
}

func (l *liar) submission() api.Submission {
	s := api.Submission{Arguments: []string{"prog"}, Directory: "/home"}
	options := [][]string{
		{"-n1"}, {"-n4"}, {"-N2"}, {"-N1", "--exclusive"}, {"--gres=gpu:1"}, {"--gres=rgpu:1"}, {"--gres=rgpu:3"}, {"--gres=rgpu:2:2G", "--rcuda-mode=shar"}, {"-n1", "--array=0-3%2"},
		{"-n1", "--dependency=singleton"}, {"-n1", fmt.Sprintf("--dependency=afterok:%d", 1+l.rng.IntN(40))}, {"-n1", "--exclude=" + l.name()}, {"-n1", "-w", l.name()},
		{"-n1", "--mem=1G"}, {"-n1", "--begin=now+60"}, {"-n1", "--deadline=now+100"}, {"-N2", "--gres=gpu:1", "--or=-n1"}, {"-n1", "--hold"}, {"-n1", "--signal=10@30", "--time=1"},
		{"-n1", "--gres=gpu:gpu:1"}, {"-n1", "-C", "f"}, {"-n1", "-C", "[f|g]", "-N1"}, {"-n1", "-L", "x:2"}, {"-n1", "-L", "x,y", "--array=0-3"}, {"-n1", "-A", "a"}, {"-n1", "-A", "b", "--array=0-3%2"}, {"-n1", "-p", "q"}, {"-n1", "-p", "p", "--array=0-9"},
	}
	s.Options = append([]string{"--requeue", "--qos=" + []string{"low", "high"}[l.rng.IntN(2)]}, options[l.rng.IntN(len(options))]...)
	if l.rng.IntN(2) == 0 {
		s.Script = "#!/bin/sh\n"
	}
	if l.rng.IntN(8) == 0 {
		s.Arguments = []string{"<allocation>"}
	}
	if l.rng.IntN(8) == 0 {
		s.Allocation, s.Script, s.Options = true, "", s.Options[1:]
	}
	if l.rng.IntN(4) == 0 {
		s.Key = fmt.Sprint(l.rng.IntN(5))
	}
	return s
}
