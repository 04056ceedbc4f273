package shimtest

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the library's files, lowest first: a file may call those of its own layer that stand before it, and
// those of the layers above it in this text. together are the ones that call each other.
const layers = `
basis      say object names ranges readable restart md2 wide
transport  watch clients notices ring answers printed timeline client
core       context captures stream host pool shares memory pinned faults mapped transfer managed
memory     graph_memory copy array ipc virtual pools allocations host_memory advice batch
calls      streams ipc_event events values device condition_text module library launch kernels link tensor texture contexts green
graph      user_object graph_condition graph graph_query graph_params graph_plan graph_post graph_whole graph_exec capture
entry      init proc export_tables extensions checkpoint api_gen
`

// together are files that may call each other in both directions: the table of cuGetProcAddress has the addresses of
// the exports, and cuGetProcAddress is one.
var together = map[[2]string]bool{{"entry/proc", "entry/api_gen"}: true}

const mostFiles = 25 // in a folder

// placed returns each file's place in layers, by its path without the ending.
func placed() (place map[string]int, folders []string) {
	place = map[string]int{}
	for line := range strings.Lines(strings.TrimSpace(layers)) {
		words := strings.Fields(line)
		folders = append(folders, words[0])
		for _, name := range words[1:] {
			place[words[0]+"/"+name] = len(place)
		}
	}
	return place, folders
}

func TestEveryFileHasItsLayer(t *testing.T) {
	place, folders := placed()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join("../lib", folder, "*.[ch]"))
		if err != nil || len(files) > mostFiles {
			t.Errorf("%s has %d files: %d are readable (%v)", folder, len(files), mostFiles, err)
		}
	}
	files, err := filepath.Glob("../lib/*/*.c")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(f, "../lib/"), ".c")
		there[name] = true
		if _, ok := place[name]; !ok {
			t.Errorf("%s has no place in layers_test.go", name)
		}
	}
	for name := range place {
		if !there[name] {
			t.Errorf("%s of layers_test.go is not there", name)
		}
	}
}

var includes = regexp.MustCompile(`(?m)^#include "([^"]*)"`)

func TestIncludesPointDown(t *testing.T) {
	_, folders := placed()
	files, err := filepath.Glob("../lib/*/*.[ch]")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		own := slices.Index(folders, filepath.Base(filepath.Dir(f)))
		for _, m := range includes.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(f), m[1])
			folder := filepath.Base(filepath.Dir(to))
			if to != "../nodesocket.h" && folder != "include" && (slices.Index(folders, folder) < 0 || slices.Index(folders, folder) > own) {
				t.Errorf("%s includes %s, which is above it", f, m[1])
			}
		}
	}
}

// The library by which tools see devices is beside this one: both find the node in the same way, and that is all.
func TestMonitorIsBeside(t *testing.T) {
	files, err := filepath.Glob("../../nvml/*.[ch]")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range includes.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "/") && m[1] != "../shim/nodesocket.h" {
				t.Errorf("%s includes %s", f, m[1])
			}
		}
	}
}

// Of a client, what a file of transport keeps is a struct of its own, which no other file touches. (Files above keep
// theirs in parts that are not even declared elsewhere: client_register.)
func TestPartsOfClientsHaveOwners(t *testing.T) {
	owners := map[string]string{"ring": "ring", "slots": "ring", "staging": "ring", "bounces": "ring", "notices": "notices", "answers": "answers"}
	part := regexp.MustCompile(`\b(?:c|client)->(\w+)\.`)
	files, err := filepath.Glob("../lib/*/*.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range part.FindAllStringSubmatch(string(text), -1) {
			if owner := owners[m[1]]; owner != "" && filepath.Base(f) != owner+".c" {
				t.Errorf("%s touches %s of a client, which is %s.c's", f, m[1], owner)
			}
		}
	}
}

// symbols returns the names that an object defines for others, and those that it needs.
func symbols(t *testing.T, path string) (defined, needed []string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		switch {
		case elf.ST_BIND(s.Info) != elf.STB_GLOBAL:
		case s.Section == elf.SHN_UNDEF:
			needed = append(needed, s.Name)
		default:
			defined = append(defined, s.Name)
		}
	}
	return defined, needed
}

// A call is seen in the object files: whoever uses a function or a variable of another file needs its symbol. One
// that is inlined there is, too, because it is in a header.
func TestCallsPointDown(t *testing.T) {
	place, _ := placed()
	needs, owner := map[string][]string{}, map[string]string{}
	for _, object := range separateObjects(t) {
		name := filepath.Base(filepath.Dir(object)) + "/" + strings.TrimSuffix(filepath.Base(object), ".o")
		defined, needed := symbols(t, object)
		needs[name] = needed
		for _, s := range defined {
			owner[s] = name
		}
	}
	if len(needs) != len(place) {
		t.Fatalf("%d objects of %d files", len(needs), len(place))
	}
	for _, from := range slices.Sorted(maps.Keys(needs)) {
		for _, s := range needs[from] {
			to, ours := owner[s]
			if ours && place[to] > place[from] && !together[[2]string{from, to}] {
				t.Errorf("%s uses %s of %s, which is above it: move one of them, or register a function (shim/lib/README.md)", from, s, to)
			}
			if body := strings.HasPrefix(s, "do_cu") || strings.HasPrefix(s, "with_cu"); ours && body && strings.HasPrefix(to, "core/") {
				t.Errorf("%s is a body in %s: they belong above core", s, to)
			}
		}
	}
}

// separateObjects are those that make has made, one for each file, or new ones.
func separateObjects(t *testing.T) []string {
	t.Helper()
	if made, err := madeOrCompiled(); err == nil && len(made) > 1 {
		return made
	}
	files, err := filepath.Glob("../lib/*/*.c")
	if err != nil {
		t.Fatal(err)
	}
	var objects []string
	for _, f := range files {
		out := filepath.Join(t.TempDir(), filepath.Base(filepath.Dir(f)))
		if err := os.MkdirAll(out, 0o700); err != nil {
			t.Fatal(err)
		}
		object := filepath.Join(out, strings.TrimSuffix(filepath.Base(f), ".c")+".o")
		if err := gcc("", "-O0", "-fvisibility=hidden", "-c", "-o", object, f); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", f, err))
		}
		objects = append(objects, object)
	}
	return objects
}
