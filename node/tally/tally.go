package tally

import (
	"fmt"
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// Add adds those of another client.
func (a *Counters) Add(b Counters) {
	a.Grants += b.Grants
	a.Turns = Sum(a.Turns, b.Turns)
	a.Moving = time.Duration(Sum(uint64(a.Moving), uint64(b.Moving)))
	a.Held = time.Duration(Sum(uint64(a.Held), uint64(b.Held)))
	a.Swaps = Sum(a.Swaps, b.Swaps)
	a.CopiedIn = Sum(a.CopiedIn, b.CopiedIn)
	a.CopiedOut = Sum(a.CopiedOut, b.CopiedOut)
	a.SwapIn = Sum(a.SwapIn, b.SwapIn)
	a.SwapOut = Sum(a.SwapOut, b.SwapOut)
	a.Denials += b.Denials
	a.Failures += b.Failures
	a.Clients += b.Clients
	a.Links = a.Links.Plus(b.Links)
}

type UsageFile struct {
	Kernels uint64        `json:"kernels"`
	Busy    time.Duration `json:"busy"`
}

func (u UsageFile) Usage() vgpu.Usage { return vgpu.Usage{Kernels: u.Kernels, GPUTime: u.Busy} }

func UsageOf(u vgpu.Usage) UsageFile { return UsageFile{u.Kernels, u.GPUTime} }

// Counters are what is counted of a client, and of all clients together, as the state folder has it. They
// only grow. Kernels and their time are counted by the dispatcher; Turns and Moving are so of clients
// that are there, and are here of those that have gone.
type Counters struct {
	Grants      uint64        `json:"grants"`
	Preemptions uint64        `json:"preemptions"`
	Swaps       uint64        `json:"swaps"`
	CopiedIn    uint64        `json:"copied_in"`
	CopiedOut   uint64        `json:"copied_out"`
	SwapIn      uint64        `json:"swap_in"`
	SwapOut     uint64        `json:"swap_out"`
	Waited      time.Duration `json:"waited"`
	Denials     uint64        `json:"denials"`
	Failures    uint64        `json:"failures"`
	Clients     uint64        `json:"clients"`
	Turns       uint64        `json:"turns,omitempty"`
	Moving      time.Duration `json:"moving,omitempty"`
	Held        time.Duration `json:"held,omitempty"`
	Links       Links         `json:"links,omitempty"`
}

// before is what earlier daemons of the node counted of past clients and of devices. What the
// present clients have used is in the dispatcher.
type before struct {
	Past    vgpu.Usage
	Moves   vgpu.Moves
	Devices []vgpu.Usage // by number
}

func (b *before) Of(number int) vgpu.Usage {
	if number < len(b.Devices) {
		return b.Devices[number]
	}
	return vgpu.Usage{}
}

// Plus adds two usages, and stays at the largest number that is kept.
func Plus(a, b vgpu.Usage) vgpu.Usage {
	return vgpu.Usage{Kernels: Sum(a.Kernels, b.Kernels), GPUTime: time.Duration(Sum(uint64(a.GPUTime), uint64(b.GPUTime)))}
}

func PlusMoves(a, b vgpu.Moves) vgpu.Moves {
	return vgpu.Moves{Auto: a.Auto + b.Auto, ByHand: a.ByHand + b.ByHand, Drain: a.Drain + b.Drain}
}

// MaxCount is the largest value that is kept in a client's counters. A worker that
// reports more is cut off there, so that no sum kept for the client can overflow. The
// dispatcher does the same with kernels and their time.
const MaxCount = math.MaxInt64 / 2

// Sum adds two counters, and stays at the largest int64 where the sum would exceed it.
func Sum(a, b uint64) uint64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// Links is how many bytes went between which places of the node: the host (control.OnHost) and
// devices, by their numbers. A list of links is never changed in place, so it may be kept and
// shared.
type Links []control.Link

// Plus adds others.
func (l Links) Plus(more Links) Links {
	all := slices.Clone(l)
	for _, m := range more {
		all = control.AddLink(all, m)
	}
	for i := range all {
		all[i].Bytes = min(all[i].Bytes, MaxCount)
	}
	return all
}

// Most merges in the totals that a worker reports. Counters never go back, whatever the worker
// says.
func (l Links) Most(said Links) Links {
	all := slices.Clone(l)
	for _, m := range said {
		at := slices.IndexFunc(all, func(k control.Link) bool { return k.From == m.From && k.To == m.To })
		if at < 0 {
			all = append(all, m)
			continue
		}
		all[at].Bytes = max(all[at].Bytes, m.Bytes)
	}
	return all
}

// CrediblyLinked refuses links between devices that no node has, and more of them than there can be.
func CrediblyLinked(said Links) error {
	for i := range said {
		m := &said[i]
		if m.From >= settings.MaxDevices*settings.MaxDevices || m.To >= settings.MaxDevices*settings.MaxDevices || len(said) > MaxLinks {
			return fmt.Errorf("%d links, of which one goes from device %d to %d", len(said), m.From, m.To)
		}
		m.Bytes = min(m.Bytes, MaxCount)
	}
	return nil
}

// MaxLinks is how many links a client may have.
const MaxLinks = 4 * settings.MaxDevices * settings.MaxDevices

// Book is what a node counts of its clients. Only the loop uses it.
type Book struct {
	Past      Counters // of clients that have gone
	Before    before   // what earlier daemons of the node counted
	Waits     status.Waits
	Gone      []status.Client           // the last clients that have gone
	Users     map[string]status.UserUse // what clients that have gone did, by user, since this daemon started
	Preempted map[vgpu.Reason]uint64    // how often clients had to leave their device, by reason
	Refused   uint64                    // clients
	Granted   map[string]model.Measured // what clients that have gone did under the grants that there are
	Mapped    map[vgpu.DeviceID]RanOn   // what ran on devices as further ones, for all clients
}

func NewBook() Book {
	return Book{Users: map[string]status.UserUse{}, Preempted: map[vgpu.Reason]uint64{}, Granted: map[string]model.Measured{}, Mapped: map[vgpu.DeviceID]RanOn{}}
}

// maxEnded is how many clients are remembered after their end.
const maxEnded = 64

// Leave counts a client that goes: how it was at last, its counters, and whether its grant is still there.
func (b *Book) Leave(was status.Client, of Counters, granted bool) {
	if granted {
		b.Granted[was.Grant] = b.Granted[was.Grant].Plus(was.Measured())
	}
	if len(b.Gone) == maxEnded {
		b.Gone = b.Gone[1:]
	}
	b.Gone = append(b.Gone, was)
	b.countUser(was)
	b.Past.Add(of)
	b.Past.Clients++
}

// maxUsers bounds the number of users that have series of their own, since a node that serves users
// of other machines has no list of its users. Those beyond it are counted together, as "other
// users".
const maxUsers = 1000

// countUser adds what a client that has gone did to its user's counters.
func (b *Book) countUser(c status.Client) {
	user := c.User
	if _, known := b.Users[user]; !known && len(b.Users) >= maxUsers {
		user = "other users"
	}
	b.Users[user] = b.Users[user].Plus(c)
}
