package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// DO NOT change this data to make a build pass. It is the architecture: a change here is a change of
// the design and is made on purpose, by itself, with the reason in docs/.

// theFloors is the map that opens docs/architecture.md. Imports between folders point to a lower
// floor; tests may import anything.
const theFloors = `
7  cmd       the command muster
   examples  programs to try: CUDA, MPI, PyTorch, elements
6  campaign  tests of everything together; faults and hostile content, on purpose
   demo      what muster demo shows
   exp       the papers' experiments and other measurements, as programs and tests
5  head      the head of a cluster: takes jobs, decides with a policy, tells agents
   node      what serves programs on a node: who uses which GPU when, memory, moves, other nodes
   slurm     a real Slurm with Muster's decisions
4  agent     starts what a head says on a node, and watches it
   device    the contract of a GPU; the software one, NVIDIA's, those of other nodes
   ivm       programs on CPUs and GPUs of several nodes that share named objects
   sim       clusters and kernels in virtual time, questions to them, their pages
3  mapping   which device runs a kernel
   policy    which job runs when and where: the book of a cluster, and one folder a policy
   ptx       GPU code: found in files, read, and run on CPUs
   vmm       where each chunk of a program's GPU memory is, and what to move
   wire      what programs, nodes and heads say to each other, and how they connect
   workload  logs of jobs, read and generated
2  model     the words as values: cluster, job, request, allocation
   nvml      libnvidia-ml.so.1, for tools that watch GPUs (C)
   report    tables, charts and pages, whatever they show
   shim      libcuda.so.1, which programs call instead of NVIDIA's (C)
1  internal  helpers that know nothing of Muster
   web       the page that a head serves (JavaScript)
`

// theRules are the rest:
//
//   - "a, b know no c except d": neither a nor b imports c, directly or through others, with d
//     excused on either side. "x/*" is all below x; "everything" is every package.
//   - "pure: p": p must not import os, net, log, sync and the like, read a clock or roll unseeded dice.
//   - "use module: p": only p may import that module, "test": only its tests.
const theRules = `
module muster

# What decides knows no one who asks, and no other's decisions.
model know no model/*
policy, policy/history, policy/priority know no policy/* except policy/history, policy/priority
policy/* know no policy/catalog, policy/script/bundled, policy/history except policy/catalog, policy/script/*, policy/scriptfile, policy/history
policy/winner, policy/prices know no model, policy # puzzles with numbers
policy/easy, policy/firstfit, policy/inorder, policy/conservative, policy/packing know no policy/*
policy/priority know no policy
workload, workload/* know no policy
vmm, mapping, mapping/* know no wire

# Devices do not know each other, nor the engine that they do not run.
device know no device/*, ptx
device/soft, device/cuda, device/remote, device/fault know no device/soft, device/cuda, device/remote, device/fault
device/cuda, device/remote, device/fault know no ptx/simt
device, device/* know no policy except device/devicetest
ptx know no ptx/*
ptx/simt/* know no ptx/simt # the engine puts its parts together
ptx/simt/* know no ptx except ptx/simt/program, ptx/simt/memcheck # numbers and machine code
ptx/simt/program know no ptx/simt/native # what is to be done, not how
ptx/onekernel, ptx/codecheck, ptx/codefile know no device

# Documents and protocols: neither knows those who say it, and programs know nothing of what daemons say.
wire/* know no wire except wire/client, wire/control, wire/gen, wire/lanes, wire/parcel
wire know no wire/*
wire/client, node/gateway know no wire/control
node/worker, node/vgpu, wire/client know no wire/status
node/vgpu know no wire, wire/grant, device

# The node plane knows no job policy; its parts do not know how they are put together.
node, node/*, agent, agent/*, device, ivm, ivm/* know no policy
node know no device/*, node/assembly, node/devices, node/gateway, node/launch, node/programs, agent except device/curesult
node/lending, node/spares, node/survival, node/mps, node/recording, node/grants, node/stock know no node/lending, node/spares, node/mps, node/recording # the daemon's components do not know each other
node/loop know no node/* except node/refusal
node/dispatch know no node/* except node/loop, node/vgpu, node/refusal
node/worker/* know no node/worker
node/ask, node/settings, node/socket, node/shown, node/inventory know no node/workers, node/survival, node/grants # what commands have, too
node/worker know no node, node/devices, device/soft, device/cuda, device/remote, device/fault
node/checkpoint, node/journal know no node/clientcore
agent, agent/* know no device, vmm, ivm
ivm, ivm/* know no device
ivm/core know no wire

# The cluster plane knows no device. What another policy would have made of a head's history is beside its core.
head, head/*, slurm, slurm/* know no device, vmm, ptx
head know no sim, head/*, policy/catalog except head/record, head/ranking, head/notices
head/client, head/jobtable, head/whatifpage know no head, policy
sim, sim/* know no web
slurm/release, slurm/words, slurm/fetch, slurm/emulate, slurm/lenders, slurm/step, slurm/spank know no slurm, policy
slurm/view know no slurm/driver

# Campaigns know Muster as its users do.
campaign/chaos, campaign/cluster, campaign/content know no node, head, slurm, policy

pure: policy, policy/*, mapping, vmm, ptx, node/fate, node/offload, node/vgpu, node/clientcore, agent/agentcore, head, head/notices, head/ranking, head/whatif, slurm, slurm/release, slurm/words, ivm/core

use github.com/klauspost/compress: ptx/fatbin
use github.com/spf13/cobra: cmd/muster, cmd/muster/*
use go.starlark.net: policy/script
use go.etcd.io/bbolt: head/store
use github.com/hashicorp/raft: head/quorum
use github.com/spf13/pflag: cmd/muster, cmd/muster/*
use golang.org/x/sys: everything
test github.com/rogpeppe/go-internal: cmd/muster
use pgregory.net/rapid: internal/seeds
test pgregory.net/rapid: everything
`

