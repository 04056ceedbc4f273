package head

import (
	"io"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/history"
)

// policyState is policy.State as the core uses it: the state itself, or a recorder that passes
// calls on to it and writes them down with their answers.
type policyState interface {
	Submit(*model.Job) (policy.JobID, error)
	Adopt(j *model.Job, alternative int, a *model.Allocation, started time.Duration) (policy.JobID, error)
	Cancel(policy.JobID) error
	End(policy.JobID) error
	Requeue(policy.JobID) error
	Suspended(policy.JobID) error
	Resumed(policy.JobID) error
	Rank(id policy.JobID, rank int64) error
	AddNode(n model.Node, types ...model.GPUType) (int32, error)
	AddDevices(n int32, gpus []int, types ...model.GPUType) error
	SetNode(n int32, st policy.NodeState) error
	SetDevice(n, device int32, up bool) error
	SetWindows([]policy.Window) error
	Step(now time.Duration) *policy.Plan

	Cluster() *model.Cluster
	Windows() []policy.Window
	Why(policy.JobID) string
}

var (
	_ policyState = (*policy.State)(nil)
	_ policyState = (*history.Recorder)(nil)
)

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history. The recording begins with a snapshot. The cluster in the header is replaced
// by the core's. An error of w ends the recording and nothing else: w itself must report it.
func (c *Core) Record(w io.Writer, h history.Header) {
	c.state = history.Record(w, h, c.plain)
}

// Snapshot writes a history whose replay makes a state equal to the policy's present one. It
// returns the present time on the policy's clock.
func (c *Core) Snapshot(now time.Duration, w io.Writer, h history.Header) (time.Duration, error) {
	c.now = max(c.now, now)
	return c.policyTime(c.now), history.Snapshot(w, h, c.plain)
}
