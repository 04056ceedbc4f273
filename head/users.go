package head

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/model"
)

// users are those who have submitted jobs, and what limits count of them, of accounts and of classes (QOS).
type users struct {
	*present
	all     map[string]*user
	tallies map[tallyKey]*tallied
	lines   map[lineKey]*line
}

// user is what a user has of the cluster.
type user struct {
	tallied
	records int // jobs that have not ended, an array as one
	offered int // tasks of arrays that wait with the policy
}

// tallied is what a user, an account or a class has of the cluster.
type tallied struct {
	jobs     int // jobs that have not ended, each task of an array
	admitted int // jobs that have passed the gate of limits: the policy has them, or they run
	taken    need
}

// tallyKey names what has a tally beside users: an account, a class, the jobs of a user in a class, or a licence.
type tallyKey struct{ account, qos, user, license string }

// lineKey says which jobs wait in one line at the gate of limits: those to which the same limits apply.
type lineKey struct{ user, account, qos, licenses string }

// line is jobs at the gate of limits, first in first out.
type line struct{ waiting []*job }

func (us *users) of(name string) *user {
	u := us.all[name]
	if u == nil {
		u = &user{}
		us.all[name] = u
	}
	return u
}

// tallyOf is what is counted under a key: nothing where no job that has not ended counts.
func (us *users) tallyOf(key tallyKey) *tallied {
	if t := us.tallies[key]; t != nil {
		return t
	}
	return &tallied{}
}

// lineOf is the line in which a job waits for limits. Accounts and classes without limits, which users may name as
// they like, and numbers of licences make no lines: whenever a job ends, all lines are looked at.
func (us *users) lineOf(o *order) *line {
	key := lineKey{user: o.user}
	if us.cfg.Accounts[o.said.Account] != (Limits{}) {
		key.account = o.said.Account
	}
	if us.cfg.QOS[o.said.QOS] != (QOSLimits{}) {
		key.qos = o.said.QOS
	}
	if len(o.said.Batch.Licenses) > 0 {
		var names []string
		for _, l := range o.said.Batch.Licenses {
			names = append(names, l.Name)
		}
		slices.Sort(names)
		key.licenses = strings.Join(names, ",")
	}
	l := us.lines[key]
	if l == nil {
		l = &line{}
		us.lines[key] = l
	}
	return l
}

// realign has the jobs that wait stand in the lines of a new configuration.
func (us *users) realign() {
	lines := us.standing()
	clear(us.lines)
	for _, l := range lines {
		for _, j := range l.waiting {
			to := us.lineOf(j.order)
			to.waiting = append(to.waiting, j)
		}
	}
}

// standing lists the lines in which jobs wait, those first whose first job came first, and drops the others.
func (us *users) standing() []*line {
	var list []*line
	for key, l := range us.lines {
		if len(l.waiting) == 0 {
			delete(us.lines, key)
		} else {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *line) int { return cmp.Compare(a.waiting[0].id, b.waiting[0].id) })
	return list
}

// bound is one limit that applies to a job, and what is taken of it.
type bound struct {
	*tallied
	key  tallyKey // zero for users
	need need     // what the job takes of it
	Limits
	of, name string // whose it is, for people
	prefix   string // of Slurm's word for it
	perUser  string // what follows there
}

// who is whose limit it is.
func (b *bound) who() string {
	if b.of == "user" {
		return b.name
	}
	return b.of + " " + b.name
}

// bounds lists what bounds a job: its user's limits, those of its account and of its class, and those of its user there.
func (us *users) bounds(o *order) []bound {
	list := []bound{{&us.of(o.user).tallied, tallyKey{}, o.need, us.limits(o.user), "user", o.user, "", ""}}
	if account := o.said.Account; account != "" {
		list = append(list, us.bound(tallyKey{account: account}, o.need, us.cfg.Accounts[account], "account", account, "AssocGrp", ""))
	}
	if qos := o.said.QOS; qos != "" {
		l := us.cfg.QOS[qos]
		list = append(list,
			us.bound(tallyKey{qos: qos}, o.need, l.Limits, "QOS", qos, "QOSGrp", ""),
			us.bound(tallyKey{qos: qos, user: o.user}, o.need, l.PerUser, "user "+o.user+" in QOS", qos, "QOSMax", "PerUser"))
	}
	for _, l := range o.said.Batch.Licenses {
		list = append(list, us.bound(tallyKey{license: l.Name}, need{licenses: l.Count}, Limits{licenses: us.cfg.Licenses[l.Name]}, "licence", l.Name, "Licenses", ""))
	}
	return list
}

func (us *users) bound(key tallyKey, n need, l Limits, of, name, prefix, perUser string) bound {
	return bound{us.tallyOf(key), key, n, l, of, name, prefix, perUser}
}

// room is how many of most jobs like this one fit into all its bounds.
func (us *users) room(o *order, most int) int {
	for _, b := range us.bounds(o) {
		most = b.room(b.need, b.Limits, most)
	}
	return most
}

