package head

import (
	"fmt"

	"muster/internal/units"
	"muster/model"
)

// users are those who have submitted jobs.
type users struct {
	*present
	all map[string]*user
}

// user is what a user has of the cluster.
type user struct {
	jobs     int // jobs that have not ended, each task of an array
	records  int // the same, an array as one
	offered  int // tasks of arrays that wait with the policy
	admitted int // jobs that have passed the gate of limits: the policy has them, or they run
	taken    need
	waiting  []*job // jobs at the gate of limits, first in first out
}

func (us *users) of(name string) *user {
	u := us.all[name]
	if u == nil {
		u = &user{}
		us.all[name] = u
	}
	return u
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

// room is how many of most jobs with this need fit into a user's limits.
func (u *user) room(n need, l Limits, most int) int {
	if l.Running > 0 {
		most = min(most, l.Running-u.admitted)
	}
	if l.GPUs > 0 && n.gpus > 0 {
		most = min(most, (l.GPUs-u.taken.gpus)/n.gpus)
	}
	if l.Cores > 0 && n.cores > 0 {
		most = min(most, (l.Cores-u.taken.cores)/n.cores)
	}
	if l.Memory > 0 && n.memory > 0 {
		most = min(most, int((l.Memory-u.taken.memory)/n.memory))
	}
	return max(0, most)
}

func (u *user) fits(n need, l Limits) bool {
	return (l.Running == 0 || u.admitted < l.Running) &&
		(l.GPUs == 0 || u.taken.gpus+n.gpus <= l.GPUs) &&
		(l.Cores == 0 || u.taken.cores+n.cores <= l.Cores) &&
		(l.Memory == 0 || u.taken.memory+n.memory <= l.Memory)
}

// full says which limit keeps a user's first waiting job, of this need, from starting.
func (u *user) full(n need, l Limits) string {
	reached := func(limit, most string, taken any) string {
		return fmt.Sprintf("its user's limit is %s at a time (%s), of which %v are taken", most, limit, taken)
	}
	switch {
	case l.Running > 0 && u.admitted >= l.Running:
		return reached("running", units.Plural(l.Running, "job"), u.admitted)
	case l.GPUs > 0 && u.taken.gpus+n.gpus > l.GPUs:
		return reached("gpus", units.Plural(l.GPUs, "GPU"), u.taken.gpus)
	case l.Cores > 0 && u.taken.cores+n.cores > l.Cores:
		return reached("cores", units.Plural(l.Cores, "core"), u.taken.cores)
	case l.Memory > 0 && u.taken.memory+n.memory > l.Memory:
		return reached("memory", units.FormatSize(l.Memory)+" of memory", units.FormatSize(u.taken.memory))
	}
	return "jobs of its user before it wait for a limit"
}

func (u *user) take(n need, sign int) {
	u.admitted += sign
	u.taken.gpus += sign * n.gpus
	u.taken.cores += sign * n.cores
	u.taken.memory += int64(sign) * n.memory
}
