package slurm

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
	Suspended(policy.JobID) error
	Resumed(policy.JobID) error
	Rank(id policy.JobID, rank int64) error
	AddNode(n model.Node, types ...model.GPUType) (int32, error)
	AddDevices(n int32, gpus []int, types ...model.GPUType) error
	SetNode(n int32, st policy.NodeState) error
	SetDevice(n, device int32, up bool) error
	SetWindows([]policy.Window) error
	Step(now time.Duration) *policy.Plan

	Windows() []policy.Window
	Why(policy.JobID) string
}

var (
	_ policyState = (*policy.State)(nil)
	_ policyState = (*history.Recorder)(nil)
)

// Record writes everything that the policy is told from now on, and what it decides, in the format
// of package history, for muster sim replay. The recording begins with a snapshot. An error of w
// ends the recording and nothing else.
func (c *Core) Record(w io.Writer, h history.Header) {
	c.state = history.Record(w, h, c.plain)
}
