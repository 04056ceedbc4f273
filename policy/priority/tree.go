package priority

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// member is an account, or a user in one: what Slurm calls an association.
type member struct {
	name   string
	parent int32 // -1 for the root
	user   bool
	shares int64
	// children, in the order in which they joined.
	children []int32
	meter    meter // of users
}

// tree is the root account, all accounts and all users. A member's parent
// stands before it, so that sums need no recursion.
type tree struct {
	members  []member
	accounts map[string]int32
	users    map[pair]int32
	home     map[string]int32 // the first account of each user
	count    int              // users
}

type pair struct {
	account int32
	user    string
}

const root = 0

func newTree(list []Account) *tree {
	t := &tree{
		members:  []member{{name: "root", parent: -1}},
		accounts: map[string]int32{"root": root}, users: map[pair]int32{}, home: map[string]int32{},
	}
	t.addAccounts(root, list)
	return t
}

func (t *tree) addAccounts(parent int32, list []Account) {
	for i := range list {
		id := t.addAccount(parent, list[i].Name, list[i].Shares)
		for _, u := range list[i].Users {
			t.addUser(id, u.Name, u.Shares)
		}
		t.addAccounts(id, list[i].Accounts)
	}
}

func (t *tree) add(m member) int32 {
	id := int32(len(t.members))
	t.members = append(t.members, m)
	p := &t.members[m.parent]
	p.children = append(p.children, id)
	return id
}

func (t *tree) addAccount(parent int32, name string, shares int64) int32 {
	id := t.add(member{name: name, parent: parent, shares: shares})
	t.accounts[name] = id
	return id
}

func (t *tree) addUser(account int32, name string, shares int64) int32 {
	id := t.add(member{name: name, parent: account, user: true, shares: shares})
	t.users[pair{account, name}] = id
	if _, has := t.home[name]; !has {
		t.home[name] = account
	}
	t.count++
	return id
}

// picture is what the tree looks like at one instant: numbers by member.
type picture struct {
	usage     []float64 // decayed weighted seconds
	shares    []float64 // part of the siblings', or of the whole machine
	effective []float64 // the usage that the shares are set against
	level     []float64 // shares / effective, among siblings
	factor    []float64 // the fair-share factor of users
}

// reset makes room for n members.
func (p *picture) reset(n int) {
	for _, list := range []*[]float64{&p.usage, &p.shares, &p.effective, &p.level, &p.factor} {
		*list = slices.Grow((*list)[:0], n)[:n]
		clear(*list)
	}
}

// look works out everything that follows from usage and shares.
func (t *tree) look(p *picture, now time.Duration, c *Config) {
	n := len(t.members)
	p.reset(n)
	for i := n - 1; i > root; i-- {
		m := &t.members[i]
		if m.user && (m.meter.used != 0 || m.meter.rate != 0) {
			p.usage[i] = m.meter.at(now, c.DecayHalfLife)
		}
		p.usage[m.parent] += p.usage[i]
	}
	p.shares[root], p.level[root], p.factor[root] = 1, 1, 1
	if p.usage[root] > 0 {
		p.effective[root] = 1
	}
	if c.Classic {
		t.classic(p, c.Dampening)
	} else {
		t.fairTree(p)
	}
}

// classic is 2^(-effective usage / shares / dampening). The usage of an
// account's other members counts for a member too, by its part of the shares.
func (t *tree) classic(p *picture, dampening float64) {
	for id := range t.members {
		all := t.sharesOf(int32(id))
		for _, child := range t.members[id].children {
			part, used := 0.0, 0.0
			if all > 0 {
				part = float64(t.members[child].shares) / float64(all)
			}
			if p.usage[root] > 0 {
				used = p.usage[child] / p.usage[root]
			}
			p.shares[child] = float64(p.shares[id] * part)
			p.effective[child] = used
			if id != root {
				p.effective[child] = used + float64((p.effective[id]-used)*part)
			}
			p.level[child] = ratio(p.shares[child], p.effective[child])
			if p.shares[child] > 0 {
				p.factor[child] = halved(p.effective[child] / p.shares[child] / dampening)
			}
		}
	}
}

func (t *tree) sharesOf(parent int32) int64 {
	sum := int64(0)
	for _, child := range t.members[parent].children {
		sum += t.members[child].shares
	}
	return sum
}

// ratio is shares over usage: without shares 0, without usage endless.
func ratio(shares, usage float64) float64 {
	switch {
	case shares == 0:
		return 0
	case usage == 0:
		return math.Inf(1)
	}
	return shares / usage
}

// fairTree ranks all users: members are compared with their siblings alone, and
// all users below a better account come before all below a worse one.
func (t *tree) fairTree(p *picture) {
	for id := range t.members {
		all := t.sharesOf(int32(id))
		for _, child := range t.members[id].children {
			if all > 0 {
				p.shares[child] = float64(t.members[child].shares) / float64(all)
			}
			if p.usage[id] > 0 {
				p.effective[child] = p.usage[child] / p.usage[id]
			}
			p.level[child] = ratio(p.shares[child], p.effective[child])
		}
	}
	w := walk{t: t, p: p, rank: t.count, next: t.count}
	w.visit(slices.Clone(t.members[root].children), false)
}

// walk goes through the tree from the best user to the worst.
type walk struct {
	t *tree
	p *picture
	// rank is the rank of the user visited last, next the rank of the next user
	// who is not tied with it.
	rank, next int
}

// visit ranks a list of siblings. Tied says that the best of them is as good as
// the user who was ranked before.
func (w *walk) visit(list []int32, tied bool) {
	members, level := w.t.members, w.p.level
	slices.SortFunc(list, func(a, b int32) int {
		return cmp.Or(cmp.Compare(level[b], level[a]), cmp.Compare(kind(&members[a]), kind(&members[b])), cmp.Compare(a, b))
	})
	for i := 0; i < len(list); {
		id := list[i]
		same := i == 0 && tied || i > 0 && level[list[i-1]] == level[id]
		if members[id].user {
			if !same {
				w.rank = w.next
			}
			w.p.factor[id] = float64(w.rank) / float64(w.t.count)
			w.next--
			i++
			continue
		}
		// Accounts that are tied are taken for one.
		var children []int32
		for ; i < len(list) && level[list[i]] == level[id]; i++ {
			children = append(children, members[list[i]].children...)
		}
		w.visit(children, same)
	}
}

// kind lets users stand before accounts.
func kind(m *member) int {
	if m.user {
		return 0
	}
	return 1
}
