package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// DO NOT change this data to make a build pass. It is the architecture: a
// change here is a change of the design and is made on purpose, by itself,
// with the reason in docs/.
//
//   - "a, b < c, d": c and d may import a and b, and whatever those may import.
//     Packages that the rules do not know are refused. "x/*" is all below x
//     that has no rule of its own; "everything" is every package.
//   - "pure: p": p must not import os, net, log, sync and the like, read a
//     clock or roll unseeded dice.
//   - "use module: p": only p may import that module, "test": only its tests.
//
// Tests may import any package of Muster.
const theRules = `
module muster

# The words. Nothing of Muster is below model, and it imports only the standard library.
NOTHING < model
model < model/strictyaml < model/clusterfile
model < model/slurmopt

# What decides.
model < policy, mapping, workload, vmm, wire
model/slurmopt < workload, head, slurm
policy < policy/*
NOTHING < policy/winner # a puzzle with numbers: it knows no job and no cluster
policy/winner < policy/winner/winnertest # auctions to try solvers on
policy < policy/consres
policy, policy/consres, policy/winner < policy/auction
NOTHING < policy/prices # a linear program over numbers: policies and proofs both use it
policy, policy/prices < policy/mosaic
model, workload/portable < policy/priority # the order of a queue: it knows no policy
model/strictyaml, policy/priority < policy/priorityfile
policy, policy/priority < policy/preempt # classes that stop each other, around any policy
policy/preempt < policy/catalog
policy/*, policy/auction, policy/consres, policy/mosaic < policy/catalog
policy, policy/mccs < policy/script # policies in Starlark, with a fallback that the caller makes
policy, policy/script < policy/script/bundled # scripts that come with it
policy/script, policy/script/bundled < policy/catalog
policy/script, policy/catalog < policy/scriptfile # specs that name a file; it is handed what reads
policy/scriptfile < head/daemon
policy < policy/history # what was told to a state, and decided: it knows no policy by name, and no policy knows it

# What simulates: it knows neither head nor node.
NOTHING < sim/fairshare < sim
policy, policy/catalog, policy/history, mapping, workload < sim
NOTHING < workload/portable < workload # numbers that are the same on every machine
model, model/strictyaml, workload/portable < workload/phased
mapping, workload/phased, sim/fairshare < sim/kernels
model, policy/prices < sim/bound
NOTHING < workload/bundled # files, not jobs
workload, workload/bundled, policy/history < workload/source # what a user's word for jobs means: it knows no simulator
sim, sim/kernels, model/clusterfile, workload/source, workload/phased, policy/scriptfile, policy/preempt, internal/misuse, internal/wholefile, report < sim/question # what users ask of the simulators, in words: no simulator knows it
NOTHING < internal/parallel < sim, sim/kernels # tasks, a few at a time: it knows nothing of what they do

# Devices. The backends do not know each other.
NOTHING < ptx, ptx/simt/vec, ptx/simt/tensor, ptx/simt/tensormap
NOTHING < ptx/simt/native # a kernel's instructions as machine code: it knows no PTX and no lane kernel
ptx < ptx/reach # what memory a kernel can use, by its code
ptx, ptx/reach, ptx/simt/vec, ptx/simt/native, ptx/simt/tensor, ptx/simt/tensormap < ptx/simt
model < device
device < device/*
NOTHING < device/curesult < device/cuda, device/remote, node/clientcore # CUDA's numbers for what the driver answers
NOTHING < device/fatbin
device, device/fatbin, ptx, ptx/reach < device/kernelmemory # what memory an image's kernels use, in the contract's words: it knows no device
device, device/fatbin, device/kernelmemory, ptx/simt, ptx/simt/tensormap < device/soft
device, device/fatbin, device/kernelmemory < device/cuda
model, ptx < ptx/number # numbers as people write them
device/fatbin, ptx, report < device/codefile # where people's files have GPU code: it knows no device
device/codefile, internal/wholefile, ptx/simt, shim/functions < device/codecheck # what will be refused of a program
device/codefile, model, ptx, ptx/number, ptx/simt, report < device/onekernel # one kernel of a file, run and shown: it knows no device
device, wire, client < device/remote # a device that another node lends: a client of that node, which knows of it what programs know

# CPU time of threads, for whoever measures, and what tests share that do.
NOTHING < internal/cputime < device/soft
internal/cputime < internal/proportion

# Mistakes of users, told from failures: whoever checks what users ask for says which it is.
NOTHING < internal/misuse < device/onekernel, workload/source, head/client, node/launch, internal/service

# Documents of which every word counts: one decoder for all.
NOTHING < internal/strictjson < wire/envelope, wire/control, wire/agent, wire/borrow, wire/grant, policy/history
internal/strictjson < node, node/agent, node/checkpoint, node/clientcore, head, head/daemon, ivm/proto, ivm/daemon, report/trace/tracetest
wire/envelope < wire/control, wire/agent
NOTHING < internal/indexset < head # numbers that come in runs

# What every socket that strangers reach needs, whoever has it.
NOTHING < internal/door

# A job's right to use devices. Whoever issues one and whoever enforces it share the document and nothing else.
model < wire/grant
wire/grant < node, head, slurm, client

# What nodes say to each other: neither the gateway, which carries it, nor the messages know those who say it.
NOTHING < wire/borrow < node, node/gateway

# The node plane: it knows no job policy.
model, vmm, mapping < node/vgpu
NOTHING < node/fate
NOTHING < node/offload < node # who borrows from whom: it knows no device
model < wire/status # what a node says of itself, for all who show it; no protocol
wire/status < node, head, slurm
wire < wire/control # what daemon and worker say to each other: programs have no business with it
device, vmm, wire, wire/control, mapping < node/clientcore # a client as a value
wire < node/journal # messages of a client, and a base, as bytes
device, vmm < node/checkpoint # how a client lies in a file
NOTHING < wire/timeline # records of where the time went: whoever makes them and whoever shows them share the bytes alone
wire/timeline < node, node/worker
node/clientcore, node/journal, node/checkpoint < node/worker # its executor, and what it keeps for the next, or writes and reads
device, vmm, wire, mapping, internal/door, node/fate, node/vgpu, node/worker, node/checkpoint, internal/wholefile < node
node, model/strictyaml < node/nodefile
node, node/nodefile, node/worker, device/cuda, device/fault, device/onekernel, device/remote, device/soft, internal/machine < node/devices # the one place that knows every kind of device
node, node/devices, node/agent, node/gateway, head/dial, ivm/daemon < node/assembly # a node of all its parts: the parts do not know each other
client, node, node/nodefile, report/nodetable, internal/passthrough < node/launch # what a program needs that Muster serves: it runs none
node, node/checkpoint, node/launch, wire/status, internal/passthrough < node/programs # processes and their clients, saved and restored together

# What a job may use, and what head and agents say to each other: neither knows those who say it.
wire/grant < wire/agent
wire/grant < node/gateway

# Who has a certificate: users, nodes and heads are told apart alike everywhere.
NOTHING < wire/identity < client, head/client, node/gateway, head/dial, head/daemon
# All configurations of TLS, so that each checks who is revoked and who may do what.
wire/identity, internal/wholefile < wire/trust < client, node/gateway, node/devices, node/assembly, head/dial, head/daemon, slurm/lenders

# Bulk data between machines, whoever sends them.
NOTHING < wire/lanes < client, node/gateway
NOTHING < wire/parcel < node/gateway # from one lender to another

# The agent: it starts what the head says, and knows no policy.
wire/agent < node/agentcore # what an agent knows, as a value
node/agentcore, wire/agent, wire/grant, wire/status, client, internal/wholefile < node/agent

# The cluster plane: it knows no device.
policy, policy/catalog, policy/history, wire, model/clusterfile < head, slurm
policy, policy/*, wire/agent, wire/grant < head # the core, as a value
NOTHING < head/api < head # what its clients send and get
head, head/api < head/store # on disk
NOTHING < head/dial < head/daemon, slurm/lenders # how agents and users reach a head: it knows none, and those that they reach share its words
head, head/api, head/store, wire/agent, wire/status, policy/catalog, internal/door, internal/wholefile, model/strictyaml, workload < head/daemon

# What another policy would have made of the head's history. It knows the simulator; neither the core nor the simulator knows it.
head, head/api, sim < head/whatif < head/whatifrun < head/daemon

head/api, head/dial, wire/agent, wire/status, client, model/slurmopt, internal/parallel, internal/passthrough < head/client # what its users' commands ask it; it knows no core

# A real Slurm: what differs between its releases, one of them in a folder, and a private cluster of it. None of them knows the driver.
NOTHING < slurm/release < slurm
NOTHING < slurm/words < slurm # what the driver, the job_submit script and the plug-in say to each other in comments
slurm/words, slurm/release < slurm # the driver's core, as a value
slurm, slurm/release < slurm/engine # a client of a real Slurm
wire/agent, wire/grant, wire/identity, internal/door < slurm/lenders # the nodes that lend GPUs, which connect as they do to a head: it knows no Slurm
head/dial, wire/agent < slurm/lenders/lenderstest # a node for tests
slurm, slurm/engine, slurm/lenders, wire/grant, policy, policy/history, internal/wholefile < slurm/driver # the daemon
slurm/release, internal/wholefile < slurm/fetch < slurm/emulate < slurm/emulate/emulatetest # the last for tests of all that need a cluster
slurm/release, internal/wholefile < slurm/spank # the plug-in and the submit script: sources, and how they are built
client, wire/grant < slurm/step # the programs of a job's step, on one node
slurm, slurm/words, report < slurm/view # what people see of a Slurm: it decides nothing
slurm/spank, slurm/release, slurm/fetch, internal/misuse, internal/wholefile < slurm/setup # whoever makes a Slurm use Muster

# Programs' side.
wire, internal/door < client < ivm
# IVM: what decides, what is said, the part in the node daemon, which knows neither devices nor the rest of the node, and what divides work.
NOTHING < ivm/core
ivm/core < ivm/proto
ivm/core, ivm/proto, wire, wire/status < ivm/daemon
ivm/core, ivm/proto, wire/timeline < ivm
ivm < ivm/balance
ivm, ivm/balance < examples/ivm/dmm # programs, as users write them
wire, internal/door, client < node/gateway # a client of the node, for programs elsewhere

# What people see.
model < report
sim, report < report/simpage
sim/kernels, report < report/kernelpage
head/api, report < report/whatifpage
workload, report < report/workloadpage
report < report/jsontable < report/jobtable, report/nodetable # a column of a table and its JSON field: it knows neither
head/api, model/slurmopt, report < report/jobtable
head/api, model, node/vgpu, report, wire/status < report/nodetable # what nodes say of themselves, and what came of their recordings: it knows neither who answers nor the terminal
NOTHING < report/screen # text on a terminal, whatever it shows
report/screen < internal/service # a daemon as a process: its log and its signals
report/screen < internal/passthrough # a program in this process's place: it knows nothing of what it is for
wire/timeline, report < report/trace # where a program's time went
NOTHING < report/trace/tracetest # for its tests, and for those of all together
NOTHING < web < head/daemon # the page: files that ask the head as everybody does

head/client, node, node/gateway, node/programs, report, report/nodetable, report/screen, wire/status < demo # a cluster and a node to look at: it knows Muster as its users do
everything < exp, exp/*, cmd/muster
everything < internal/stack # tests of all together
head/api < internal/chaos/content # what hostile users send: it knows nobody who receives it
head, node/agentcore, policy/catalog, policy/priority, internal/chaos/content < internal/world # the cores of a cluster in one process
ivm/balance, node/vgpu < internal/chaos/cores # other cores in virtual time
internal/world, internal/chaos/cores < internal/chaos/campaign
NOTHING < internal/chaos/vitals < internal/chaos, internal/chaos/cluster # what the system says of a process
model, wire/status < internal/chaos < internal/chaos/campaign # faults for a running node: it knows Muster as its users do
head/api, head/client, internal/chaos/content, wire/agent, wire/status < internal/chaos/cluster < internal/chaos/campaign # faults for a running cluster, likewise
NOTHING < internal/chaos/putback # mended defects, for a test that puts them back
NOTHING < internal/chaos/build < internal/chaos, internal/chaos/cluster # for their tests
policy/winner < internal/cbc # the referee, behind a build tag
# Files that are read whole: each reader of some has it.
NOTHING < internal/recordfile < node, head/daemon # files that daemons record to
NOTHING < internal/become < ivm/daemon # a process that becomes a user's program: it knows nothing about what is started
NOTHING < internal/confine < node, node/devices, node/worker # what a process reaches of the system: it knows nothing about what the process is for
internal/wholefile < internal/ports < demo, slurm/emulate, internal/chaos/cluster # where daemons may listen
NOTHING < internal/delay # connections, passed on later
NOTHING < internal/laps < node, node/worker # where the time of a program's start went, for their logs
NOTHING < internal/together < device/cuda, node/journal, node/worker # copies by several threads
NOTHING < internal/machine < node, node/agent, node/journal, node/worker # what a process may use of its machine
model < internal/wholefile < model/clusterfile, workload/phased, node, node/nodefile, client, node/gateway
NOTHING < internal/need < internal/browser, slurm/emulate/emulatetest # what tests need of a machine
NOTHING < internal/testrun # make test: it knows go test, and nothing of Muster
NOTHING < internal/archtest, internal/browser, internal/scripts, internal/seeds, shim/conformance, shim/functions, shim/gen, shim/shimtest, nvml/nvmltest, wire/gen

pure: policy, policy/*, mapping, vmm, ptx, node/fate, node/offload, node/vgpu, node/clientcore, node/agentcore, head, head/whatif, slurm, slurm/release, slurm/words, ivm/core

use github.com/klauspost/compress: device/fatbin
use github.com/spf13/cobra: cmd/muster
use go.starlark.net: policy/script
use go.etcd.io/bbolt: head/store
use github.com/spf13/pflag: cmd/muster
use golang.org/x/sys: internal/confine
test github.com/rogpeppe/go-internal: cmd/muster
use pgregory.net/rapid: internal/seeds
test pgregory.net/rapid: everything
`

