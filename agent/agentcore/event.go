package agentcore

import (
	"time"

	"muster/model"
	"muster/wire/agent"
	"muster/wire/grant"
)

// Event is what happened.
type Event interface{ event() }

// The events.
type (
	// Up: there is a connection to the head. Down: there is none any more.
	Up   struct{}
	Down struct{}
	// Heard: the head said something.
	Heard struct{ Message agent.ToAgent }
	// Unread: the head said something that cannot be read.
	Unread struct{ Message agent.Unreadable }
	// Began: a task's supervisor is there, and says how the task is. It says so again
	// whenever that changes.
	Began struct {
		Task      agent.Task
		Suspended bool
		Cores     []int
	}
	// Ended: a task has ended, and its end is in the spool.
	Ended struct {
		Task agent.Task
		End  agent.End
	}
	// Lost: a task has no supervisor and cannot get one. Begun says whether it had
	// begun to start processes.
	Lost struct {
		Task   agent.Task
		Begun  bool
		Reason string
	}
	// Checkpointed: a task was saved in a folder, or, with an error, was not.
	Checkpointed struct {
		Task   agent.Task
		Folder string
		Bytes  uint64
		Error  string
	}
	// SpoolFailed: what the last event wanted on disk of a task is not there.
	SpoolFailed struct {
		Task   agent.Task
		Reason string
	}
	// Spool: tasks cannot be put into the spool for now, for a reason, or, without one, they can again.
	Spool struct{ Trouble string }
	// Admitted: the daemon serves a grant from now on, or, with an error, does not.
	Admitted struct{ ID, Error string }
	// Revoked: the daemon serves a grant no more, or, with an error, may still.
	Revoked struct{ ID, Error string }
	// Devices: the node has these devices now.
	Devices struct{ Devices []agent.Device }
	// Measured: the node is this busy now, unless that was not measured, and the programs of its tasks, and
	// of those to which it lends, have done this much since they began.
	Measured struct {
		Load     *agent.Load
		Profiles map[agent.Task]model.Measured
	}
	// Configured: the node serves programs as the head said or, with an error, as it did before.
	Configured struct {
		Settings model.NodeSettings
		InForce  model.NodeSettings // how it does now
		Error    string
	}
	// InForce: this is how the node serves programs now.
	InForce struct{ Settings model.NodeSettings }
	// DaemonBegan: the node's daemon is there, and knows no loans, nor what the head said of it.
	DaemonBegan struct{}
	// Tick: time has passed.
	Tick struct{}
)

func (Up) event()           {}
func (Down) event()         {}
func (Heard) event()        {}
func (Unread) event()       {}
func (Began) event()        {}
func (Ended) event()        {}
func (Lost) event()         {}
func (SpoolFailed) event()  {}
func (Spool) event()        {}
func (Admitted) event()     {}
func (Revoked) event()      {}
func (Devices) event()      {}
func (Measured) event()     {}
func (DaemonBegan) event()  {}
func (Tick) event()         {}
func (Checkpointed) event() {}
func (Configured) event()   {}
func (InForce) event()      {}

// Effect is what to do.
type Effect interface{ effect() }

// The effects.
type (
	// Save writes a new task into the spool.
	Save struct {
		Start agent.Start
		Cores []int
	}
	// SaveStop writes down that a task is to end.
	SaveStop struct{ Stop agent.Stop }
	// SaveEnd writes down how a task ended that has no supervisor.
	SaveEnd struct {
		Task agent.Task
		End  agent.End
	}
	// Mark writes down that a task is over.
	Mark struct {
		Task agent.Task
		Mark Past
	}
	// Unmark forgets that.
	Unmark struct{ Task agent.Task }
	// Forget removes a task from the spool.
	Forget struct{ Task agent.Task }
	// SaveCluster writes down whose tasks the spool has.
	SaveCluster struct{ Cluster string }
	// Launch starts a task's supervisor, or finds the one that an earlier agent started.
	Launch struct{ Task agent.Task }
	// Attach finds a task's supervisor; if there is none, none is started.
	Attach struct{ Task agent.Task }
	// Tell gives an order to a task's supervisor.
	Tell struct {
		Task  agent.Task
		Order Order
	}
	// Discard removes a folder in which a task was saved.
	Discard struct{ Folder string }
	// Send sends to the head.
	Send struct{ Message agent.ToHead }
	// Admit has the daemon serve a grant, and the spool know it. Revoke ends the first, and
	// DropLoan then the second: what the daemon may still serve is in the spool.
	// Limit changes how much of it can be used, there and in the spool: the next agent
	// must not give a suspended task its devices back.
	Admit    struct{ Loan grant.Loan }
	Revoke   struct{ ID string }
	DropLoan struct{ ID string }
	Limit    struct {
		ID    string
		Limit int
	}
	// Configure has the daemon serve programs as the head says.
	Configure struct{ Settings model.NodeSettings }
	// Stream serves a stream of a task or of the node, or refuses it for a reason.
	Stream struct {
		Open   agent.Open
		Reason string
	}
)

func (Save) effect()        {}
func (SaveStop) effect()    {}
func (SaveEnd) effect()     {}
func (Mark) effect()        {}
func (Unmark) effect()      {}
func (Forget) effect()      {}
func (SaveCluster) effect() {}
func (Launch) effect()      {}
func (Attach) effect()      {}
func (Tell) effect()        {}
func (Discard) effect()     {}
func (Send) effect()        {}
func (Admit) effect()       {}
func (Revoke) effect()      {}
func (DropLoan) effect()    {}
func (Limit) effect()       {}
func (Configure) effect()   {}
func (Stream) effect()      {}

// Order is what a supervisor is told: exactly one of its fields.
type Order struct {
	Stop    *agent.Stop `json:"stop,omitempty"`
	Signal  int         `json:"signal,omitempty"`
	Suspend bool        `json:"suspend,omitempty"`
	Resume  *Resume     `json:"resume,omitempty"`
	Save    *SaveIn     `json:"save,omitempty"`
}

// SaveIn saves a suspended task in a folder, with a CRIU. The core gives the folder's name, and the agent
// makes it a path and adds the CRIU.
type SaveIn struct {
	Folder string `json:"folder"`
	CRIU   string `json:"criu,omitempty"`
}

// Resume lets a task go on, on these cores.
type Resume struct {
	Cores []int `json:"cores,omitempty"`
}

// Past is what is left of a task that is over.
type Past struct {
	// End is how it ended, if it was never in the spool: it was stopped before it was
	// started, or refused.
	End *agent.End `json:"end,omitempty"`
	// At is when it was left, since 1970.
	At time.Duration `json:"at"`
}
