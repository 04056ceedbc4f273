package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/easy"
)

// table is the calls of Table 4-1, and the two of Listing 4-3.
var table = strings.Fields(`
	mccsSetCallBack mccsReport mccsClean
	mccsGetNodeList mccsGetNode mccsPingNode mccsQueryNodeInfo mccsCreateNode mccsAddNode mccsCreateAccelerator mccsAddAccelerator
	mccsSetNodeSchedulingP mccsSetNodeSharingP mccsSetNodeVGPUConf mccsQueryNodeQueues mccsConfigureNodes
	mccsAddJob mccsRemoveJob mccsRetrieveJob mccsSetProfilingPeriod mccsAddNodeToJob mccsRemoveAllNodesFromJob mccsSetDeviceLimit mccsStartJob mccsDiscardJob
	mccsAddJobToHead mccsAddJobToTail`)

func TestTheTableIsThere(t *testing.T) {
	if len(table) != 27 {
		t.Fatalf("%d calls", len(table))
	}
	for _, name := range table {
		if c, ok := mccsCalls[name]; !ok || !strings.HasPrefix(c.call, name+"(") && name != "mccsSetCallback" || c.help == "" {
			t.Errorf("%s is missing", name)
		}
	}
}

func twoNodes() *model.Cluster {
	return &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}, Nodes: []model.Node{
		{Name: "a", Cores: 4, Memory: 100, GPUs: []int{0, 0}}, {Name: "b", Cores: 8, Memory: 100, GPUs: []int{0}},
	}}
}

func loadLibrary(t *testing.T, text string) (*Policy, *policy.State) {
	t.Helper()
	p, err := Load("test.star", []byte(text), "", func(string) (policy.Policy, error) { return easy.Entry.Make("") })
	if err != nil {
		t.Fatal(err)
	}
	return p, policy.NewState(twoNodes(), p)
}

func spread(id string, processes int) *model.Job {
	return &model.Job{ID: id, Run: time.Hour, Request: model.Request{Cores: processes, CoresPerProcess: 1, GPUs: 1, GPUMemory: 2}}
}

// equal is for scripts: it fails where two values differ.
const equal = `
def equal(got, want):
    if got != want:
        fail("got", got, "want", want)
`

