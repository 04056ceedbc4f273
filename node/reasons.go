package node

import (
	"fmt"

	"muster/model"
)

// What the users of programs are told about limits: which one it is, how large, and
// what changes it.

// memoryBy says what makes a program's device memory as large as it is; wish is
// what the program asked for.
func (d *daemon) memoryBy(wish, memory uint64, limits UserLimits) string {
	switch memory {
	case limits.Memory:
		return "no program of this user may have more: raise the user's memory under limits in the node's configuration"
	case d.cfg.Swap.Size:
		return "that is all of the node's swap area: raise swap.size in the node's configuration (muster node --swap)"
	case wish:
		return "give it more with muster run --memory (MUSTER_MEMORY), more than the device has if need be"
	case maxArena / 4:
		return "no program can see more"
	}
	return "give it more with muster run --memory, more than the device has if need be"
}

// swapFull says that the swap area has no room; others is what other clients have.
func (d *daemon) swapFull(others uint64) string {
	return fmt.Sprintf("the node's swap area is full (%s, of which other programs have %s): raise swap.size in the node's configuration (muster node --swap), or wait for other programs to end",
		model.BriefSize(d.cfg.Swap.Size), model.BriefSize(others))
}

// userFull says that a user's programs have as much memory as they may; others is
// what those beside the client have.
func (d *daemon) userFull(c *client, others uint64) string {
	return fmt.Sprintf("user %s has no more memory on this node (%s, of which the user's other programs have %s): raise the user's memory under limits in the node's configuration, or end another program",
		c.peer.user.name, model.BriefSize(c.limits.Memory), model.BriefSize(others))
}
