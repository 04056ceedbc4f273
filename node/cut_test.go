package node

import (
	"testing"
	"time"
)

// The status says which clients have no connection, and how long they may still be resumed.
func TestStatusSaysWhoIsCut(t *testing.T) {
	opts := testOptions()
	opts.Cut = func() map[uint64]time.Duration { return map[uint64]time.Duration{1: 30 * time.Second} }
	f := runWith(t, testConfig(), opts)
	mustConnect(t, f)
	mustConnect(t, f)
	for _, c := range statusOf(t, f).Clients {
		if cut := c.ID == 1; c.Cut != cut || cut != (c.CutLeft == 30) {
			t.Errorf("client %d: cut %v, %v s left", c.ID, c.Cut, c.CutLeft)
		}
	}
}