func (us *users) fits(o *order) bool {
	return !slices.ContainsFunc(us.bounds(o), func(b bound) bool { return !b.fits(b.need, b.Limits) })
}

// take counts jobs like this one as admitted, or no more.
func (us *users) take(o *order, jobs int) {
	for _, b := range us.bounds(o) {
		b.take(b.need, jobs)
	}
}

// submitted counts jobs like this one that have not ended.
func (us *users) submitted(o *order, jobs int) {
	for _, b := range us.bounds(o) {
		b.jobs += jobs
		switch {
		case b.key == (tallyKey{}):
		case b.jobs == 0: // users may name as many accounts as they like
			delete(us.tallies, b.key)
		default:
			us.tallies[b.key] = b.tallied
		}
	}
}

// full says which limit keeps the first job of a line from starting: Slurm's word, and a sentence.
func (us *users) full(o *order) (word, sentence string) {
	for _, b := range us.bounds(o) {
		if what, limit := b.full(b.need, b.Limits); limit != "" {
			if b.prefix == "" {
				return "AssocGrpLimit", "its user's limit is " + limit + ": it starts when some of this user's jobs have ended"
			}
			if b.key.license != "" {
				return b.prefix, fmt.Sprintf("licence %s: the cluster has %s: it starts when some of the jobs that have them have ended", b.name, limit)
			}
			word = b.prefix + what + b.perUser
			if what != "GRES" { // as Slurm has it: AssocGrpGRES, QOSMaxJobsPerUserLimit
				word += "Limit"
			}
			return word, fmt.Sprintf("the limit of %s %s is %s", b.of, b.name, limit) + ": it starts when some of these jobs have ended"
		}
	}
	return "AssocGrpLimit", "jobs of its user before it wait for a limit"
}

// limits returns a user's own limits, or else those of all users.
func (us *users) limits(name string) Limits {
	if l, ok := us.cfg.Users[name]; ok {
		return l
	}
	return us.cfg.Limits
}

// mayTurn refuses a class or weight that a user's jobs may not have.
func (l Limits) mayTurn(user string, t model.Turns) error {
	most := max(1, l.Weight)
	switch {
	case t.Class == model.ClassLatency && !l.Latency:
		return fmt.Errorf("--gpu-class=%s: jobs of user %s may not be of class latency: leave it out, or ask an administrator for class: any (limits in head.yaml)", t.Class, user)
	case t.Weight > most:
		return fmt.Errorf("--gpu-weight=%d: jobs of user %s may have a weight of at most %d: ask for less, or ask an administrator for more (weight, limits in head.yaml)", t.Weight, user, most)
	}
	return nil
}

// room is how many of most jobs with this need fit into limits.
func (t *tallied) room(n need, l Limits, most int) int {
	if l.Running > 0 {
		most = min(most, l.Running-t.admitted)
	}
	if l.GPUs > 0 && n.gpus > 0 {
		most = min(most, (l.GPUs-t.taken.gpus)/n.gpus)
	}
	if l.Cores > 0 && n.cores > 0 {
		most = min(most, (l.Cores-t.taken.cores)/n.cores)
	}
	if l.Memory > 0 && n.memory > 0 {
		most = min(most, int((l.Memory-t.taken.memory)/n.memory))
	}
	if n.licenses > 0 {
		most = min(most, (l.licenses-t.taken.licenses)/n.licenses)
	}
	return max(0, most)
}

func (t *tallied) fits(n need, l Limits) bool {
	_, limit := t.full(n, l)
	return limit == ""
}

// full says which limit keeps a job of this need from starting: what it bounds, in Slurm's words, and a sentence; "" if none does.
func (t *tallied) full(n need, l Limits) (what, limit string) {
	reached := func(what, limit, most string, taken any) (string, string) {
		return what, fmt.Sprintf("%s at a time (%s), of which %v are taken", most, limit, taken)
	}
	switch {
	case l.Running > 0 && t.admitted >= l.Running:
		return reached("Jobs", "running", units.Plural(l.Running, "job"), t.admitted)
	case l.GPUs > 0 && t.taken.gpus+n.gpus > l.GPUs:
		return reached("GRES", "gpus", units.Plural(l.GPUs, "GPU"), t.taken.gpus)
	case l.Cores > 0 && t.taken.cores+n.cores > l.Cores:
		return reached("Cpu", "cores", units.Plural(l.Cores, "core"), t.taken.cores)
	case l.Memory > 0 && t.taken.memory+n.memory > l.Memory:
		return reached("Mem", "memory", units.FormatSize(l.Memory)+" of memory", units.FormatSize(t.taken.memory))
	}
	if n.licenses > 0 && t.taken.licenses+n.licenses > l.licenses {
		return "", fmt.Sprintf("%d, of which %d are taken", l.licenses, t.taken.licenses)
	}
	return "", ""
}

func (t *tallied) take(n need, jobs int) {
	t.admitted += jobs
	t.taken.gpus += jobs * n.gpus
	t.taken.cores += jobs * n.cores
	t.taken.memory += int64(jobs) * n.memory
	t.taken.licenses += jobs * n.licenses
}
