// Package need states what a test needs of the machine it runs on: a browser, an MPI, the rights of
// root. A test that lacks it is skipped with a reason that begins with the thing's name, so that the
// summary of make test can list what was not tested and why. MUSTER_REQUIRE turns these skips into
// failures.
//
// It knows how tests say that something is missing, and nothing of how they find out.
package need

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A Thing is something that a machine may lack.
type Thing string

const (
	Root          Thing = "root"           // to be root, and so to be other users
	Mount         Thing = "mount"          // the right to mount file systems and to make namespaces
	Cgroups       Thing = "cgroups"        // control groups that this process may divide
	Compiler      Thing = "compiler"       // gcc and what it needs
	Examples      Thing = "examples"       // the programs of make examples
	MPI           Thing = "mpi"            // an mpiexec
	Browser       Thing = "browser"        // chromium and chromedriver
	CRIU          Thing = "criu"           // a CRIU that works here
	Slurm         Thing = "slurm"          // what muster slurm emulate needs
	SlurmReleases Thing = "slurm-releases" // its older releases, which are fetched only if they are required
	Valgrind      Thing = "valgrind"
	Debian        Thing = "debian" // apt and dpkg
	Tools         Thing = "tools"  // small programs: git, groff
	GPU           Thing = "gpu"    // an NVIDIA GPU and its driver
	CPU           Thing = "cpu"    // instructions or cores that this processor lacks
	System        Thing = "system" // a feature of the kernel or the file system
	Soak          Thing = "soak"   // the time of make soak
)

var things = []Thing{Root, Mount, Cgroups, Compiler, Examples, MPI, Browser, CRIU, Slurm, SlurmReleases, Valgrind, Debian, Tools, GPU, CPU, System, Soak}

// Variable names the environment variable with the things whose absence fails a test: names with
// commas or spaces between them, or "all".
const Variable = "MUSTER_REQUIRE"

// Missing ends a test that lacks a thing: the test is skipped, or fails if the thing is required. The
// reason says what is missing and how to get it.
func Missing(t testing.TB, what Thing, reason ...any) {
	t.Helper()
	text := fmt.Sprintf("needs %s: %s", what, strings.TrimSpace(fmt.Sprintln(reason...)))
	required, err := Required(what)
	switch {
	case err != nil:
		t.Fatal(err)
	case required:
		t.Fatalf("%s (%s makes this a failure)", text, Variable)
	}
	t.Skip(text)
}

// Required says whether tests must have a thing.
func Required(what Thing) (bool, error) {
	required := false
	for _, name := range strings.FieldsFunc(os.Getenv(Variable), func(r rune) bool { return r == ',' || r == ' ' }) {
		if name != "all" && !slices.Contains(things, Thing(name)) {
			return false, fmt.Errorf("%s=%s: unknown: %s. It takes all, or some of %v", Variable, os.Getenv(Variable), name, things)
		}
		required = required || name == "all" || Thing(name) == what
	}
	return required, nil
}

// IsRoot skips the test unless it runs as root.
func IsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, Root, "run the test as root")
	}
}

// IsSoak skips the test unless the long campaigns are wanted.
func IsSoak(t testing.TB) {
	t.Helper()
	if os.Getenv("MUSTER_SOAK") == "" {
		Missing(t, Soak, "MUSTER_SOAK=1 runs it, and so does make soak")
	}
}

// Rounds is how often a test with random cases repeats them: a few times, or often if the long campaigns
// are wanted.
func Rounds(few, often int) int {
	if os.Getenv("MUSTER_SOAK") != "" {
		return often
	}
	return few
}
