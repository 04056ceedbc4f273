package archtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Flags for a C compiler's linker, as environments for packages and conda have them, are not for Go's.
func TestMakeIgnoresFlagsOfOthers(t *testing.T) {
	cmd := exec.Command("make", "-n", "-C", "../..", "build")
	cmd.Env = append(os.Environ(), "LDFLAGS=-Wl,-O1 -L/elsewhere")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "./cmd/muster") && strings.Contains(line, "/elsewhere") {
			t.Errorf("go is given flags for another linker: %s", line)
		}
	}
	if !strings.Contains(string(out), "./cmd/muster") {
		t.Errorf("make does not say how it builds muster:\n%s", out)
	}
}
