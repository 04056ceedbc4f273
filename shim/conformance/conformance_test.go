// Package conformance holds Muster's libcuda.so.1 to NVIDIA's driver: programs in C
// print what came of calls, and golden/ is what they printed with NVIDIA's driver
// on one GPU. It knows Muster by its commands only.
package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 2 * time.Minute

var built string // the folder with muster, lib/ and the programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "muster-conformance-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(built)
		return m.Run()
	}())
}

var buildOnce = sync.OnceValue(func() error { return errors.Join(lookAround(), build()) })

// lookAround looks at all folders of the source, so that go test knows that the
// results depend on them.
func lookAround() error {
	return filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..") {
			return filepath.SkipDir
		}
		return err
	})
}

func build() error {
	library := filepath.Join(built, "lib", "libcuda.so.1")
	if err := os.Mkdir(filepath.Dir(library), 0o755); err != nil {
		return err
	}
	sources, err := filepath.Glob("../*.c")
	if err != nil {
		return err
	}
	warnings := []string{"gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"}
	commands := [][]string{
		{"go", "build", "-buildvcs=false", "-o", filepath.Join(built, "muster"), "muster/cmd/muster"},
		append(append(warnings, "-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname,libcuda.so.1", "-o", library), sources...),
	}
	for _, name := range []string{"sequence", "cases", "captures", "graphs", "families", "others", "images"} {
		commands = append(commands, append(warnings[:len(warnings):len(warnings)], "-I../include", "-o", filepath.Join(built, name), "c/"+name+".c", library))
	}
	for _, c := range commands {
		if text, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(c, " "), err, text)
		}
	}
	return nil
}

// through runs a program on what the machine has, a software GPU most times, and
// returns what it printed.
func through(t *testing.T, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("there is no gcc")
	}
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	limit, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	command := exec.CommandContext(limit, filepath.Join(built, "muster"), append([]string{"run", "--private", "--", filepath.Join(built, program)}, args...)...)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, &complaints)
	}
	return out.String()
}

// parts splits a text at lines that begin with a prefix; the names are what follows.
func parts(text, prefix string) map[string][]string {
	found := map[string][]string{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if after, ok := strings.CutPrefix(line, prefix); ok {
			name = after
			found[name] = []string{}
		} else if !strings.HasPrefix(line, "~ ") { // of one model of GPU
			found[name] = append(found[name], line)
		}
	}
	return found
}

// compare says where the calls of a sequence or case first differ from the golden ones.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		ours, nvidia := "(the end)", "(the end)"
		if i < len(got) {
			ours = got[i]
		}
		if i < len(want) {
			nvidia = want[i]
		}
		if ours != nvidia {
			t.Errorf("line %d:\nMuster:          %s\nNVIDIA's driver: %s\nafter:\n%s", i+1, ours, nvidia, strings.Join(want[max(0, i-8):min(i, len(want))], "\n"))
			return
		}
	}
}

func TestCases(t *testing.T) {
	golden, err := os.ReadFile("golden/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := parts(string(golden), "== ")
	got := parts(through(t, "cases"), "== ")
	if len(got) != len(want) {
		t.Errorf("%d cases, and %d golden ones", len(got), len(want))
	}
	for name := range want {
		t.Run(name, func(t *testing.T) { compare(t, got[name], want[name]) })
	}
}

func TestCaptures(t *testing.T) {
	golden, err := os.ReadFile("golden/captures.txt")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, parts(through(t, "captures"), "== ")[""], parts(string(golden), "== ")[""])
}

