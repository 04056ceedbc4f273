package node

import (
	"fmt"
	"muster/internal/units"
	"muster/model"
	"muster/node/grants"
)

// quota is the book of the swap area: who has how much of it.
type quota struct {
	common
	total    uint64
	perOwner map[string]uint64 // bytes of each user
	perUser  map[string]int    // clients that have not ended
}

// mayCome says why a user cannot have one more client; "" if the client may come.
func (q *quota) mayCome(c *client) string {
	user := c.peer.User.Name
	count := fmt.Sprintf("%d programs of user %s use", q.perUser[user], user)
	switch {
	case c.limits.Clients <= 0 || q.perUser[user] < c.limits.Clients || c.carries != nil:
		return ""
	case q.perUser[user] == 1:
		count = fmt.Sprintf("1 program of user %s uses", user)
	}
	return count + " this node already, as many as limits.clients allows: wait for one to end, or ask the administrator to raise it"
}

// came counts a client, unless it is a further device of another.
func (q *quota) came(c *client) {
	if c.carries == nil {
		q.perUser[c.peer.User.Name]++
	}
}

// left counts a client no more.
func (q *quota) left(c *client) {
	if c.carries != nil {
		return
	}
	if name := c.peer.User.Name; q.perUser[name] > 1 {
		q.perUser[name]--
	} else {
		delete(q.perUser, name)
	}
}

// commit reserves want bytes of the swap area for a client, in all, within the limits of
// the node, the user and the client's grant. Giving back always succeeds.
func (q *quota) commit(c *client, want uint64) (granted bool, why string) {
	if c.carries != nil { // its memory goes back to its owner's worker, which has room for it
		return true, ""
	}
	name, swap := c.peer.User.Name, q.settings.Load().Swap.Size
	if want > c.committed {
		others, ofUser := q.total-c.committed, q.perOwner[name]-c.committed
		switch {
		case want > swap || others > swap-want:
			return false, q.swapFull(others)
		case c.limits.Memory > 0 && (want > c.limits.Memory || ofUser > c.limits.Memory-want):
			return false, q.userFull(c, ofUser)
		}
		if why := q.shareFull(c, want); why != "" {
			return false, why
		}
	}
	q.total += want - c.committed
	if q.perOwner[name] += want - c.committed; q.perOwner[name] == 0 {
		delete(q.perOwner, name)
	}
	c.committed = want
	return true, ""
}

// shareFull says why a client cannot have want bytes, given what the other clients of its
// grant have on its device; "" if it can.
func (q *quota) shareFull(c *client, want uint64) string {
	if c.under.Granted == nil || c.under.Devices[c.under.Share].Beyond == model.AllBeyond {
		return ""
	}
	others := uint64(0)
	for _, o := range q.clients {
		if o != c && o.under.Granted == c.under.Granted && o.under.Share == c.under.Share {
			others += o.committed
		}
	}
	all := grants.ShareOf(c.under.Devices[c.under.Share], q.stock.Load().Entries[c.under.Home()].Info)
	if others == 0 || want <= all && others <= all-want { // a client that is alone is bounded by the memory that it sees
		return ""
	}
	return fmt.Sprintf("the job's share of the device is used up (%s, of which its other processes have %s): free some memory there, or ask for a larger share when you submit the job",
		units.BriefSize(all), units.BriefSize(others))
}

// commitAdopted counts the room in the swap area that a client has, whatever the limits
// are now.
func (q *quota) commitAdopted(c *client, bytes uint64) {
	c.committed = bytes
	q.total += bytes
	if bytes > 0 {
		q.perOwner[c.peer.User.Name] += bytes
	}
}

// promised is how many more bytes clients may write into the swap area. Only the loop
// calls it.
func (q *quota) promised() uint64 {
	sum := uint64(0)
	for _, c := range q.clients {
		sum += c.committed - min(c.committed, c.memoryNow.Swapped)
	}
	return sum
}

// swapFull says that the swap area has no room; others is what other clients have.
func (q *quota) swapFull(others uint64) string {
	return fmt.Sprintf("the node's swap area is full (%s, of which other programs have %s): wait for other programs to end, or ask the administrator to raise swap.size in the node's configuration (muster node --swap)",
		units.BriefSize(q.settings.Load().Swap.Size), units.BriefSize(others))
}

// userFull says that a user's programs have as much memory as they may; others is
// what those beside the client have.
func (q *quota) userFull(c *client, others uint64) string {
	return fmt.Sprintf("user %s has no more memory on this node (%s, of which the user's other programs have %s): end another program, or ask the administrator to raise the user's memory under limits in the node's configuration",
		c.peer.User.Name, units.BriefSize(c.limits.Memory), units.BriefSize(others))
}
