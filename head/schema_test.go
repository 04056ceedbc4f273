package head_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/internal/need"
	"muster/wire/agent"
	"muster/wire/api"
)

// odd are values at and beyond what an option may have, by kind of option.
var odd = func() map[string][]string {
	m := map[string][]string{
		"name":     {"", "x", "a b", "x\x00", "\x00", "\xff", "é\xc3", "ü漢😀", "x\x1b[2J", "a\nb", "\t", "\u202e", "\u00a0", "'\"\\", "<&>\u2028", "=", "-1", "0", "--"},
		"path":     {"/", "//", "dir/", ".", "%x", "%x/%x", "%", "%9999999999j", "%N%N%u%A_%a%%", "a b", "\x00", "\xff", "\n"},
		"variable": {"A=", "A=b", "A", "=", "=A", "ALL", "NONE", "ALL,A='b,c'", "A=\x00", "A='\x00'", "A=\xff", "A=\n", "A=<&>"},
		"number":   {"-1", "0", "1", "2", "3", "4", "16", "17", "64", "65", "1000000", "2147483648", "9223372036854775808"},
		"array":    {"0", "0-2", "0-3%2", "4000000", "4000001", "3-1", "1-2:0"},
		"gres":     {"gpu:1", "gpu:16", "gpu:17", "gpu:2:1G", "gpu:2+:1G", "gpu:16+:1G", "rgpu:1", "rgpu:16", "rgpu:17", "rgpu:32", "rgpu:33", "rgpu:17:1G", "rgpu:16:1M", "gpu:gpu:1", "gpu:1,rgpu:16", "gpu:1,rgpu:15", "gpu:\x00:1"},
		"or":       {"-n2 --gres=rgpu:17", "-N2 --gres=rgpu:17", "-n1", "--gres=gpu:1"},
		"nodes":    {"n1", "n[1-3]", "n[1-", "n1,n2", "n4", "n1\x00"},
		"time":     {"1", "UNLIMITED", "1:00", "0", "now+60", "9999999999"},
		"other":    {"afterok:1", "singleton", "USR1@60", "B:64@0", "65", "1G", "append", "\x00"},
	}
	for _, n := range []int{255, 256, 1023, 1024, 1025} {
		m["name"] = append(m["name"], strings.Repeat("x", n))
	}
	for _, n := range []int{15, 16, 255, 2047, 4094, 4095, 4096} {
		m["path"] = append(m["path"], strings.Repeat("x", n), "/"+strings.Repeat("y/", n/2), strings.Repeat("%N", n), strings.Repeat("%x", n))
	}
	for _, n := range []int{128<<10 - 3, 128<<10 - 2, 128<<10 - 1, 128 << 10} {
		m["variable"] = append(m["variable"], "A="+strings.Repeat("x", n-2))
		m["argument"] = append(m["argument"], strings.Repeat("x", n))
	}
	m["argument"] = append(append(m["argument"], m["name"]...), m["path"]...)
	return m
}()

// oddOptions are the options, and their kinds.
var oddOptions = [][2]string{
	{"-J", "name"}, {"-A", "name"}, {"-p", "name"}, {"-q", "name"}, {"--comment", "name"}, {"--mail-user", "name"}, {"-o", "path"}, {"-e", "path"}, {"-i", "path"}, {"-D", "path"}, {"--export", "variable"},
	{"-a", "array"}, {"-N", "number"}, {"-n", "number"}, {"-c", "number"}, {"--ntasks-per-node", "number"}, {"--nice", "number"}, {"--priority", "number"}, {"-G", "number"}, {"--gpus-per-node", "number"}, {"--gpus-per-task", "number"},
	{"--gres", "gres"}, {"--gres", "gres"}, {"--gres", "gres"}, {"--or", "or"}, {"-w", "nodes"}, {"-x", "nodes"}, {"-t", "time"}, {"-b", "time"}, {"--deadline", "time"}, {"--mem", "other"}, {"-d", "other"}, {"--signal", "other"}, {"--open-mode", "other"},
	{"--reservation", "name"}, {"--mapping", "name"}, {"--gpu-beyond", "number"}, {"--gpu-weight", "number"}, {"--gpu-reach", "other"}, {"--gpu-class", "other"},
}