func TestArchitecture(t *testing.T) {
	r := mustParse(t)
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
	r := mustParse(t)
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

func mustParse(t *testing.T) *rules {
	t.Helper()
	r, err := parseRules(theFloors, theRules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A checker that finds nothing proves nothing: here it must find each fault.
func TestCheckerFindsViolations(t *testing.T) {
	const ok = "// Package p is for this test.\npackage p\n"
	for _, c := range []struct{ name, file, text, want string }{
		{"clean", "policy/easy/p.go", ok + `import ("muster/model"; "muster/policy"; "time"; "math/rand/v2"; "fmt")
			var d time.Duration; func f(r *rand.Rand) { rand.New(rand.NewPCG(1, 2)).IntN(3); r.IntN(2); fmt.Println() }`, ""},
		{"upward", "policy/p.go", ok + `import "muster/sim"`, "policy/p.go:3:8: policy must not import sim: imports point to lower floors"},
		{"beside", "sim/p.go", ok + `import "muster/device"`, "sim must not import device"},
		{"another backend", "device/soft/p.go", ok + `import "muster/device/cuda"`, "device/soft must not know device/cuda"},
		{"model to anything", "model/p.go", ok + `import "muster/model/clusterfile"`, "model must not know model/clusterfile: model imports model/clusterfile"},
		{"folder without a floor", "util/p.go", ok, "util: its folder has no floor"},
		{"unknown root package", "p.go", ok, ".: its folder has no floor"},
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
		{"third party", "ptx/fatbin/p.go", ok + `import "github.com/klauspost/compress/zstd"`, ""},
		{"third party elsewhere", "policy/p.go", ok + `import "github.com/klauspost/compress"`, "policy must not use github.com/klauspost/compress: only ptx/fatbin may"},
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
			got := strings.Join(mustParse(t).check(packages), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// What one package must not know it must not know through others either.
func TestCheckerFollowsTheWay(t *testing.T) {
	packages, err := load(fstest.MapFS{
		"node/p.go":         {Data: []byte("// Package node is for this test.\npackage node\nimport \"muster/node/launch2\"")},
		"node/launch2/p.go": {Data: []byte("// Package launch2 is for this test.\npackage launch2\nimport \"muster/policy\"")},
		"policy/p.go":       {Data: []byte("// Package policy is for this test.\npackage policy")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(mustParse(t).check(packages), "\n"), "node must not know policy: node imports node/launch2 imports policy"; !strings.Contains(got, want) {
		t.Errorf("got  %q\nwant %q in it", got, want)
	}
}

// The map is what a newcomer sees first.
func TestArchitectureOpensWithTheMap(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "```\n")
	drawn, _, _ := strings.Cut(rest, "```\n")
	if drawn != strings.TrimLeft(theFloors, "\n") || strings.Contains(before, "\n## ") {
		t.Errorf("docs/architecture.md does not open with the map: its first block is\n%s\nwant%s", drawn, theFloors)
	}
}

// The ways through the code name functions that are where they say.
func TestWaysNameFunctions(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## Two ways through the code\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	named := 0
	for _, step := range regexp.MustCompile(`(?m)^(\S+\.(?:go|c)) +(\w+) `).FindAllStringSubmatch(section, -1) {
		source, err := os.ReadFile("../../" + step[1])
		if err != nil || !regexp.MustCompile(`(?m)^\S.*\b`+step[2]+`\b\)?\(`).Match(source) {
			t.Errorf("docs/architecture.md: there is no function %s in %s: %v", step[2], step[1], err)
		}
		named++
	}
	if named < 20 {
		t.Errorf("%d functions are named: is the section still there?", named)
	}
}

func TestBrokenRulesAreRefused(t *testing.T) {
	for _, text := range []string{"model < policy", "use yaml", "nonsense"} {
		if _, err := parseRules(theFloors, text); err == nil {
			t.Errorf("%q was taken for a rule", text)
		}
	}
}