// Every call of the library, with what it answers.
func TestCallsOfTheLibrary(t *testing.T) {
	p, s := loadLibrary(t, equal+`
def init():
    mccsSetCallBack(NewJobArrival, new_job)
    mccsSetCallback(JobComplete, complete)
    mccsSetCallBack(PriorityChange, priority)
    mccsSetCallBack(ProfileReceived, profile)
    mccsSetCallBack(Termination, lambda _: mccsReport("over"))
    mccsSetProfilingPeriod(10 * MINUTE)
    a, b = mccsGetNodeList()
    equal([a.name, NodeWeight(a), b.weight, NumAssignedProcesses(a)], ["a", 2, 1, 0])
    equal(mccsGetNode("b"), b)
    equal(mccsGetNode(cpus = 5), b)
    equal(mccsGetNode(gpus = 2), a)
    equal(mccsGetNode(gpus = 3), None)
    equal(mccsGetNode("c"), None)
    equal(mccsPingNode(a), True)
    info = mccsQueryNodeInfo(a)
    equal([info["cpus"], info["free_cpus"], info["memory"], len(info["gpus"]), info["gpus"][0]["memory"], info["free_gpus"]], [4, 4, 100, 2, 8, 2])
    c = mccsCreateNode("c", cpus = 16)
    gpu = mccsCreateAccelerator("big", memory = 32)
    equal(mccsAddAccelerator(c, gpu), True)
    equal(mccsAddAccelerator(a, mccsCreateAccelerator("big")), False)
    mccsAddNode(c)
    equal([n.name for n in mccsGetNodeList()], ["a", "b", "c"])
    equal([mccsPingNode(c), c.joined, c.weight, mccsQueryNodeInfo(c)["gpus"][0]["type"]], [False, False, 1, "big"])
    equal([info["alive"], info["last_word"], mccsPingNode(a, within = 1)], [True, None, True])
    equal(mccsSetNodeSchedulingP(a, "sjf"), True)
    equal(mccsSetNodeSharingP(b, "exclusive"), True)
    equal(mccsSetNodeVGPUConf(a, 2), True)
    SetNodeWeight(b, 5)
    SortNodes()
    equal([n.name for n in mccsGetNodeList()], ["b", "a", "c"])

def new_job(job):
    mccsAddJob(job, UnassignedJobQueue)
    equal(mccsRetrieveJob(UnassignedJobQueue, id = job.id), job)

def main():
    a, b = mccsGetNode("a"), mccsGetNode("b")
    if len(UnassignedJobQueue) == 0:
        return
    job = mccsRemoveJob(UnassignedJobQueue)
    if job == None or job.id != "first":
        return
    equal([job.numProcesses, remainingProcesses(job), job.limit, job.assigned, MinNodes(job)], [5, 5, ALL, False, 2])
    equal(mccsAddNodeToJob(job, b, 5), 1)   # it is exclusive, and has one GPU
    equal(mccsAddNodeToJob(job, b, 1), 0)
    equal(mccsConfigureNodes(job), False)
    equal(mccsStartJob(job), False)
    equal(mccsAddNodeToJob(job, a, 9), 4)   # two GPUs with two processes each; and it has 4 cores
    equal([NumAssignedProcesses(a), Available(b, job), remainingProcesses(job)], [4, 4, 0])
    mccsRemoveAllNodesFromJob(job)
    equal([NumAssignedProcesses(a), len(job.nodes)], [0, 0])
    mccsAddJobToTail(job, UnassignedJobQueue)
    other = mccsRemoveJob(UnassignedJobQueue)
    equal(other.id, "second")
    equal(mccsRemoveJob(UnassignedJobQueue), None)
    mccsAddJob(other, UnassignedJobQueue, until_fits = True)
    job = mccsRetrieveJob(UnassignedJobQueue)
    equal(job.id, "first")
    mccsAddNodeToJob(job, a, 4)
    mccsAddNodeToJob(job, b, 1)
    equal(mccsConfigureNodes(job), True)
    mccsSetDeviceLimit(job, 0)
    equal(mccsStartJob(job), False)
    mccsSetDeviceLimit(job, 1)
    equal(mccsStartJob(job), True)
    equal([job.assigned, len(AssignedJobQueue), [j.id for j in AssignedJobQueue], [n.name for n in job.nodes]], [True, 1, ["first"], ["a", "b"]])
    equal(mccsQueryNodeQueues(a), {"running": 1, "suspended": 0, "running_processes": 4, "suspended_processes": 0, "programs": 0, "programs_waiting": 0, "report_age": None})
    equal(NumAssignedProcesses(a), 1)       # it may use one GPU

def priority(job):
    mccsReport("priority of", job.id, job.rank)

def profile(job):
    mccsReport("profile of", job.id, job.elapsed // MINUTE, job.left // MINUTE)
    equal([job.cpu_time, job.gpu_time, job.wait_time, job.move_time, job.copied, job.swapped], [8 * MINUTE, 3 * MINUTE, 30 * SECOND, 0, 12, 3])
    equal(mccsSetDeviceLimit(job, 0), True)
    equal(mccsSetDeviceLimit(job, ALL), False)   # not before it has stopped
    mccsSetProfilingPeriod(0)

def complete(job):
    mccsReport("complete:", job.id)
    mccsClean()
    equal([len(UnassignedJobQueue), len(AssignedJobQueue)], [0, 0])
`)
	step := func(now time.Duration) *policy.Plan {
		t.Helper()
		plan := s.Step(now)
		if f := p.Trouble().Last; f != nil {
			t.Fatal(f)
		}
		return plan
	}
	first, err := s.Submit(spread("first", 5))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := s.Submit(spread("second", 1))
	plan := step(0)
	if len(plan.Starts) != 1 || plan.Starts[0].Err != nil || len(plan.Limits) != 1 || plan.Limits[0] != (policy.Limit{Job: first, Devices: 1}) || plan.Wake != 10*time.Minute || plan.Profiles != policy.StartProfiles {
		t.Fatalf("%+v", plan)
	}
	told := []policy.NodeLine{
		{Node: 0, Settings: model.NodeSettings{VGPUs: 2, Policy: "sjf", Profiling: 600}},
		{Node: 1, Settings: model.NodeSettings{Sharing: model.Exclusive, Profiling: 600}},
	}
	if !slices.Equal(plan.Nodes, told) || plan.Watches != policy.StartWatching {
		t.Fatalf("%+v", plan)
	}
	if err := s.Measure(first, model.Measured{CPU: 480, GPU: 180, Waited: 30, CopiedIn: 10, CopiedOut: 2, SwapIn: 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.Rank(second, 7); err != nil {
		t.Fatal(err)
	}
	step(time.Minute)
	if plan = step(10 * time.Minute); len(plan.Stops) != 1 || plan.Stops[0].How != policy.Suspend || plan.Profiles != policy.StopProfiles {
		t.Fatalf("%+v", plan)
	}
	if err := s.Suspended(first); err != nil {
		t.Fatal(err)
	}
	step(11 * time.Minute)
	if err := s.End(first); err != nil {
		t.Fatal(err)
	}
	step(12 * time.Minute)
	p.Terminate()
	want := []string{
		"the devices of node a are those that its agent has found: mccsAddAccelerator is for nodes that mccsCreateNode has described",
		"priority of second 7", "profile of first 10 50", "complete: first",
	}
	if got := p.Printed(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if why := s.Why(second); why != "the policy's program has put it into no queue" {
		t.Error(why)
	}
}

// Nodes are told what the script says of them once, when they come, and after a new beginning only what is another.
func TestScriptsConfigureNodes(t *testing.T) {
	p, s := loadLibrary(t, equal+`
def init():
    c = mccsGetNode("c") or mccsCreateNode("c")
    mccsAddNode(c)
    mccsSetNodeSharingP(c, "shared")
    mccsSetNodeVGPUConf(mccsGetNode("a"), 5000)
    mccsSetNodeSchedulingP(mccsGetNode("a"), "credit")
    mccsSetCallBack(NewJobArrival, arrival)

def arrival(job):
    a = mccsGetNode("a")
    mccsSetNodeSchedulingP(a, "")
    q, info = mccsQueryNodeQueues(a), mccsQueryNodeInfo(a)
    mccsReport(q["programs"], q["programs_waiting"], q["report_age"], info["alive"], info["last_word"], mccsPingNode(a, within = 2 * SECOND), mccsPingNode(a, within = 4 * SECOND))
    if job.id == "bad":
        fail("on purpose")
`)
	step := func(now time.Duration) string {
		plan := s.Step(now)
		text := fmt.Sprint(plan.Watches == policy.StartWatching)
		for _, n := range plan.Nodes {
			text += fmt.Sprintf("; %d: %v", n.Node, n.Settings)
			if n.Err != nil {
				t.Error(n.Err)
			}
		}
		return text
	}
	var bad policy.JobID
	for i, c := range []struct {
		do   func()
		want string
	}{
		{func() {}, "false; 0: vgpus 1024, policy credit"},
		{func() {}, "false"},
		{func() { s.AddNode(model.Node{Name: "c", Cores: 4}) }, "false; 2: shared"},
		{func() { s.Submit(spread("one", 1)) }, "true; 0: vgpus 1024"},
		{func() {
			s.Hear(0, policy.Heard{Alive: true, At: 2 * time.Second, Reported: time.Second, Assigned: 3, Waiting: 2})
			s.Submit(spread("two", 1))
		}, "false"},
		{func() { bad, _ = s.Submit(spread("bad", 1)) }, "false"}, // nothing of a step that fails counts
		{func() { s.End(bad) }, "false; 0: vgpus 1024, policy credit"},
	} {
		c.do()
		if got := step(time.Duration(i+1) * time.Second); got != c.want {
			t.Errorf("step %d: %s, want %s", i+1, got, c.want)
		}
	}
	if got, want := p.Printed(), []string{
		"0 0 None True None True True", "3 2 4000000000 True 3000000000 False True", "3 2 5000000000 True 4000000000 False True",
	}; !slices.Equal(got[:min(3, len(got))], want) {
		t.Errorf("%q", got)
	}
	other, err := easy.Entry.Make("")
	if err != nil {
		t.Fatal(err)
	}
	s.SetPolicy(other)
	if s.Step(time.Minute); !s.SettingsOf(0).IsZero() || !s.SettingsOf(2).IsZero() {
		t.Error("what a policy said of nodes outlives it")
	}
}

// Discarding a running job cancels it, and a waiting one is never started. A job that its
// script puts back is looked at again after an event, and not before.
func TestDiscardedJobs(t *testing.T) {
	p, s := loadLibrary(t, `
def init():
    mccsSetCallBack(NewJobArrival, new_job)

def new_job(job):
    if job.id == "no":
        mccsDiscardJob(job)
        return
    mccsAddJob(job, UnassignedJobQueue)
    mccsAddNodeToJob(job, mccsGetNodeList(job)[0], job.numProcesses)
    mccsStartJob(job)

def main():
    for job in AssignedJobQueue:
        if job.suspended:
            mccsDiscardJob(job)
`)
	yes, _ := s.Submit(spread("yes", 2))
	no, _ := s.Submit(spread("no", 2))
	if plan := s.Step(0); len(plan.Starts) != 1 || plan.Starts[0].Job != yes || p.Trouble().Last != nil {
		t.Fatalf("%+v %v", plan, p.Trouble().Last)
	}
	if err := s.Suspended(yes); err != nil {
		t.Fatal(err)
	}
	if plan := s.Step(1); len(plan.Stops) != 1 || plan.Stops[0].How != policy.Cancel {
		t.Fatalf("%+v %v", plan, p.Trouble().Last)
	}
	if why := s.Why(no); !strings.Contains(why, "no queue") {
		t.Error(why)
	}
}

// What makes no sense fails the step, with its line and column, and the fallback decides.
func TestMistakesWithTheLibrary(t *testing.T) {
	for _, c := range []struct{ main, want string }{
		{`mccsAddNodeToJob(1, 2, 3)`, `test.star:7:21: mccsAddNodeToJob: got int, want a job`},
		{`mccsRemoveJob(7)`, `test.star:7:18: mccsRemoveJob: got int, want UnassignedJobQueue or AssignedJobQueue`},
		{`mccsSetCallBack("Rain", main)`, `test.star:7:20: mccsSetCallBack: there is no event "Rain": use NewJobArrival`},
		{`mccsSetCallBack(JobComplete, main)`, `test.star:7:20: mccsSetCallBack: give a function of one parameter`},
		{`mccsGetNodeList(order = "best")`, `test.star:7:20: mccsGetNodeList: the order is list, available or room, not "best"`},
		{`mccsAddJob(mccsRetrieveJob(UnassignedJobQueue), UnassignedJobQueue)`, `test.star:7:15: job j is in the UnassignedJobQueue already`},
		{`mccsSetNodeSchedulingP(mccsGetNode("a"), "easy")`, `test.star:7:27: node a: policy: must be one of fcfs, sjf, credit, not "easy"`},
		{`mccsSetNodeVGPUConf(mccsGetNode("a"), -1)`, `test.star:7:24: node a: from 0 to 1048576 processes share a GPU, not -1`},
		{`mccsSetDeviceLimit(mccsRetrieveJob(UnassignedJobQueue), -5)`, `test.star:7:23: job j: a limit is a number of GPUs, or -1 for all, not -5`},
		{`SetNodeWeights("x")`, `test.star:7:19: weight "x": write the weights of the first nodes as 8/4/4`},
		{`mccsSetProfilingPeriod(1)`, `test.star:7:27: the period of profiles is 0 for none, or a second at least`},
		{`mccsCreateNode("a")`, `test.star:7:19: there is a node a already: use mccsGetNode`},
	} {
		p, s := loadLibrary(t, fmt.Sprintf(`
def init():
    mccsSetCallBack(NewJobArrival, lambda job: mccsAddJob(job, UnassignedJobQueue))


def main():
    %s
`, c.main))
		if _, err := s.Submit(spread("j", 1)); err != nil {
			t.Fatal(err)
		}
		if plan := s.Step(0); len(plan.Starts) != 1 {
			t.Errorf("%s: the fallback starts %d jobs", c.main, len(plan.Starts))
		}
		if got := p.Trouble().Last; got == nil || !strings.HasPrefix(got.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.main, got, c.want)
		}
	}
	_, err := Load("test.star", []byte("def init():\n  pass\nmccsGetNodeList()\n"), "", nil)
	if err == nil || !strings.HasPrefix(err.Error(), "test.star:3:16: mccsGetNodeList: the calls of the library are for init, main") {
		t.Errorf("outside of functions: %v", err)
	}
}

// A script that fails once goes on as if it had been there all the time: what waits
// arrives again, and what runs is assigned.
func TestTheLibraryAfterAFailure(t *testing.T) {
	p, s := loadLibrary(t, `
def init():
    mccsSetCallBack(NewJobArrival, lambda job: mccsAddJob(job, UnassignedJobQueue))

def main():
    ids = [job.id for job in UnassignedJobQueue]
    if "trouble" in ids and len(AssignedJobQueue) < 1:
        fail("once")
    mccsReport("waiting", ids, "assigned", [job.id for job in AssignedJobQueue], NumAssignedProcesses(mccsGetNode("a")))
`)
	if _, err := s.Submit(spread("trouble", 4)); err != nil {
		t.Fatal(err)
	}
	if plan := s.Step(0); len(plan.Starts) != 1 || p.Trouble().Failures != 1 { // by the fallback
		t.Fatalf("%+v, %+v", plan, p.Trouble())
	}
	if _, err := s.Submit(spread("late", 1)); err != nil {
		t.Fatal(err)
	}
	s.Step(1)
	if got := p.Printed(); len(got) != 1 || got[0] != `waiting ["late"] assigned ["trouble"] 4` {
		t.Errorf("%q, %+v", got, p.Trouble())
	}
}

// What the functions of one step take is bounded together: many jobs may arrive at once.
func TestEventsShareTheirSteps(t *testing.T) {
	const jobs = 50
	p, s := loadLibrary(t, `
def init():
    mccsSetCallBack(NewJobArrival, new_job)

def new_job(job):
    state["seen"] = state.get("seen", 0) + 1
    for i in range(100000): pass
    mccsAddJob(job, UnassignedJobQueue)
`)
	for i := range jobs {
		if _, err := s.Submit(oneNode(fmt.Sprint(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	s.Step(0)
	trouble := p.Trouble()
	if !trouble.Failing || trouble.Last.Line != 5 || !strings.Contains(trouble.Last.Message, "events") {
		t.Errorf("%d events took %d steps each: trouble is %+v", jobs, p.in.meter.thread.Steps, trouble)
	}
}