// oddSubmission draws a submission of which a few parts are odd.
func oddSubmission(rng *mathrand.Rand) api.Submission {
	of := func(kind string) string { return odd[kind][rng.IntN(len(odd[kind]))] }
	maybe := func(usual, kind string) string {
		if rng.IntN(8) > 0 {
			return usual
		}
		return of(kind)
	}
	s := api.Submission{Directory: maybe("/home", "path"), Key: maybe("", "name"), User: maybe("", "name")}
	for range rng.IntN(3) {
		o := oddOptions[rng.IntN(len(oddOptions))]
		s.Options = append(s.Options, o[0], of(o[1]))
	}
	if rng.IntN(2) == 0 {
		s.Script = "#!/bin/sh\n"
		if rng.IntN(3) == 0 {
			o := oddOptions[rng.IntN(len(oddOptions))]
			s.Script += "#SBATCH " + o[0] + " '" + of(o[1]) + "'\n"
		}
	} else {
		s.Arguments = []string{maybe("prog", "argument")}
	}
	for range rng.IntN(3) {
		s.Arguments = append(s.Arguments, maybe("a", "argument"))
		s.Environment = append(s.Environment, maybe("A=b", "variable"))
	}
	return s
}

// authority makes a certificate, for grants of devices on other nodes.
func authority(t testing.TB) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Whatever is submitted, with odd content at and beyond the limits: what the head accepts, agents
// accept. Each message to an agent is encoded and decoded, and comes as it was sent, also after a
// restart of the head, and when jobs are suspended, requeued, limited and cancelled.
func TestAcceptedIsSendable(t *testing.T) {
	ca, accepted, refused := authority(t), 0, 0
	for seed := range uint64(need.Rounds(66, 100)) { // each of eleven policies
		a, r := acceptedIsSendable(t, ca, seed)
		accepted, refused = accepted+a, refused+r
	}
	if min(accepted, refused) < 500 {
		t.Errorf("%d accepted, %d refused: this shows little", accepted, refused)
	}
}

func FuzzAcceptedIsSendable(f *testing.F) {
	ca := authority(f)
	f.Add(uint64(1000))
	f.Fuzz(func(t *testing.T, seed uint64) { acceptedIsSendable(t, ca, seed) })
}

func acceptedIsSendable(t *testing.T, ca string, seed uint64) (accepted, refused int) {
	t.Helper()
	policies := []string{"fcfs", "easy", "conservative", "first-fit", "slurm", "rgpu", "auction", "mosaic", "gpu-packing", "priced-fit", "mccs-colocation"}
	rng := mathrand.New(mathrand.NewPCG(seed, 34))
	p := newPlayer()
	p.cfg.Authority, p.policy = ca, policies[seed%uint64(len(policies))]
	p.sent = func(s head.Send) {
		m := s.Message
		if start, ok := m.(agent.Start); ok {
			if err := head.FillIn(&start, func(job uint64) ([]byte, error) { return p.disk[head.Bulk][string(head.Number(job))], nil }); err != nil {
				t.Fatal(err)
			}
			m = start
		}
		text, err := agent.Encode(nil, m)
		if err != nil {
			t.Fatalf("%s, seed %d: %v", p.policy, seed, err)
		}
		if got, err := agent.ReadToAgent(bytes.NewReader(text)); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%s, seed %d: %.500v came as %.500v, %v", p.policy, seed, m, got, err)
		}
	}
	greet := func() {
		for _, words := range []string{"n1 cores=64 gpus=16", "n2 cores=64 gpus=16", "n3 cores=2 gpus=2", "n4 cores=64"} {
			name, rest, _ := strings.Cut(words, " ")
			if _, known := p.hello[name]; known {
				rest = ""
			}
			p.node(append([]string{name}, strings.Fields(rest)...))
		}
		p.settle()
	}
	boot := func() {
		if err := p.boot(); err != nil {
			t.Fatalf("%s, seed %d: %v", p.policy, seed, err)
		}
		greet()
	}
	boot()
	admin := head.Caller{Request: 1, User: "root"}
	for range 25 {
		p.out.Reset()
		p.core.Handle(p.now, head.Submit{Caller: head.Caller{Request: 1, User: []string{"alice", "root"}[rng.IntN(2)]}, Submission: oddSubmission(rng), Secret: "s"})
		p.settle()
		if strings.Contains(p.out.String(), "  submitted") {
			accepted++
		} else {
			refused++
		}
		if rng.IntN(8) == 0 {
			boot()
		}
		jobs := p.core.JobList(p.now, head.Filter{})
		if len(jobs) == 0 {
			continue
		}
		one := head.Ref{Job: jobs[rng.IntN(len(jobs))].ID, Task: -1}
		actions := []head.Action{head.SuspendJob, head.ResumeJob, head.RequeueJob, head.LimitDevices}
		if n := rng.IntN(2 * len(actions)); n < len(actions) {
			p.core.Handle(p.now, head.Change{Caller: admin, Jobs: one, Action: actions[n], Limit: rng.IntN(3)})
		} else {
			p.core.Handle(p.now, head.Cancel{Caller: admin, Jobs: one})
		}
		p.now += time.Minute
		p.settle()
	}
	return accepted, refused
}

