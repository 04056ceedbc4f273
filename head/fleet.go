package head

import (
	"fmt"
	"maps"
	"muster/head/notices"
	"slices"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/agent"
	"muster/wire/api"
)

// fleet is the nodes with their sessions, and which of them a job may use. It knows what a node has, and
// nothing of what runs there. A node has another name with the policy if its own was used before.
type fleet struct {
	nodes    []*node // by the policy's number
	byName   map[string]*node
	aliases  map[string]string // the names of all nodes by the policy's, including removed ones
	retired  map[string]int    // by node name, how many of its policy numbers are retired
	types    map[string]model.GPUType
	special  bool // some node serves one user alone, or has another name with the policy
	private  bool // some node serves one user alone
	sessions map[Session]*node
	// restricted is what jobs that may not use all nodes may use.
	restricted map[restricted]*mayHave
	parts      divisions
	// unsettled are nodes that may have to be told how to serve programs, and news those of which something was
	// heard that the policy is to be told.
	unsettled, news []*node
}

func newFleet() *fleet {
	return &fleet{byName: map[string]*node{}, aliases: map[string]string{}, retired: map[string]int{}, types: map[string]model.GPUType{}, restricted: map[restricted]*mayHave{}, sessions: map[Session]*node{}}
}

// alias is a name that the policy has not seen, for a node of this name.
func (f *fleet) alias(name string) string {
	alias := name
	for k := 2; f.aliases[alias] != ""; k++ {
		alias = fmt.Sprintf("%s~%d", name, k)
	}
	return alias
}

// add adds a node that the policy knows.
func (f *fleet) add(n *node) {
	f.aliases[n.alias] = n.name
	clear(f.restricted)
	f.private = f.private || n.user != ""
	f.special = f.special || f.private || n.alias != n.name
	f.nodes = append(f.nodes, n)
	f.byName[n.name] = n
}

// retire takes a node out of use for ever, with its session.
func (f *fleet) retire(n *node) {
	n.removed, n.down = true, true
	clear(f.restricted)
	f.retired[n.name]++
	if f.byName[n.name] == n {
		delete(f.byName, n.name)
	}
	delete(f.sessions, n.session)
	n.session = 0
}

// open notes that a node's agent has greeted, and says whether it is the first because of which jobs are
// told which nodes they may use.
func (f *fleet) open(s Session, n *node, user string) (special bool) {
	n.session, n.user = s, user
	f.sessions[s] = n
	clear(f.restricted)
	f.private = f.private || user != ""
	special = user != "" && !f.special
	f.special = f.special || special
	return special
}

// close notes that a node's session has ended.
func (f *fleet) close(n *node, now time.Duration, reason string) {
	delete(f.sessions, n.session)
	if n.answered {
		n.since = now
	}
	n.session, n.answered, n.mute, n.left, n.busy = 0, false, !n.answered, reason, busy{}
	n.sent, n.is = nil, agent.Configured{}
}

// node is a machine whose agent has greeted at least once.
type node struct {
	name    string
	alias   string // the policy's name for it: the policy never sees a name twice
	number  int32  // the policy's number for it
	removed bool   // its number is retired; a node of the same name gets another

	incarnation string
	user        string
	cores       int
	memory      int64
	devices     []agent.Device // Up says whether jobs may have them
	said        []agent.Device // as the agent said last
	gateway     string
	shelf
	regime

	session Session // 0 while the agent is away
	// answered says that the agent has read all that it was told when it greeted in this session.
	// mute says that an earlier session ended before that, and none has come so far since: such an
	// agent is as good as away, however often it greets.
	answered, mute bool
	since          time.Duration // when its agent answered or, of one that is away or mute, since when it is
	left           string        // why its last session ended
	down           bool          // its agent was away for NodeTimeout
	trouble        string        // why its agent takes no tasks for now; "" if it does
	drain
	busy
	usable string          // the policy's state of the node that the node log has last
	jobs   map[uint64]bool // jobs that have a task or a loan here
	// stale are tasks of lost attempts that still run here. Until they have ended, the policy
	// places nothing new on the node.
	stale map[agent.Task]bool
}

// drain is whether an administrator wants no jobs on a node, and why, and what else he notes of it.
type drain struct {
	drained bool
	reason  string
	labels  map[string]string // never changed in place
}

// busy is how busy a node is, as its agent said last in this session: load is nil if it has not. notices are
// the bounds that this crosses.
type busy struct {
	load    *agent.Load
	loadAt  time.Duration // when it said so
	notices notices.Standing
}

// memories is how much memory each of a node's devices has.
func (n *node) memories() []int64 {
	list := make([]int64, len(n.devices))
	for i := range n.devices {
		list[i] = n.devices[i].Memory
	}
	return list
}

