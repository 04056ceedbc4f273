//go:build race

package stack

import (
	"flag"
	"fmt"
	"strings"
)

// raced are the tests in which most happens at a time. Under the race detector only these run,
// because everything takes ten times as long there; -run NAME runs others.
var raced = []string{
	"TestSameResultsWhateverHappens", "TestThreads", "TestManyClients", "TestProgramsKilledAtRandom", "TestHandoverUnderLoad", "TestDaemonKilled$",
	"TestRemoteKilled", "TestGraphsSurvive", "TestSharedMemoryOfProgramsThatTakeTurns", "TestOneDeviceIsACluster", "TestOffload$", "TestLenderIsKilled",
	"TestThreeGPUs", "TestAStormOfDeaths", "TestElementsOf", "TestGrantsOutlive", "TestManagedMemory$", "TestTimelineShowsOthers", "TestRecordedDecisions",
	"TestPageOfARealCluster",
}

// chooseTests chooses which tests run if nobody has.
func chooseTests() error {
	flag.Parse()
	if run := flag.Lookup("test.run"); run.Value.String() != "" {
		return nil
	}
	return flag.Set("test.run", strings.Join(raced, "|"))
}

// Where the tests run under the race detector, so do daemons and workers.
func buildMuster(to string) error {
	return command("go", "build", "-race", "-buildvcs=false", "-o", to, "../../cmd/muster")
}

// rounds is how often a program launches a kernel that is to be seen running. Under the
// race detector kernels take ten times as long, so that fewer are seen as well.
func rounds(n int) string { return fmt.Sprint(n / 5) }
