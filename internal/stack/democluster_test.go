package stack

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demonstration of a cluster: jobs on a node without a GPU use those of others,
// and nothing is left.
func TestDemoCluster(t *testing.T) {
	programs := filepath.Dir(example(t, "mm"))
	out, err := exec.Command(made("muster"), "demo", "cluster", "--programs", programs).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.Count(string(out), " COMPLETED "); got != 7 {
		t.Errorf("%d jobs are complete, not 7:\n%s", got, out)
	}
	if !strings.Contains(string(out), "login  IDLE   0/") {
		t.Errorf("there is no node without a GPU:\n%s", out)
	}
}
