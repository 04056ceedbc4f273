package daemon

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/wire/api"
	"muster/wire/identity"
)

const (
	// maxRefusals is how many nodes' refusals are kept; the oldest gives way.
	maxRefusals = 1024
	// refusedFor is how long a refusal counts. Agents try again at least every half minute, so one that
	// was not heard of for longer has given up.
	refusedFor = 2 * time.Minute
	// refusedWhile is how many seconds before a node was away a refusal may be the reason for that: its
	// session ends a moment after.
	refusedWhile = 10
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
	// outside says that the handshake has failed: somebody has shown a certificate of the node, and
	// nobody knows whether the node itself did.
	outside bool
}

// How much is kept of what a certificate or an agent says.
const (
	maxRefusedNames  = 8
	maxRefusedName   = 256
	maxRefusedReason = 4 << 10
)

// showable says whether a name can be a node's and can be shown.
func showable(name string) bool {
	return name != "" && len(name) <= maxRefusedName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// clipped is what is kept of a refusal. It has no names if none can be shown.
func (r refusal) clipped() refusal {
	r.names = slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return !showable(name) })
	r.names = slices.Clone(r.names[:min(len(r.names), maxRefusedNames)])
	r.reason = strings.ToValidUTF8(r.reason[:min(len(r.reason), maxRefusedReason)], "")
	r.reason = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, r.reason)
	return r
}

// names are the names under which an agent is listed that wants to be a node: that one, or those of
// its certificate.
func (c *caller) names(node string) []string {
	if c.node != nil && !showable(node) {
		return identity.NodeNames(c.node)
	}
	return []string{node}
}

// holder tells agents apart that want to speak for a node.
func (c *caller) holder(node string) string {
	if c.node != nil {
		return "certificate " + c.node.Subject.CommonName
	}
	return "socket " + node
}

func (r *refusals) note(holder string, one refusal) {
	one = one.clipped()
	if len(one.names) == 0 {
		return
	}
	holder = strings.Clone(holder[:min(len(holder), 2*maxRefusedName)])
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byHolder == nil {
		r.byHolder = map[string]refusal{}
	}
	if _, known := r.byHolder[holder]; !known && len(r.byHolder) >= maxRefusals {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(r.byHolder)), func(a, b string) int { return r.byHolder[a].at.Compare(r.byHolder[b].at) })
		delete(r.byHolder, oldest)
	}
	r.byHolder[holder] = one
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
	lately := r.lately(now)
	if len(lately) == 0 {
		return
	}
	nodes := make(map[string]*api.Node, len(list.Nodes))
	for i := range list.Nodes {
		nodes[list.Nodes[i].Name] = &list.Nodes[i]
	}
	for _, one := range lately {
		name, reason, at := one.names[0], one.reason, float64(one.at.UnixNano())/1e9
		if i := slices.IndexFunc(one.names, func(name string) bool { return nodes[name] != nil }); i >= 0 {
			name = one.names[i]
			switch n := nodes[name]; {
			case n.Connected && one.outside:
				reason = "the node itself is connected, and somebody shows another certificate of it: " + reason
			case !n.Connected && n.Reason == "" && at >= n.Since-refusedWhile: // before, it was connected all the same
				n.Reason = "the head refuses it: " + reason
			}
		}
		list.Refused = append(list.Refused, api.RefusedNode{Name: name, Reason: reason, At: at})
	}
	slices.SortFunc(list.Refused, func(a, b api.RefusedNode) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Reason, b.Reason), cmp.Compare(b.At, a.At))
	})
	// A node that was told so in its session hears the same when it calls again.
	list.Refused = slices.CompactFunc(list.Refused, func(a, b api.RefusedNode) bool { return a.Name == b.Name && a.Reason == b.Reason })
}
