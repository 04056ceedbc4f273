package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/shim/functions"
)

func TestFilesAreUpToDate(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if ext := filepath.Ext(name); ext == ".c" || ext == ".h" {
			continue // make makes them
		}
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("shim/%s is not what functions/api.txt says: run `go generate ./shim/gen`", name)
		}
	}
}

func TestExportsHandOver(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"cuInit 2000 anytime (unsigned int flags)",
			"EXPORT CUresult (cuInit)(unsigned int flags) { ENTER_ANYTIME(cuInit); return leave(do_cuInit(flags)); }"},
		{"cuX 3020 _v2 ptds (void *p)",
			"EXPORT CUresult (cuX_v2_ptds)(void *p) { ENTER(cuX_v2_ptds); return leave(do_cuX_v2(p, CU_STREAM_PER_THREAD)); }"},
		{"cuY 3020 ptsz (CUstream stream, int n)",
			"EXPORT CUresult (cuY_ptsz)(CUstream stream, int n) { ENTER(cuY_ptsz); return leave(do_cuY(stream ? stream : CU_STREAM_PER_THREAD, n)); }"},
		{"refused cuZ : not yet\ncuZ 4000 ptsz", "MISSING(cuZ_ptsz, \"not yet\")"},
	} {
		entries, err := functions.Parse(tt.line)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		if got := string(exports(entries, nil)); !strings.Contains(got, tt.want+"\n") {
			t.Errorf("%s: no %q in\n%s", tt.line, tt.want, got)
		}
	}
}

// Every topic has functions, and old versions are told from what is missing.
func TestTopics(t *testing.T) {
	entries, err := functions.Parse(functions.API)
	if err != nil {
		t.Fatal(err)
	}
	count := make([]int, len(topics))
	for _, f := range entries {
		count[topicOf(f)]++
	}
	for i, n := range count {
		if n == 0 {
			t.Errorf("no function is of the topic %q", topics[i].name)
		}
	}
	few, err := functions.Parse("refused cu* : old\ncuMemAlloc 2000\ncuMemAlloc 3020 _v2 (int n)\ncuMulticastCreate 12010\ncuGraphCreate 10000 (int n)")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	writeTopics(&b, few)
	for _, want := range []string{
		"| graphs and stream capture | 1 | 0 | 0 | 0 | 0 |\n",
		"| virtual memory management (VMM) and multicast | 0 | 0 | 0 | 1 | 0 |\n",
		"| memory and copies | 1 | 0 | 0 | 0 | 1 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestBadLines(t *testing.T) {
	for _, line := range []string{"cuInit", "cuInit x", "cuInit 2000 sometimes", "cuInit 2000 (int", "cuInit 2000 (int)", "cuInit 2000 ()\ncuInit 2000 ()",
		"cuInit 2000", "refused cuInit not yet", "refused : not yet", "refused cuInit : ", "refused [cu : not yet", "refused cu[ : not yet", `real cuInit : a "b"`} {
		if _, err := functions.Parse(line); err == nil {
			t.Errorf("%q was understood", line)
		}
	}
}

func TestHeaderNames(t *testing.T) {
	entries, err := functions.Parse("refused cuC : old\ncuA 1 (int n)\ncuA 2 _v2 (int n)\ncuB 1 plain (int n)\ncuB 2 _v2 (int n)\ncuC 1\ncuC 2 _v2 (int n)")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, f := range meant(entries) {
		got += f.Name + "=" + f.Export + " "
	}
	if want := "cuA=cuA_v2 cuB=cuB cuC=cuC_v2 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Programs for CUDA 12 and later give cuGraphInstantiate flags.
func TestHeaderInstantiate(t *testing.T) {
	entries, err := functions.Parse("cuGraphInstantiate 10000 (int n)\ncuGraphInstantiate 11000 _v2 (int n)\ncuGraphInstantiateWithFlags 11040 (int n)")
	if err != nil {
		t.Fatal(err)
	}
	header := string(publicHeader(entries, nil, nil))
	if want := "#define cuGraphInstantiate cuGraphInstantiateWithFlags\n"; !strings.Contains(header, want) || strings.Count(header, "#define cuGraph") != 1 {
		t.Errorf("no %q alone in\n%s", want, header)
	}
}

// A function that gets a body leaves the refused by itself, and the first line that
// fits one counts.
func TestLimits(t *testing.T) {
	const lines = "refused cuA : first\nrefused cu* : second\npartly cuC_v2 : third\nreal cuC* : fourth\n"
	entries, err := functions.Parse(lines + "cuA 1\ncuB 1\ncuB 2 _v2 ()\ncuC 1 ()\ncuC 2 _v2 ()")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, f := range entries {
		got += f.Export + " " + f.State().String() + ": " + f.Why() + "\n"
	}
	const want = "cuA refused: first\ncuB refused: second\ncuB_v2 works: \ncuC works on real GPUs only: fourth\ncuC_v2 works in part: third\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWhatCannotBeChecked(t *testing.T) {
	for line, want := range map[string]bool{"cuY 1 (CUstream stream@)": true, "cuY 1 (int n@)": false} {
		entries, err := functions.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkHandles(entries); (err == nil) != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}