// Submissions that no agent could start are refused, with the option and what to do.
func TestRefusedAtSubmission(t *testing.T) {
	p := newPlayer()
	if err := p.boot(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p.node([]string{fmt.Sprint("n", i+1), "gpus=16"})
	}
	p.settle()
	run := func(options ...string) api.Submission {
		return api.Submission{Arguments: []string{"prog"}, Directory: "/", Options: options}
	}
	long := strings.Repeat("x", 128<<10)
	for _, c := range []struct {
		s    api.Submission
		want string // "" if it is accepted
	}{
		{api.Submission{Script: "#!/bin/sh\nid\n", Directory: "/", Options: []string{"-a", "0-2", "-N", "1", "--exclusive", "-J", "x\x00"}}, "--job-name: it has a zero byte (NUL): remove it"},
		{api.Submission{Script: "#!/bin/sh\n#SBATCH -J 'x\x00'\nid\n", Directory: "/"}, "--job-name: it has a zero byte (NUL): remove it"},
		{api.Submission{Script: "#!/bin/sh\n#MUSTER --account='x\x00'\nid\n", Directory: "/"}, "--account: it has a zero byte"},
		{run("-A", "\x00"), "--account: it has a zero byte"},
		{run("-p", "\x00"), "--partition: it has a zero byte"},
		{run("-q", "\x00"), "--qos: it has a zero byte"},
		{run("--comment", "\x00"), "--comment: it has a zero byte"},
		{run("--export", "A=\x00"), `--export: "A=\x00" is no variable`},
		{api.Submission{Script: "#!/bin/sh\n#SBATCH -J x\x00\nid\n", Directory: "/"}, "--job-name: it has a zero byte"},
		{run("-D", "/\x00"), "--chdir: it has a zero byte"},
		{run("-J", "\xff"), "--job-name: it is not valid UTF-8: convert it with iconv"},
		{run("--comment", "\xff"), "--comment: it is not valid UTF-8"},
		{run("-J", "x\x1b[2J"), `--job-name: it has the character '\x1b', which cannot be shown: remove it`},
		{run("-p", "a\u202eb"), "--partition: it has the character"},
		{run("-J", long[:1025]), "--job-name: it has 1025 bytes: give at most 1024"},
		{run("-J", "größe 漢 1"), ""},
		{run("-w", "n1\x00"), "--nodelist: "},
		{run("-o", long[:4096]), "--output: it has 4096 bytes: give at most 4095"},
		{run("-o", strings.Repeat("%N", 100)), "--output: it has 25500 bytes: give at most 4095"},
		{api.Submission{Arguments: []string{"dir/"}, Directory: "/", Options: []string{"-o", "%x"}}, "--output: its name is empty once %x and its like are filled in: give another"},
		{api.Submission{Arguments: []string{"prog", long}, Directory: "/"}, "arguments: it has 131072 bytes: give at most 131071"},
		{api.Submission{Arguments: []string{"prog"}, Directory: "/", Environment: []string{"A=" + long}}, "environment (--export): it has 131074 bytes"},
		{api.Submission{Arguments: []string{"prog"}, Directory: "/", Environment: []string{"A"}}, `environment (--export): "A" is not a variable: write NAME=VALUE`},
		{api.Submission{Arguments: []string{"prog"}, Directory: "/" + long[:4095]}, "directory (--chdir): it has 4096 bytes"},
		{api.Submission{Arguments: []string{"prog"}, Directory: "/", User: "a\x00b"}, "user: it has a zero byte"},
		{api.Submission{Arguments: []string{"prog"}, Directory: "/", User: "a b", Options: []string{"--gres=gpu:1"}}, "user"},
		{run("--gres=rgpu:17"), "--gres: it asks for 17 GPUs for the programs of a node, which can have 16: ask for fewer, or for 2 nodes with -N"},
		{run("-n", "64", "--gres=rgpu:17"), "or for 2 nodes with -N"},
		{run("--gres=gpu:17"), "--gres: it asks for 17 GPUs for the programs of a node, which can have 16: ask for fewer, and for more nodes"},
		{run("--gres=gpu:1", "--or=--gres=rgpu:17"), "--gres: it asks for 17 GPUs"},
		{run("--gres=rgpu:16"), ""},
		{run("-N2", "--gres=rgpu:32"), ""},
	} {
		c.s.Key = "" // each is its own
		p.core.Handle(p.now, head.Submit{Caller: head.Caller{Request: 1, User: "root"}, Submission: c.s, Secret: "s"})
		before := p.out.Len()
		p.settle()
		said := p.out.String()[before:]
		if c.want == "" && !strings.Contains(said, "submitted") || c.want != "" && (!strings.Contains(said, "400: ") || !strings.Contains(said, c.want)) {
			t.Errorf("%.200q: %s", c.s.Options, said)
		}
	}
}

