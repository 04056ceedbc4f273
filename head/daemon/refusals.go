package daemon

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/head/api"
)

const (
	// maxRefusals is how many nodes' refusals are kept; the oldest gives way.
	maxRefusals = 1024
	// refusedFor is how long a refusal counts. Agents try again at least every half minute, so one that
	// was not heard of for longer has given up.
	refusedFor = 2 * time.Minute
)

// refusals are the nodes that want to be of the cluster and that the head does not take, for whoever
// wonders where they are. Only nodes whose certificate the authority has made, and root at the socket,
// get an entry, one each.
type refusals struct {
	mu       sync.Mutex
	byHolder map[string]refusal
}

type refusal struct {
	names  []string // that the node may have
	reason string
	at     time.Time
}

// holder tells agents apart that want to speak for a node.
func (c *caller) holder(node string) string {
	if c.node != nil {
		return "certificate " + c.node.Subject.CommonName
	}
	return "socket " + node
}

func (r *refusals) note(holder string, names []string, reason string, now time.Time) {
	if len(names) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byHolder == nil {
		r.byHolder = map[string]refusal{}
	}
	if _, known := r.byHolder[holder]; !known && len(r.byHolder) >= maxRefusals {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(r.byHolder)), func(a, b string) int { return r.byHolder[a].at.Compare(r.byHolder[b].at) })
		delete(r.byHolder, oldest)
	}
	r.byHolder[holder] = refusal{names, reason, now}
}

// forget forgets why an agent was refused, or another of its node: it was accepted now.
func (r *refusals) forget(holder, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byHolder, holder)
	maps.DeleteFunc(r.byHolder, func(_ string, one refusal) bool { return slices.Contains(one.names, node) })
}

// lately returns the refusals that count still.
func (r *refusals) lately(now time.Time) []refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byHolder, func(_ string, one refusal) bool { return now.Sub(one.at) > refusedFor })
	return slices.Collect(maps.Values(r.byHolder))
}

// show adds to a list of nodes which ones are refused and why, also as the reason of those that the
// head knows and that are away.
func (r *refusals) show(list *api.Nodes, now time.Time) {
	for _, one := range r.lately(now) {
		name := one.names[0]
		if i := slices.IndexFunc(list.Nodes, func(n api.Node) bool { return slices.Contains(one.names, n.Name) }); i >= 0 {
			n := &list.Nodes[i]
			if name = n.Name; !n.Connected && n.Reason == "" {
				n.Reason = "the head refuses it: " + one.reason
			}
		}
		list.Refused = append(list.Refused, api.RefusedNode{Name: name, Reason: one.reason, At: float64(one.at.UnixNano()) / 1e9})
	}
	slices.SortFunc(list.Refused, func(a, b api.RefusedNode) int {
		if byName := strings.Compare(a.Name, b.Name); byName != 0 {
			return byName
		}
		return strings.Compare(a.Reason, b.Reason)
	})
}