func TestArchitecture(t *testing.T) {
	r := mustParse(t, theRules)
	packages, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 3 {
		t.Fatalf("only %d packages were found: is this the right folder?", len(packages))
	}
	for _, b := range r.check(packages) {
		t.Error(b)
	}
}

func TestGoModNamesOnlyChosenModules(t *testing.T) {
	r := mustParse(t, theRules)
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") || strings.HasSuffix(line, "// indirect") {
			continue
		}
		known := false
		for _, m := range r.thirdParty {
			known = known || m.module == fields[0]
		}
		if !known {
			t.Errorf("go.mod requires %s, which the rules do not name", fields[0])
		}
	}
}

func mustParse(t *testing.T, text string) *rules {
	t.Helper()
	r, err := parseRules(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The sentences of the design, asked of the rules themselves.
func TestRulesSayWhatTheDesignSays(t *testing.T) {
	r := mustParse(t, theRules)
	for _, c := range []struct {
		from, to string
		may      bool
	}{
		{"policy", "model", true}, {"policy/easy", "model", true}, {"policy/catalog", "policy/easy", true},
		{"sim", "model", true}, {"sim", "policy/catalog", true}, {"sim", "policy/history", true}, {"head", "policy/history", true}, {"sim", "workload", true},
		{"device/soft", "ptx", true}, {"device/soft", "device", true}, {"node", "device", true}, {"node", "model", true},
		{"ivm", "wire", true}, {"head", "policy", true}, {"cmd/muster", "head", true}, {"exp/tsubame", "sim", true},
		{"cmd/muster", "exp/tsubame", true},
		{"head/client", "head/api", true}, {"cmd/muster", "head/client", true}, {"head/client", "head", false}, {"head", "head/client", false}, {"head/client", "policy", false},
		{"node", "wire/status", true}, {"head", "wire/status", true}, {"slurm", "wire/status", true}, {"cmd/muster", "wire/status", true},
		{"wire/status", "model", true}, {"head/daemon", "web", true}, {"web", "head/api", false}, {"head", "web", false},
		{"node/worker", "node/checkpoint", true}, {"node/programs", "node", true}, {"node/checkpoint", "node/clientcore", false}, {"node", "node/programs", false},
		{"node/assembly", "node/gateway", true}, {"node/assembly", "device/cuda", true}, {"node", "node/assembly", false}, {"node/worker", "node/devices", false}, {"node/assembly", "policy", false},
		{"node", "wire/control", true}, {"node/worker", "wire/control", true}, {"node/nodefile", "wire/control", true},

		{"model", "policy", false}, {"model", "model/clusterfile", false}, {"policy", "sim", false}, {"policy", "policy/easy", false}, {"policy/history", "policy/catalog", false},
		{"policy/easy", "policy/history", false}, {"policy", "policy/history", false},
		{"policy", "model/clusterfile", false}, {"policy/easy", "policy/firstfit", false}, {"policy/easy", "policy/catalog", false},
		{"sim", "head", false}, {"sim", "node", false}, {"sim", "device", false}, {"head", "device", false}, {"head", "device/soft", false},
		{"node", "policy", false}, {"node", "policy/easy", false}, {"node", "device/cuda", false}, {"device/soft", "device/cuda", false},
		{"device/cuda", "ptx/simt", false}, {"device", "device/soft", false}, {"ptx", "ptx/simt", false}, {"wire", "client", false},
		{"wire", "wire/control", false}, {"client", "wire/control", false}, {"node/gateway", "wire/control", false},
		{"wire/status", "wire", false}, {"wire/status", "wire/control", false}, {"wire/status", "node", false}, {"wire/status", "node/vgpu", false},
		{"wire", "wire/status", false}, {"client", "wire/status", false}, {"node/worker", "wire/status", false}, {"node/vgpu", "wire/status", false},
		{"node", "wire/grant", true}, {"head", "wire/grant", true}, {"slurm", "wire/grant", true}, {"client", "wire/grant", true}, {"node/gateway", "wire/grant", true},
		{"wire/grant", "wire", false}, {"wire/grant", "node", false}, {"wire/grant", "head", false}, {"node/vgpu", "wire/grant", false}, {"node", "head", false},
		{"slurm", "slurm/release", true}, {"slurm/emulate", "slurm/fetch", true}, {"slurm/emulate", "slurm/release", true}, {"slurm/release", "slurm", false},
		{"slurm/fetch", "slurm/emulate", false}, {"slurm/emulate", "slurm", false}, {"slurm", "slurm/emulate", false}, {"slurm/emulate", "policy", false},
		{"report", "sim", false}, {"workload", "sim", false}, {"sim", "exp/tsubame", false}, {"report", "cmd/muster", false},
	} {
		if got := r.mayImport(c.from, c.to); got != c.may {
			t.Errorf("may %s import %s? the rules say %v", c.from, c.to, got)
		}
	}
}

// A checker that finds nothing proves nothing: here it must find each fault.
func TestCheckerFindsViolations(t *testing.T) {
	const ok = "// Package p is for this test.\npackage p\n"
	for _, c := range []struct{ name, file, text, want string }{
		{"clean", "policy/easy/p.go", ok + `import ("muster/model"; "muster/policy"; "time"; "math/rand/v2"; "fmt")
			var d time.Duration; func f(r *rand.Rand) { rand.New(rand.NewPCG(1, 2)).IntN(3); r.IntN(2); fmt.Println() }`, ""},
		{"upward", "policy/p.go", ok + `import "muster/sim"`, "policy/p.go:3:8: policy must not import sim"},
		{"sideways", "device/soft/p.go", ok + `import "muster/device/cuda"`, "device/soft must not import device/cuda"},
		{"model to anything", "model/p.go", ok + `import "muster/model/clusterfile"`, "model must not import model/clusterfile"},
		{"unknown package", "util/p.go", ok, "util: no rule names this package"},
		{"unknown root package", "p.go", ok, ".: no rule names this package"},
		{"import of an unknown package", "sim/p.go", ok + `import "muster/util"`, "sim must not import util"},
		{"no comment", "model/p.go", "package p\n", "model: the package has no comment"},
		{"comment for another", "model/p.go", "// Package q is.\npackage p\n", "model: the package has no comment"},
		{"comment too short", "model/p.go", "// Package\npackage p\n", "model: the package has no comment"},
		{"command", "cmd/muster/p.go", "// Command muster does it all.\npackage main\n", ""},
		{"wrong command", "cmd/muster/p.go", "// Command other does it all.\npackage main\n", "cmd/muster: the package has no comment"},
		{"os", "policy/p.go", ok + `import "os"`, "a pure package must not import os"},
		{"net/http", "mapping/p.go", ok + `import "net/http"`, "a pure package must not import net/http"},
		{"log/slog", "vmm/p.go", ok + `import "log/slog"`, "a pure package must not import log/slog"},
		{"sync/atomic", "ptx/p.go", ok + `import "sync/atomic"`, "a pure package must not import sync/atomic"},
		{"crypto/rand", "node/vgpu/p.go", ok + `import "crypto/rand"`, "a pure package must not import crypto/rand"},
		{"os where it may be", "sim/p.go", ok + `import "os"`, ""},
		{"clock", "policy/p.go", ok + `import "time"; var x = time.Now`, "read the clock (time.Now)"},
		{"renamed clock", "policy/p.go", ok + `import t "time"; var x = t.Since`, "read the clock (time.Since)"},
		{"sleep", "policy/easy/p.go", ok + `import "time"; func f() { time.Sleep(1) }`, "read the clock (time.Sleep)"},
		{"dot import", "policy/p.go", ok + `import . "time"; var x = Now`, "import time with a dot"},
		{"global dice", "mapping/p.go", ok + `import "math/rand"; var x = rand.Intn(3)`, "use the global rand.Intn"},
		{"global dice, v2", "mapping/p.go", ok + `import "math/rand/v2"; var x = rand.N(3)`, "use the global rand.N"},
		{"a variable called rand", "mapping/p.go", ok + `import "math/rand/v2"; func f(rand *rand.Rand) int { return rand.IntN(3) }`, ""},
		{"clock in a test", "policy/p_test.go", ok + `import "time"; var x = time.Now`, ""},
		{"upward in a test", "policy/p_test.go", ok + `import "muster/sim"`, ""},
		{"third party", "device/fatbin/p.go", ok + `import "github.com/klauspost/compress/zstd"`, ""},
		{"third party elsewhere", "policy/p.go", ok + `import "github.com/klauspost/compress"`, "policy must not use github.com/klauspost/compress: only device/fatbin may"},
		{"third party of like name", "model/clusterfile/p.go", ok + `import "github.com/klauspost/compress2"`, "github.com/klauspost/compress2 is no module that was chosen"},
		{"third party not chosen", "sim/p_test.go", ok + `import "github.com/stretchr/testify/assert"`, "github.com/stretchr/testify/assert is no module that was chosen"},
		{"test module in a test", "sim/p_test.go", ok + `import "pgregory.net/rapid"`, ""},
		{"test module elsewhere", "sim/p.go", ok + `import "pgregory.net/rapid"`, "pgregory.net/rapid is for tests only"},
		{"behind a build tag", "policy/p.go", "//go:build never\n\n" + ok + `import "os"`, "a pure package must not import os"},
		{"testdata", "policy/testdata/p.go", "package q\nimport \"os\"", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			packages, err := load(fstest.MapFS{c.file: {Data: []byte(c.text)}})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(mustParse(t, theRules).check(packages), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestBrokenRulesAreRefused(t *testing.T) {
	for _, text := range []string{"model > policy", "use yaml", "nonsense"} {
		if _, err := parseRules(text); err == nil {
			t.Errorf("%q was taken for a rule", text)
		}
	}
}
