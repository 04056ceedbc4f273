package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// What a reader can hold in mind: of a type so many methods, so many fields, of a package so many files.
var mostOf = map[string]int{"methods": 40, "fields": 25, "files": 25}

// stillLarge is what has more, and how much: it may only shrink. What shrinks below the limit leaves the
// list. Documents and messages have as many fields as there is to say.
const stillLarge = `
32 files ptx/simt
32 files node/clientcore
30 files device/cuda
325 methods node/clientcore/Core
269 methods node/daemon
218 methods node/worker/worker
218 methods head/Core
144 methods ptx/simt/program/lowering
129 methods node/vgpu/Core
115 methods ptx/simt/gang
107 methods slurm/Core
95 methods ptx/simt/native/compiler
91 methods policy/View
85 methods ptx/parser
77 methods policy/mccs/Library
72 methods campaign/chaos/episode
71 methods policy/State
70 methods vmm/Space
64 methods device/cuda/gpuContext
58 methods ptx/simt/native/asm/Assembler
55 methods device/cuda/stream
53 methods device/remote/Context
50 methods policy/script/library
47 methods agent/agentcore/Core
45 methods node/worker/gpu
43 methods node/offload/Core
43 methods internal/door/Resumable
42 methods policy/winner/tree
41 methods model/strictyaml/parser
41 methods device/remote/stream
63 fields node/worker/worker
56 fields node/clientcore/Op
51 fields wire/status/Client
48 fields slurm/engine/jobDocument
48 fields slurm/Job
46 fields head/Core
44 fields sim/simpage/jsonRun
43 fields wire/api/Job
43 fields node/vgpu/client
43 fields node/client
43 fields head/record/Ended
41 fields cmd/muster/programs/nodeFlags
38 fields internal/door/Resumable
37 fields wire/TextureCreate
35 fields head/record/Job
35 fields device/cuda/gpuContext
34 fields node/settings/Config
34 fields node/clientcore/State
34 fields agent/supervisor
33 fields slurm/job
33 fields ptx/simt/program/Inst
33 fields policy/mccs/Library
32 fields campaign/chaos/episode
31 fields node/daemon
29 fields slurm/Core
28 fields workload/Summary
28 fields node/vgpu/ClientView
28 fields node/survival/ClientFile
27 fields wire/control/Serve
27 fields policy/winner/tree
27 fields node/worker/gpu
27 fields model/slurmopt/given
26 fields head/daemon/daemon
26 fields device/remote/Context
`

func TestNothingGrowsBeyondWhatAReaderHolds(t *testing.T) {
	packages, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(stillLarge), "\n") {
		var n int
		var kind, name string
		if _, err := fmt.Sscan(line, &n, &kind, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		allowed[kind+" "+name] = n
	}
	is := map[string]int{}
	for _, p := range packages {
		measure(p, is)
	}
	for _, what := range slices.Sorted(maps.Keys(is)) {
		kind, _, _ := strings.Cut(what, " ")
		most := max(mostOf[kind], allowed[what])
		if is[what] > most {
			t.Errorf("%d %s: at most %d: give a part of it a type or a package of its own", is[what], what, most)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(allowed)) {
		if kind, _, _ := strings.Cut(what, " "); is[what] <= mostOf[kind] {
			t.Errorf("%d %s: take it out of the list of what is still large", is[what], what)
		}
	}
}

// measure counts the methods and fields of a package's types, and its files.
func measure(p sourcePackage, is map[string]int) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		is["files "+p.path]++
		for _, d := range f.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					is["methods "+path.Join(p.path, receiver(d.Recv.List[0].Type))]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if named, ok := s.(*ast.TypeSpec); ok {
						if fields, ok := named.Type.(*ast.StructType); ok {
							for _, f := range fields.Fields.List {
								is["fields "+path.Join(p.path, named.Name.Name)] += max(1, len(f.Names))
							}
						}
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
