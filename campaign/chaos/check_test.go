package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	mm := command{words: []string{"mm"}, line: "mm: 2 products right"}
	poke := command{words: []string{"weave"}, line: "weave: an illegal address in round 3, as asked", status: 3}
	gone := []excuse{{"fault 1: worker-kill", "its worker has ended"}}
	const good, told = "mm: 2 products right, 0.02 s (GPU 0.01 s, CPU 0.01 s)\n", "muster: its worker has ended: signal: killed\nmm: gpu.c:1: cuMemAlloc(&p): CUDA_ERROR_DEVICE_UNAVAILABLE: busy\n"
	for _, c := range []struct {
		name      string
		command   command
		status    int
		out, said string
		killed    bool
		excuses   []excuse
		want      outcome
	}{
		{"right", mm, 0, good, "", false, nil, right},
		{"right in the end", mm, 0, good, "", true, gone, right},
		{"its own error", poke, 3, poke.line + "\n", "", false, nil, ownError},
		{"no error", poke, 0, good, "", false, nil, wrong},
		{"another error than its own", poke, 1, "", told, false, nil, wrong},
		{"another error, excused", poke, 1, "", told, false, gone, excused},
		{"killed by a fault", mm, -1, "", "", true, nil, killed},
		{"killed by nobody", mm, -1, "", "", false, gone, wrong},
		{"told", mm, 1, "", told, false, gone, excused},
		{"told without an excuse", mm, 1, "", told, false, nil, wrong},
		{"told something else", mm, 1, "", "muster: out of memory\nmm: f(): CUDA_ERROR_OUT_OF_MEMORY: \n", false, gone, wrong},
		{"a wrong result is never excused", mm, 1, "", "muster: its worker has ended\nmm: element 1, 2 is 3, not 4\n", false, gone, wrong},
		{"nothing printed", mm, 0, "", "", false, nil, wrong},
		{"printed twice", mm, 0, good + good, "", false, nil, wrong},
		{"another result", mm, 0, "mm: 3 products right, 1 s (GPU)\n", "", false, nil, wrong},
	} {
		how, err := c.command.judge(c.status, c.out, c.said, c.killed, c.excuses)
		if how != c.want || (err != nil) != (c.want == wrong) {
			t.Errorf("%s: %s, %v, want %s", c.name, how, err, c.want)
		}
	}
}

// A program whose worker has ended, or is about to, is not served.
func TestAllServed(t *testing.T) {
	had := func(inodes ...string) map[string]bool {
		m := map[string]bool{}
		for _, i := range inodes {
			m[i] = true
		}
		return m
	}
	processes := map[int]*process{
		1: {role: isDaemon, shared: had("ring1", "ring2")},
		2: {role: isProgram, program: 9, shared: had("ring1", "arena1")}, 3: {role: isWorker, shared: had("ring1", "arena1")},
		4: {role: isProgram, shared: had("ring2")}, 5: {role: isWorker, shared: had("ring2", "arena2")},
		6: {role: isProgram}, 7: {role: isWorker},
	}
	if !allServed(processes, map[int]bool{7: true}, nil) {
		t.Error("all have their workers")
	}
	if allServed(processes, map[int]bool{5: true}, nil) {
		t.Error("a worker was killed and counts")
	}
	delete(processes, 3)
	if allServed(processes, nil, nil) {
		t.Error("a worker is gone, and its program counts as served")
	}
	if !allServed(processes, nil, map[int]bool{9: true}) {
		t.Error("a program from elsewhere counts")
	}
}

// A worker that was seen between fork and exec looked like its daemon.
func TestLookAgainAtDaemons(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.Env = []string{markVariable + "=look-again", programVariable + "=3"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	pid := cmd.Process.Pid
	// The kernel closes the pipe for which Start waits before a new program has its environment.
	for give := time.Now().Add(4 * time.Minute); ; runtime.Gosched() {
		if environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || len(environment) > 0 || time.Now().After(give) {
			break
		}
	}
	p := look("look-again", map[int]*process{pid: {pid: pid, role: isDaemon, shared: map[string]bool{"ring": true}}})[pid]
	if p == nil || p.role != isProgram || p.program != 3 || len(p.shared) > 0 {
		t.Errorf("%+v", p)
	}
}

func TestRefusedMoves(t *testing.T) {
	for text, want := range map[string]bool{
		"there is no client 3: muster ps lists those there are":              true,
		`client 3 needs 9437184 bytes, and device "gpu1" has 8388608 for it`: true,
		"device gpu1 is lost":                         true,
		"the daemon does not answer: EOF":             false,
		"there is no request \"moove\": did you mean": false,
	} {
		if got := isRefusal(errors.New(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestLine(t *testing.T) {
	r := Report{Seed: 5, Injected: 30, Episodes: 2, Seconds: 11.6, Violations: []Violation{{}}, Result: Result{
		Faults: map[Kind]int{WorkerKill: 20, Move: 10}, PassedOver: 1, Ends: map[string]int{string(right): 7, string(wrong): 1},
	}}
	const want = "campaign: seed=5 faults=30 (move 10, worker-kill 20) passed_over=1 episodes=2 seconds=12 programs=8 (right 7, wrong 1) wrong=1 violations=1"
	if got := r.Line(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// Equal seeds give equal plans, whatever was drawn before; other seeds give other plans.
func TestPlan(t *testing.T) {
	type plan struct {
		node   string
		first  string
		faults [20]fault
	}
	draw := func(seed uint64, episode int) (p plan) {
		s := drawNode(seed, episode, Kinds, true)
		p.node = s.file("@s", "/rules", "/swap", "")
		p.first = drawCommand(draws(seed, episode, drawsProgram, 0)).String()
		for i := range p.faults {
			p.faults[i] = drawFault(seed, episode, i+1, s.kinds)
		}
		return p
	}
	first := draw(1, 1)
	if again := draw(1, 1); again != first {
		t.Errorf("the same seed gives\n%+v, then\n%+v", first, again)
	}
	if draw(1, 2) == first || draw(2, 1) == first {
		t.Error("another episode, or another seed, is the same")
	}
	// Each kind comes up, and those that a node cannot have do not.
	seen := map[Kind]bool{}
	for episode := range 50 {
		s := drawNode(7, episode, Kinds, true)
		for i := range 50 {
			k := drawFault(7, episode, i, s.kinds).kind
			seen[k] = true
			if k == DiskFull && s.swap != "disk" {
				t.Fatal("a disk is filled that is not there")
			}
		}
	}
	for _, k := range Kinds {
		if !seen[k] {
			t.Errorf("%s never comes up", k)
		}
	}
}
