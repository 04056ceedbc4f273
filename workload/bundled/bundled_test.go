package bundled

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"muster/workload"
)

func TestEveryLogIsGood(t *testing.T) {
	for _, l := range Logs() {
		wl, report, err := workload.Read(bytes.NewReader(l.Data()), l.File, workload.ReadOptions{})
		if err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		if report.Bad > 0 || !strings.HasPrefix(l.Summary, fmt.Sprintf("%d GPU jobs", len(wl.Jobs))) {
			t.Errorf("%s: %d jobs and %d bad lines, but the summary says %q", l.Name, len(wl.Jobs), report.Bad, l.Summary)
		}
	}
}