// A policy may give one node of a job more devices than a program can have: the head gives them to
// the job's other nodes.
func TestDevicesAreSpread(t *testing.T) {
	p := newPlayer()
	p.cfg.Authority = authority(t)
	if err := p.boot(); err != nil {
		t.Fatal(err)
	}
	p.node([]string{"n1", "gpus=16"})
	p.node([]string{"n2"})
	p.node([]string{"n3", "gpus=16", "cores=1"})
	var devices []int
	p.sent = func(s head.Send) {
		if m, ok := s.Message.(agent.Start); ok {
			devices = append(devices, len(m.Grant.Devices))
		}
	}
	if err := p.user("alice", "submit", []string{"-N2", "-n4", "--gres=rgpu:30"}); err != nil {
		t.Fatal(err)
	}
	p.settle()
	slices.Sort(devices)
	if !slices.Equal(devices, []int{14, 16}) {
		t.Errorf("%v\n%s", devices, p.out.String())
	}
}

// A job at which every agent hangs up fails in the end, and says why.
func TestBlamedJobsFail(t *testing.T) {
	p := newPlayer()
	if err := p.boot(); err != nil {
		t.Fatal(err)
	}
	p.node([]string{"n1"})
	if err := p.user("alice", "submit", []string{"--requeue"}); err != nil {
		t.Fatal(err)
	}
	poison := false
	p.sent = func(s head.Send) {
		if _, ok := s.Message.(agent.Start); ok {
			poison = true
		}
		p.silent = poison // it answers what it reads before that
	}
	for range 30 {
		p.now += time.Second // it pauses between its starts
		p.settle()
		p.core.Handle(p.now, head.HungUp{Session: p.session["n1"], Reason: "it closed the connection"})
		poison = false
		p.node([]string{"n1"})
	}
	jobs, _ := p.core.Job(p.now, head.Ref{Job: 1, Task: -1})
	if jobs[0].State != api.Failed || !strings.Contains(jobs[0].Why, "node n1 hung up again and again when it was told to start it: it closed the connection") {
		t.Errorf("%+v", jobs[0])
	}
	if nodes := p.core.NodeList(p.now); nodes[0].Left == "" {
		t.Errorf("%+v", nodes)
	}
}