// shelf is where a node's jobs can be saved: a folder, or why they cannot.
type shelf struct{ checkpoints, noCheckpoints string }

// serves says whether the node's agent can start processes of a user.
func (n *node) serves(user string) bool { return n.user == "" || n.user == user }

// sameMachine says whether a greeting shows the hardware that the node had; additional devices at
// the end of the list are allowed.
func (n *node) sameMachine(h *agent.Hello) bool {
	if n.cores != h.Cores || !about(n.memory, h.Memory) || len(h.Devices) < len(n.devices) {
		return false
	}
	for i := range n.devices {
		if !sameDevice(&n.devices[i], &h.Devices[i]) {
			return false
		}
	}
	return true
}

// about says whether two memory sizes may be those of one machine: they may differ by 5 %, since
// another kernel or a ballooning host leaves a little more or less.
func about(a, b int64) bool { return max(a, b)-min(a, b) <= max(a, b)/20 }

func sameDevice(a, b *agent.Device) bool {
	return a.Name == b.Name && a.Memory == b.Memory && a.Speed == b.Speed
}

// gpuType is a device's type, whose name is the word that users write in --gres=gpu:TYPE:1. If
// devices of one name differ, the second kind has its memory in the word, and later kinds a number.
func (f *fleet) gpuType(d *agent.Device) model.GPUType {
	t := model.GPUType{Memory: d.Memory, Speed: d.Speed}
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, d.Name)
	if word == "" {
		word = "gpu"
	}
	for k := 1; ; k++ {
		switch t.Name = word; k {
		case 1:
		case 2:
			t.Name += "-" + strings.ToLower(units.FormatSize(d.Memory))
		default:
			t.Name += fmt.Sprintf("-%d", k)
		}
		if known, ok := f.types[t.Name]; !ok || known == t {
			f.types[t.Name] = t
			return t
		}
	}
}

// lentWithin says whether another node of the cluster lends a device. That node has it in its own
// list: jobs must not be given it twice.
func (f *fleet) lentWithin(n *node, d *agent.Device) bool {
	if d.Lender == "" {
		return false
	}
	return slices.ContainsFunc(f.nodes, func(o *node) bool {
		return o != n && !o.removed && (o.name == d.Lender || o.gateway == d.Lender)
	})
}

// connected says whether the node's agent is there and, if it was mute, has answered.
func (n *node) connected() bool { return n.session != 0 && !n.mute }

// activeJobs lists the jobs that have a task or a loan on the node, by number.
func (n *node) activeJobs() []uint64 {
	return slices.Sorted(maps.Keys(n.jobs))
}

// peersOf lists the gateways of the nodes from which a node may borrow virtual GPUs: those that
// follow it in the ring of all nodes. So each node is asked by equally many others.
func (f *fleet) peersOf(n *node) (gateways []string) {
	own := slices.Index(f.nodes, n)
	for i := 1; i < len(f.nodes) && len(gateways) < agent.MaxPeers; i++ {
		o := f.nodes[(own+i)%len(f.nodes)]
		if o.session != 0 && !o.removed && !o.drained && o.gateway != "" && o.gateway != n.gateway && !slices.Contains(gateways, o.gateway) {
			gateways = append(gateways, o.gateway)
		}
	}
	return gateways
}

// listed is how many nodes the policy is told that a job may use; 0 if it may use all.
func (f *fleet) listed(j *job) int {
	if f.chooses(j) {
		return len(f.nodes)
	}
	return len(j.said.Request.NodeList)
}

// mayAvoid checks the nodes that a job excludes. They are removed from the job's nodes only when
// the job is offered to the policy (mayUse), because nodes come and go until then.
func (f *fleet) mayAvoid(said *slurmopt.Options) error {
	if len(said.Exclude) == 0 {
		return nil
	}
	var all []string
	for _, n := range f.nodes {
		if !n.removed {
			all = append(all, n.name)
		}
	}
	trial := *said
	trial.Alternatives = slices.Clone(said.Alternatives)
	return trial.Avoid(all)
}

// chooses says whether the policy is told which of the nodes a job may use, in the head's words.
func (f *fleet) chooses(j *job) bool {
	return f.special || len(j.said.Exclude) > 0 || j.said.Batch.Constraint != nil || j.passage.from != "" || f.parts.confined(j.order) != nil
}

// divide takes partitions over.
func (f *fleet) divide(list []model.Partition) {
	f.parts.set(list)
	clear(f.restricted)
}

// restricted names jobs whose requests may use the same nodes (mayUse): there may be very many nodes, and tasks of
// an array. What they may use holds as long as no node comes, goes or changes its user.
type restricted struct {
	said      *slurmopt.Options // nil if the job leaves the nodes to the head
	user      string            // "" if that makes no difference
	partition string
}

