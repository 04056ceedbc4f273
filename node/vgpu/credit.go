package vgpu

import (
	"slices"
	"time"
)

// account is one user: its slots and its share of GPU time.
type account struct {
	name     string
	limit    int // slots; 0: none
	clients  []*client
	slots    int           // assigned or promised
	credit   time.Duration // how far it is below (positive) or beyond its share
	openBy   openTimes
	mayTrade bool // one of its clients could give up a slot, in this pass (survey)
}

func (b *books) account(name string) *account {
	for _, u := range b.users {
		if u.name == name {
			return u
		}
	}
	u := &account{name: name, limit: b.cfg.limitOf(name)}
	b.users = append(b.users, u)
	return u
}

func (u *account) remove(x *client) { u.clients = remove(u.clients, x) }

func (u *account) full() bool { return u.limit > 0 && u.slots >= u.limit }

// fullBeside says whether the user has all slots it may, not counting the one that is kept for x.
func (u *account) fullBeside(x *client) bool {
	slots := u.slots
	if x.reserved != nil {
		slots -= x.slotCount()
	}
	return u.limit > 0 && slots >= u.limit
}

// weight is the largest weight of the user's clients that have or want a GPU; 0 if
// there are none.
func (u *account) weight() (w int64) {
	for _, x := range u.clients {
		if x.state == Ready || x.state == Assigned {
			w = max(w, int64(x.weight))
		}
	}
	return w
}

// creditPeriods bounds credit and debt: what happened longer ago than this many periods
// of GPU time is forgotten.
const creditPeriods = 20

// refill ends a period: the GPU time that was spent in it is given back to the
// users who have or want a GPU, in proportion to their weights. The others
// lose what they have and are forgiven half of what they owe.
func (b *books) refill() {
	if b.now < b.nextRefill {
		return
	}
	periods := (b.now-b.nextRefill)/b.cfg.Period + 1
	b.nextRefill += periods * b.cfg.Period
	var all int64
	for _, u := range b.users {
		all += u.weight()
	}
	bound := creditPeriods * b.cfg.Period
	for _, u := range b.users {
		if w := u.weight(); w > 0 {
			share := time.Duration(float64(b.spent) * float64(w) / float64(all))
			u.credit = min(max(u.credit+share, -bound), bound)
			continue
		}
		u.credit = min(u.credit, 0) >> min(uint(periods), 62)
		if u.credit > -time.Millisecond {
			u.credit = 0
		}
	}
	b.spent = 0
	if b.now-b.lastSpent >= b.cfg.MaxWait { // credits do not change any more, and must not decide for ever
		for _, u := range b.users {
			u.credit = 0
		}
	}
	b.users = slices.DeleteFunc(b.users, func(u *account) bool { return len(u.clients) == 0 && u.credit == 0 })
}
