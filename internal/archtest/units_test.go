package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// documents are the folders whose types people and scripts read as JSON: what a node and the head
// answer, and what commands print with --json. Protocols between parts of Muster and what they keep
// on disk are not among them.
var documents = []string{
	"wire/status/status.go", "wire/api", "slurm/status.go", "slurm/view", "cmd/muster", "ptx/codecheck", "ptx/onekernel",
	"node/nodetable", "model/clusterfile/json.go", "sim/simpage/json.go", "sim/kernelpage/json.go", "workload/describe.go", "node/programs", "exp/text.go",
}

// units are what a number's name ends in: seconds, seconds since 1970, bytes, per cent, and what is
// counted per something. The rule is in docs/architecture.md.
var units = []string{"_s", "_at", "_bytes", "_pct", "_points", "_hours_lost", "_seconds", "_per_day", "_per_node"}

// unitless are the names of numbers that need no unit: they count what they name, number it, or are
// a part of a whole from 0 to 1. Whoever adds one has thought about it.
var unitless = strings.Fields(`
address applied argument array_count array_job array_task assigned attempt auto block borrowed borrowing busy
by_hand by_hour by_weekday call carried_slots chosen ci95 client clients column compiled_samples constant_slots
contiguous_jobs core_use core_utilization cores cores_used count cut depth device devices drain
effective_usage effects element ended estimate_accuracy events exit_code factor factors
fair_share false_negative false_positive far faults finished from gets gpu gpu_clashes
gpu_held_for_data gpu_share gpu_utilization gpus gpus_borrowed gpus_busy gpus_lendable grid groups
handed_over id impossible index instructions job jobs jobs_with_alternatives kernels killed landlock lane_ops
launched lenders level_fs limit line lost mapped_kernels masters max max_cores max_fragmentation max_gpus max_nodes
max_slowdown max_spread max_threads mean mean_fragmentation mean_slowdown mean_spread median
median_fragmentation median_slowdown median_spread min min_nodes mirrors next nice nodes nodes_up
norm_shares norm_usage num_nodes number overhead own_gpu_utilization p95 p95_fragmentation
p95_slowdown p95_spread pending pid placed preempted preemptions priority priority_job_factor priority_tier private_slots probability processes
processes_ended programs programs_waiting progress puts queued queued_in_truth rank raw_shares rebinds rebuilds recalled
refused registers remote_gpu_jobs remote_share requeues restarts resumed rgpus row running runs samples seed
seeds share shared_gpu_jobs shares signal slurms spares speed started started_together step stopped
stops swaps tasks term thread to turns uneven unfinished unknown unseen unused_speed use used users users_left_out
vgpus vgpus_free virtual_device waiting waits weight window worker_pid workers written wrong
`)

// A script that reads busy_time must not have to guess whether that is seconds or nanoseconds.
func TestNumbersSayTheirUnit(t *testing.T) {
	used := map[string]bool{}
	for _, place := range documents {
		pattern := filepath.Join("../..", place)
		if !strings.HasSuffix(place, ".go") {
			pattern = filepath.Join(pattern, "*.go")
		}
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: there are no files, %v", place, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for field, name := range numbersIn(tree) {
				switch {
				case slices.ContainsFunc(units, func(unit string) bool { return strings.HasSuffix("_"+name, unit) }):
				case slices.Contains(unitless, name):
					used[name] = true
				default:
					t.Errorf("%s: the number %q has no unit in its name (%s), and is not in the list of those that need none", set.Position(field.Pos()), name, strings.Join(units, ", "))
				}
			}
		}
	}
	for _, name := range unitless {
		if !used[name] {
			t.Errorf("no document has a number %q any more: take it off the list", name)
		}
	}
}

// numbersIn finds the fields with numbers, or lists of them, and what JSON calls them.
func numbersIn(tree *ast.File) map[*ast.Field]string {
	found := map[*ast.Field]string{}
	ast.Inspect(tree, func(n ast.Node) bool {
		s, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range s.Fields.List {
			if f.Tag == nil || !isNumber(f.Type) {
				continue
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			if name != "" && name != "-" {
				found[f] = name
			}
		}
		return true
	})
	return found
}

func isNumber(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isNumber(e.X)
	case *ast.ArrayType:
		return isNumber(e.Elt)
	case *ast.MapType:
		return isNumber(e.Value)
	case *ast.SelectorExpr:
		return e.Sel.Name == "Duration"
	case *ast.Ident:
		switch e.Name {
		case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "Distribution", "Stats", "jsonInterval":
			return true
		}
	}
	return false
}
