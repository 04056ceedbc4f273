package node

import (
	"fmt"
	"time"

	"muster/internal/units"
)

// What users are told when a limit is reached: which limit it is, how large it is, and
// what raises it.

// memoryBy says what limits a program's device memory; wish is what the program asked
// for.
func (d *daemon) memoryBy(wish, memory uint64, limits UserLimits) string {
	switch memory {
	case limits.Memory:
		return "no program of this user may have more: ask the administrator to raise the user's memory under limits in the node's configuration"
	case d.live().Swap.Size:
		return "that is all of the node's swap area: ask the administrator to raise swap.size in the node's configuration (muster node --swap)"
	case wish:
		return "give it more with muster run --memory (MUSTER_RUN_MEMORY), more than the device has if need be"
	case maxArena / 4:
		return "no program can see more"
	}
	return "give it more with muster run --memory, more than the device has if need be"
}

// kernelTimeOf is how long a kernel of a client may hold a device, 0 for no limit, and what to tell its
// user of that.
func (d *daemon) kernelTimeOf(c *client) (limit time.Duration, by string) {
	cfg := d.live()
	class, most := "batch", cfg.KernelTime.Batch
	if c.latency {
		class, most = "latency", cfg.KernelTime.Latency
	}
	by = fmt.Sprintf("the kernel_time of programs of class %s in the node's configuration", class)
	switch {
	case c.limits.KernelTime != 0:
		most, by = c.limits.KernelTime, "the user's kernel_time under limits in the node's configuration"
	case most == 0 && (cfg.Head.Address != "" || c.under.granted != nil):
		most, by = GrantedKernelTime, "the kernel_time of nodes whose devices are granted to jobs"
	}
	return max(time.Duration(most), 0), "which is " + by + ": launch shorter kernels, or ask the administrator to raise it"
}

// memoryOfShare says what limits the device memory of a program under a grant.
const memoryOfShare = "that is the job's share of the device: ask for a larger one when you submit the job"

// memoryWithinShare is for a program that asked for less than its share.
const memoryWithinShare = "give it more with muster run --memory (MUSTER_RUN_MEMORY), up to the job's share of the device"

// userHasAll says that a user has as many programs on the node as limits allow.
func userHasAll(user string, programs int) string {
	count := fmt.Sprintf("%d programs of user %s use", programs, user)
	if programs == 1 {
		count = fmt.Sprintf("1 program of user %s uses", user)
	}
	return count + " this node already, as many as limits.clients allows: wait for one to end, or ask the administrator to raise it"
}

// swapFull says that the swap area has no room; others is what other clients have.
func (d *daemon) swapFull(others uint64) string {
	return fmt.Sprintf("the node's swap area is full (%s, of which other programs have %s): wait for other programs to end, or ask the administrator to raise swap.size in the node's configuration (muster node --swap)",
		units.BriefSize(d.live().Swap.Size), units.BriefSize(others))
}

// userFull says that a user's programs have as much memory as they may; others is
// what those beside the client have.
func (d *daemon) userFull(c *client, others uint64) string {
	return fmt.Sprintf("user %s has no more memory on this node (%s, of which the user's other programs have %s): end another program, or ask the administrator to raise the user's memory under limits in the node's configuration",
		c.peer.user.name, units.BriefSize(c.limits.Memory), units.BriefSize(others))
}
