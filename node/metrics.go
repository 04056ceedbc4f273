package node

import (
	"io"

	"muster/node/vgpu"
	"muster/wire/status"
)

// writeMetrics writes the text format that Prometheus reads.
func (d *daemon) writeMetrics(w io.Writer, problems []status.Problem) {
	view, total := d.core.View(), d.past
	for _, c := range d.clients {
		total.add(c.counters)
	}
	used, moves := plus(view.Total(), d.before.past), movesOf(plusMoves(view.PastMoves, d.before.moves))
	for _, c := range view.Clients {
		moves = moves.Plus(movesOf(c.Moves))
		total.turns, total.moving = total.turns+uint64(c.Turns), total.moving+c.Moving
	}
	m := status.Metrics{
		Node: d.pictureOf(view), Clients: total.clients + uint64(len(d.clients)), Refused: d.refused,
		Kernels: used.Kernels, BusyTime: used.GPUTime.Seconds(), Grants: total.grants, Denials: total.denials, Faults: total.failures,
		Turns: total.turns, MoveTime: total.moving.Seconds(), HeldTime: total.held.Seconds(),
		Swaps: total.swaps, SwapIn: total.swapIn, SwapOut: total.swapOut, CopiedIn: total.copiedIn, CopiedOut: total.copiedOut,
		Moves: moves, Preemptions: map[string]uint64{}, Users: d.users, Waits: d.waits, Problems: len(problems), Connections: d.places.Taken(),
	}
	for state := vgpu.Unqueued; state <= vgpu.Failed; state++ {
		m.States = append(m.States, state.String())
	}
	for _, why := range []vgpu.Reason{vgpu.ForCredit, vgpu.ForIdle, vgpu.ForMemory, vgpu.ForSync, vgpu.ForMove, vgpu.ForDrain, vgpu.ForGrant, vgpu.ForLimit, vgpu.ForQuantum, vgpu.ForRoom} {
		m.Preemptions[string(why)] = d.preempted[why]
	}
	m.WriteText(w)
	status.WriteBuild(w)
}

// maxUsers bounds the number of users that have series of their own, since a node that serves users
// of other machines has no list of its users. Those beyond it are counted together, as "other
// users".
const maxUsers = 1000

// countUser adds what a client that has gone did to its user's counters.
func (d *daemon) countUser(c status.Client) {
	if d.users == nil {
		d.users = map[string]status.UserUse{}
	}
	user := c.User
	if _, known := d.users[user]; !known && len(d.users) >= maxUsers {
		user = "other users"
	}
	d.users[user] = d.users[user].Plus(c)
}
