package simt_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What lowering makes of small kernels: instructions, slots, blocks and where lanes
// meet. A change here is a change of the code that every launch of such a kernel runs.
func TestLowered(t *testing.T) {
	paths, err := filepath.Glob("testdata/lowered/*.ptx")
	if err != nil || len(paths) < 6 {
		t.Fatalf("%d kernels: %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".ptx")
		t.Run(name, func(t *testing.T) {
			im := load(path)
			if im.err != nil {
				t.Fatal(im.err)
			}
			got := im.program.Kernel(name).Lowered().String()
			golden := strings.TrimSuffix(path, "ptx") + "golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; go test ./ptx/simt -run TestLowered -update makes it", err)
			}
			if got != string(want) {
				t.Errorf("%s: the lowered code is another than in %s. If that is meant, run go test ./ptx/simt -run TestLowered -update and read the difference.\n%s", name, golden, got)
			}
		})
	}
}