// Cases that wait to be recorded: what NVIDIA's driver gives is compared as soon as golden/
// has it. Until then they must not crash, and what they compute must be right.
func waiting(t *testing.T, program string) map[string][]string {
	t.Helper()
	printed := through(t, program)
	got := parts(printed, "== ")
	if strings.Contains(printed, "crashed: ") {
		t.Errorf("a case crashed:\n%s", printed)
	}
	golden, err := os.ReadFile("golden/" + program + ".txt")
	if errors.Is(err, fs.ErrNotExist) {
		return got
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range parts(string(golden), "== ") {
		t.Run(name, func(t *testing.T) { compare(t, got[name], want) })
	}
	return got
}

func TestGraphCases(t *testing.T)  { waiting(t, "graphs") }
func TestFamilyCases(t *testing.T) { waiting(t, "families") }
func TestOtherCases(t *testing.T)  { waiting(t, "others") }

// Of broken images and of links this much is known for sure, from CUDA's documentation and
// from what was recorded of others.
func TestImageCases(t *testing.T) {
	got := waiting(t, "images")
	const data = "cuModuleLoadData(&m, "
	const head = "HEAD"
	for name, lines := range map[string][]string{
		"texts": {
			data + "NULL) = ERROR_INVALID_VALUE", "cuModuleLoadData(NULL, " + head + ") = ERROR_INVALID_VALUE", data + `"") = ERROR_INVALID_IMAGE`,
			data + `"garbage") = ERROR_INVALID_IMAGE`, data + head + ") = SUCCESS", data + head + ` "nonsense") = ERROR_INVALID_PTX`,
			data + head + ` ".visible .entry k() { nonsense.u32; }\n") = ERROR_INVALID_PTX`, data + head + ` ".visible .entry k() {") = ERROR_INVALID_PTX`,
			data + head + ` ".extern .func f();\n.visible .entry k() { call.uni f, (); ret; }\n") = ERROR_INVALID_PTX`,
			data + `".version 99.0\n.target sm_70\n.address_size 64\n") = ERROR_UNSUPPORTED_PTX_VERSION`,
			"cuModuleLoadFatBinary(&m, NULL) = ERROR_INVALID_VALUE", `cuModuleLoadFatBinary(&m, "garbage") = ERROR_INVALID_IMAGE`,
		},
		"cubins": {
			"four bytes = ERROR_INVALID_IMAGE", "half a header = ERROR_INVALID_IMAGE", "of a host = ERROR_INVALID_IMAGE", data + "&image) = ERROR_INVALID_IMAGE",
			"cut short = ERROR_INVALID_IMAGE", "of 32 bits = ERROR_INVALID_IMAGE",
		},
		"fat_binaries": {"cut short = ERROR_INVALID_IMAGE", data + "&wrapper) = ERROR_INVALID_IMAGE"},
		"links": {
			`cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)(callee), sizeof(callee), "callee", 0, NULL, NULL) = SUCCESS`, "cuLinkComplete(s, &image, &size) = SUCCESS", "  1 1",
			data + "image) = SUCCESS", `cuModuleGetFunction(&f, m, "k") = SUCCESS`, `cuModuleGetFunction(&f, m, "f") = ERROR_NOT_FOUND`,
		},
		"links_that_fail": {
			`cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)(wrong), sizeof(wrong), "wrong", 0, NULL, NULL) = ERROR_INVALID_PTX`,
			`cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)(newer), sizeof(newer), "newer", 0, NULL, NULL) = ERROR_UNSUPPORTED_PTX_VERSION`,
			`cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL) = ERROR_FILE_NOT_FOUND`,
		},
	} {
		for _, line := range lines {
			if !slices.Contains(got[name], line) {
				t.Errorf("%s: not so: %s", name, line)
			}
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, strings.Join(got[name], "\n"))
		}
	}
}

func TestSequences(t *testing.T) {
	file, err := os.Open("golden/sequences.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	want := parts(string(golden), "seed ")
	groups := 15
	if testing.Short() {
		groups = 4
	}
	for group := range groups {
		first := 1 + 4*group
		got := parts(through(t, "sequence", fmt.Sprint(first), "4"), "seed ")
		for seed := first; seed < first+4; seed++ {
			name := fmt.Sprint(seed)
			if want[name] != nil {
				t.Run("seed "+name, func(t *testing.T) { compare(t, got[name], want[name]) })
			}
		}
	}
}