// mayHave is the nodes that each of a job's requests may use, and those whose GPUs it may have; nil is all.
type mayHave struct {
	lists   [][]string
	lenders []string
}

// maxRestricted is for how many kinds of jobs that is remembered.
const maxRestricted = 64

// limit limits the requests of a job to the nodes that it may use.
func (f *fleet) limit(m *model.Job, j *job) {
	if j.passage.from != "" { // it is alone in that, and has no alternatives
		m.Request.NodeList, m.Request.Lenders = f.mayUse(&m.Request, j), f.mayLend(j)
		return
	}
	of := restricted{said: j.said, user: j.user, partition: j.said.Partition}
	if len(j.said.Exclude) == 0 && j.said.Batch.Constraint == nil && len(m.Request.NodeList) == 0 && len(m.Alternatives) == 0 {
		of.said = nil
	}
	if !f.private {
		of.user = ""
	}
	has := f.restricted[of]
	if has == nil {
		if len(f.restricted) >= maxRestricted {
			clear(f.restricted)
		}
		has = &mayHave{lenders: f.mayLend(j)}
		for _, r := range append([]model.Request{m.Request}, m.Alternatives...) {
			has.lists = append(has.lists, f.mayUse(&r, j))
		}
		f.restricted[of] = has
	}
	m.Request.NodeList, m.Request.Lenders = has.lists[0], has.lenders
	m.Alternatives = slices.Clone(m.Alternatives)
	for i := range m.Alternatives {
		m.Alternatives[i].NodeList, m.Alternatives[i].Lenders = has.lists[i+1], has.lenders
	}
}

// mayLend are the nodes whose GPUs a job may have, under the policy's names; nil is all.
func (f *fleet) mayLend(j *job) (names []string) {
	part := f.parts.confined(j.order)
	if part == nil {
		return nil
	}
	for _, n := range f.nodes {
		if !n.removed && part.reach[n.name] {
			names = append(names, n.alias)
		}
	}
	return names
}

// mayUse limits a request to the nodes that the job does not exclude and whose agents can start
// the user's processes, under the policy's names. If none is left it names a node that cannot
// exist, whose name explains itself in the policy's error: an empty list would mean all nodes.
func (f *fleet) mayUse(r *model.Request, j *job) (names []string) {
	excluded, named, part := setOf(j.said.Exclude), setOf(r.NodeList), f.parts.confined(j.order)
	for _, n := range f.nodes {
		if n.serves(j.user) && n.mayHave(j) && !n.removed && part.has(n.name) && !excluded[n.name] && j.said.Batch.Constraint.Allows(n.features) && (len(named) == 0 || named[n.name]) {
			names = append(names, n.alias)
		}
	}
	if len(names) == 0 {
		names = []string{"(one that starts processes of " + j.user + ")"}
		if len(named) > 0 {
			names = []string{"(one of " + model.CompressNodes(r.NodeList) + " that starts processes of " + j.user + ")"}
		}
		if j.passage.from != "" {
			names = []string{"(one that has the folder where the job was saved)"}
		} else if c := j.said.Batch.Constraint; c != nil {
			names = []string{"(one with " + c.String() + ")"}
		} else if len(excluded) > 0 {
			names = []string{"(one that the job does not exclude)"}
		} else if part != nil {
			names = []string{"(one of partition " + part.Name + ")"}
		}
	}
	return names
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// readable writes the nodes of a request for users, who know no aliases; "" if they are all that there
// are, to which mayUse limits a job of a user who named none.
func (f *fleet) readable(aliases []string) string {
	if !f.special {
		return model.CompressNodes(aliases)
	}
	listed := setOf(aliases)
	all := true
	for _, n := range f.nodes {
		if !n.removed && !listed[n.alias] {
			all = false
		}
	}
	if all {
		return ""
	}
	names := slices.Clone(aliases)
	for i, alias := range names {
		names[i] = f.aliases[alias]
		if names[i] == "" {
			names[i] = alias
		}
	}
	return model.CompressNodes(names)
}

func (n *node) add(j *job) {
	if n.jobs == nil {
		n.jobs = map[uint64]bool{}
	}
	n.jobs[j.id] = true
}

// regime is how a node serves programs, and when it was heard.
type regime struct {
	sent      *model.NodeSettings // what its agent was told in this session; nil for nothing
	is        agent.Configured    // what its agent said last in this session
	features  []string            // by which jobs choose it (--constraint), in order
	unsettled bool                // it is in fleet.unsettled
	heardAt   time.Duration       // when its agent said something last
	news      bool                // it is in fleet.news
}

// unsettle has a node told how to serve programs, after the next step of the policy: it may say something else.
func (f *fleet) unsettle(n *node) {
	if !n.unsettled {
		n.unsettled = true
		f.unsettled = append(f.unsettled, n)
	}
}

// unsettleAll does so for all nodes.
func (f *fleet) unsettleAll() {
	for _, n := range f.nodes {
		f.unsettle(n)
	}
}

// unwilling says why a node does not serve programs as it was told; "" if it does, or has not answered yet.
func (n *node) unwilling() string {
	if n.is.Error == "" || n.sent == nil {
		return ""
	}
	return fmt.Sprintf("it does not take the settings that the head sends (%v): %s", n.sent, n.is.Error)
}

// settings is how a node serves programs, for users; nil if nothing is known.
func (n *node) settings() *api.NodeSettings {
	var s api.NodeSettings
	if n.sent != nil && !n.sent.IsZero() {
		s.Asked = n.sent
	}
	if is := n.is.InForce; !is.IsZero() {
		s.InForce = &is
	}
	if s.Error = n.is.Error; s == (api.NodeSettings{}) {
		return nil
	}
	return &s
}

// maxLabels is how many labels a node may have.
const maxLabels = 64

// checkLabels refuses labels that a node cannot have beside those that it has.
func checkLabels(has, changes map[string]string) error {
	count := len(has)
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]
		if !plainLabel(key) || value != "" && !plainLabel(value) {
			return fmt.Errorf("a label is a name and a value of at most %d letters, digits and ._-+ each, as rack=r3, not %.80q", maxLabel, key+"="+value)
		}
		if _, there := has[key]; !there && value != "" {
			count++
		}
	}
	if count > maxLabels {
		return fmt.Errorf("it would have %d labels, and may have %d", count, maxLabels)
	}
	return nil
}

