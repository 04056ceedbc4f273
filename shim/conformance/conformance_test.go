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

	chaosbuild "muster/internal/build"
	"muster/internal/need"
)

const patience = 4 * time.Minute

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
	if err := errors.Join(chaosbuild.Library("../..", library), chaosbuild.Program("../..", filepath.Join(built, "muster"))); err != nil {
		return err
	}
	warnings := []string{"gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O0", "-pthread"}
	var commands [][]string
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
		need.Missing(t, need.Compiler, "there is no gcc")
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

// cases compares the cases of a program with the golden ones.
func cases(t *testing.T, program string) {
	t.Helper()
	golden, err := os.ReadFile("golden/" + program + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	want := parts(string(golden), "== ")
	got := parts(through(t, program), "== ")
	if len(got) != len(want) {
		t.Errorf("%d cases, and %d golden ones", len(got), len(want))
	}
	for name := range want {
		t.Run(name, func(t *testing.T) { compare(t, got[name], want[name]) })
	}
}

// rest runs the cases of a program that NVIDIA's driver crashes in, or that come behind such
// calls: Muster must not.
func rest(t *testing.T, program string) map[string][]string {
	t.Helper()
	printed := through(t, program, "--rest")
	if strings.Contains(printed, "crashed: ") || !strings.Contains(printed, "== ") {
		t.Errorf("no cases, or one crashed:\n%s", printed)
	}
	return parts(printed, "== ")
}

func TestCases(t *testing.T) { cases(t, "cases") }

func TestCaptures(t *testing.T) {
	golden, err := os.ReadFile("golden/captures.txt")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, parts(through(t, "captures"), "== ")[""], parts(string(golden), "== ")[""])
}

func TestGraphCases(t *testing.T) {
	cases(t, "graphs")
	rest(t, "graphs")
}

func TestFamilyCases(t *testing.T) {
	cases(t, "families")
	got := rest(t, "families")
	for name, line := range map[string]string{
		"textures_rest": "  SUCCESS f9b19c0cdfa0a377, first 465361024", // values[1], as a hash
		"mipmaps_rest":  "  300",
		"surfaces_rest": "  SUCCESS e48cd4980c764c41, first 3",
	} {
		if !slices.Contains(got[name], line) {
			t.Errorf("%s: not so: %s\n%s", name, line, strings.Join(got[name], "\n"))
		}
	}
}

func TestOtherCases(t *testing.T) {
	cases(t, "others")
	rest(t, "others")
}

func TestImageCases(t *testing.T) {
	cases(t, "images")
	got := rest(t, "images")["fat_binaries_rest"]
	for _, line := range []string{"cut short = ERROR_INVALID_IMAGE", "cuModuleLoadData(&m, &wrapper) = ERROR_INVALID_IMAGE", "cuModuleLoadData(&m, &wrapper) = SUCCESS"} {
		if !slices.Contains(got, line) {
			t.Errorf("not so: %s\n%s", line, strings.Join(got, "\n"))
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
