package putback

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var play = flag.Bool("put-back", false, "build and play each defect, which takes minutes")

// The patches apply to today's sources, which compile then. With -put-back, or in make soak, each defect is put back, and the
// campaign that its patch names must find it.
func TestPutBack(t *testing.T) {
	all, err := All("testdata")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		t.Run(d.Name, func(t *testing.T) {
			dir := t.TempDir()
			if !*play && os.Getenv("MUSTER_SOAK") == "" {
				if err := d.Compiles(root, dir); err != nil {
					t.Fatal(err)
				}
				return
			}
			for up := dir; up != filepath.Clean(os.TempDir()) && up != "/"; up = filepath.Dir(up) {
				_ = os.Chmod(up, 0o755) // workers of other users need access
			}
			report, err := d.Play(root, dir)
			if err != nil {
				t.Fatalf("%v\n%s", err, report)
			}
			t.Logf("found: %s", report)
		})
	}
}