// maxLabel is how long a label's name, or its value, may be.
const maxLabel = 63

func plainLabel(s string) bool {
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-' || r == '+') {
			return false
		}
	}
	return s != "" && len(s) <= maxLabel
}

// label sets labels; an empty value takes one away.
func (n *node) label(changes map[string]string) {
	labels := map[string]string{} // a new one: documents may still have the old
	maps.Copy(labels, n.labels)
	maps.Copy(labels, changes)
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	n.labels = labels
}

// divisions are the partitions of the configuration, and their nodes as sets. They are nil of a cluster that is
// not divided. A job whose partition is no longer there waits.
type divisions struct {
	list []model.Partition
	of   map[string]*division
	ever bool // there have been some: what the policy knows of waiting jobs may be of those
}

// division is a partition: where its jobs run, and whose GPUs they may have; nil is all nodes.
type division struct {
	*model.Partition
	nodes, reach map[string]bool
}

func (ds *divisions) set(list []model.Partition) {
	*ds = divisions{list, map[string]*division{}, ds.ever || len(list) > 0}
	for i := range list {
		d := &division{Partition: &list[i]}
		if d.Nodes != nil {
			d.nodes, d.reach = setOf(d.Nodes), setOf(d.Reach())
		}
		ds.of[d.Name] = d
	}
}

// confined is the partition of a job, if that has not all nodes.
func (ds *divisions) confined(o *order) *division {
	if d := ds.of[o.said.Partition]; d != nil && d.nodes != nil {
		return d
	}
	return nil
}

// has says whether jobs of the partition may use a node.
func (d *division) has(name string) bool { return d == nil || d.nodes[name] }

// rankOf is a job's rank among those of all partitions.
func (ds *divisions) rankOf(o *order, rank int64) int64 {
	if d := ds.of[o.said.Partition]; d != nil {
		return d.RankOf(rank)
	}
	return rank
}

// empty names the partition of a job, if the head knows none of its nodes; "" otherwise.
func (f *fleet) empty(j *job) string {
	d := f.parts.confined(j.order)
	if d == nil || slices.ContainsFunc(d.Nodes, func(name string) bool { return f.byName[name] != nil }) {
		return ""
	}
	return d.Name
}

// partitionsOf are the names of the partitions that have a node.
func (ds *divisions) partitionsOf(node string) (names []string) {
	for i := range ds.list {
		if d := ds.of[ds.list[i].Name]; d.nodes == nil || d.nodes[node] {
			names = append(names, d.Name)
		}
	}
	return names
}

// unknownParts lists the nodes of partitions that have not come.
func (f *fleet) unknownParts() (names []string) {
	for i := range f.parts.list {
		for _, name := range slices.Concat(f.parts.list[i].Nodes, f.parts.list[i].Lenders) {
			if f.byName[name] == nil {
				names = append(names, name)
			}
		}
	}
	return names
}
