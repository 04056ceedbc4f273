package world

import (
	"flag"
	"os"
	"testing"
)

var contents = flag.Uint64("contents", 1, "how many worlds with content to run")

// Whatever a user sends, nobody else is harmed: messages can be read, the head's work for one event is
// bounded, and all that others submitted ends as it would have. docs/chaos.md says more.
func TestContent(t *testing.T) {
	first, count := *first, *contents
	if *seed != 0 {
		first, count = *seed, 1
	}
	if testing.Short() {
		count = 1
	}
	if os.Getenv("MUSTER_SOAK") != "" {
		count = 500
	}
	var all Result
	for s := first; s < first+count; s++ {
		cfg := WithContent(s)
		if *seed != 0 {
			cfg.Trace = func(line string) { t.Log(line) }
		}
		r, err := Run(cfg)
		if err != nil {
			t.Fatalf("%v\nrun it again with a trace: go test ./campaign/world -run TestContent -seed %d -v", err, s)
		}
		all.Add(r)
	}
	t.Log(all.Line())
	if sent := all.Accepted + all.Refused; sent < int(count)*100 || all.Accepted*20 < sent || all.Refused*20 < sent {
		t.Errorf("%d accepted and %d refused: that proves little", all.Accepted, all.Refused)
	}
}
