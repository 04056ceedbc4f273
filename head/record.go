package head

import (
	"io"
	"time"

	"muster/policy/history"
)

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history. The recording begins with a snapshot. The cluster in the header is replaced
// by the core's. An error of w ends the recording and nothing else: w itself must report it.
func (c *Core) Record(w io.Writer, h history.Header) { history.Record(w, h, c.state) }

// Snapshot writes a history whose replay makes a state equal to the policy's present one. It
// returns the present time on the policy's clock.
func (c *Core) Snapshot(now time.Duration, w io.Writer, h history.Header) (time.Duration, error) {
	c.now = max(c.now, now)
	return c.policyTime(c.now), history.Snapshot(w, h, c.state)
}
