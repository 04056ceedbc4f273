package priority

import (
	"fmt"
	"slices"
	"time"

	"muster/model"
)

// Config is what an administrator decides. The names are those of slurm.conf
// without "Priority", and docs/priorities.md explains each.
type Config struct {
	WeightAge       int64   `json:"weight_age"`
	WeightFairshare int64   `json:"weight_fairshare"`
	WeightJobSize   int64   `json:"weight_job_size"`
	WeightPartition int64   `json:"weight_partition"`
	WeightQOS       int64   `json:"weight_qos"`
	WeightTRES      Weights `json:"weight_tres"`

	// MaxAge is the time of waiting at which the age counts in full.
	MaxAge time.Duration `json:"max_age"`
	// FavorSmall turns the size around: the smallest job gets the whole weight.
	FavorSmall bool `json:"favor_small,omitempty"`
	// DecayHalfLife is when half of what was used is forgotten; 0 forgets nothing.
	DecayHalfLife time.Duration `json:"decay_half_life"`
	// CalcPeriod is how often the priorities of waiting jobs are worked out again.
	CalcPeriod time.Duration `json:"calc_period"`
	// Classic takes the classic formula instead of fair tree: Slurm's
	// PriorityFlags=NO_FAIR_TREE. Dampening is its FairShareDampeningFactor.
	Classic   bool    `json:"classic,omitempty"`
	Dampening float64 `json:"dampening"`
	// Billing is what usage is counted in.
	Billing Billing `json:"billing"`

	// Accounts are those directly below the root.
	Accounts []Account `json:"accounts,omitempty"`
	// Strict refuses jobs of accounts and users that are not in the tree. Otherwise
	// they join it with one share: an account below the root, a user in its account.
	Strict bool `json:"strict,omitempty"`

	QOS        []QOS       `json:"qos,omitempty"`
	Partitions []Partition `json:"partitions,omitempty"`
}

// Account has shares of what its parent has, and divides them among its users
// and its own accounts.
type Account struct {
	Name     string    `json:"name"`
	Shares   int64     `json:"shares"`
	Users    []User    `json:"users,omitempty"`
	Accounts []Account `json:"accounts,omitempty"`
}

// User is a user in one account; the same person may be in several.
type User struct {
	Name   string `json:"name"`
	Shares int64  `json:"shares"`
}

// QOS is a class of jobs.
type QOS struct {
	Name     string `json:"name"`
	Priority int64  `json:"priority"`
	// Preempt names the classes whose running jobs this one may stop.
	Preempt []string `json:"preempt,omitempty"`
	// PreemptMode is how a job of this class is stopped for another.
	PreemptMode PreemptMode `json:"preempt_mode,omitempty"`
}

// PreemptMode is what happens to a job that another takes the place of.
type PreemptMode string

// Slurm's modes that are known here, and move.
const (
	PreemptOff     PreemptMode = "" // it is not stopped
	PreemptSuspend PreemptMode = "suspend"
	PreemptMove    PreemptMode = "move"
	PreemptRequeue PreemptMode = "requeue"
	PreemptCancel  PreemptMode = "cancel"
)

// Partition is a queue that jobs are submitted to.
type Partition struct {
	Name   string `json:"name"`
	Factor int64  `json:"factor"` // Slurm's PriorityJobFactor
}

// AccountNames are the names of all accounts, an account before those that it has.
func (c *Config) AccountNames() (names []string) {
	var add func(list []Account)
	add = func(list []Account) {
		for i := range list {
			names = append(names, list[i].Name)
			add(list[i].Accounts)
		}
	}
	add(c.Accounts)
	return names
}

// WithPartitions takes the factors of a cluster's partitions over: they go before its own.
func (c Config) WithPartitions(list []model.Partition) Config {
	c.Partitions = slices.Clone(c.Partitions)
	for _, p := range list {
		if p.PriorityJobFactor > 0 {
			c.Partitions = slices.DeleteFunc(c.Partitions, func(o Partition) bool { return o.Name == p.Name })
			c.Partitions = append(c.Partitions, Partition{p.Name, int64(p.PriorityJobFactor)})
		}
	}
	return c
}

// Limits of a configuration: those of Slurm where it has some.
const (
	MaxWeight = 1<<32 - 1
	MaxShares = 1<<31 - 1
	MaxNice   = 2_147_483_645
)

// DefaultAccount is that of jobs which name none, where their user is in none.
const DefaultAccount = "default"

// Defaults is a configuration with Slurm's defaults: all weights are 0, a core
// second costs 1, and every user has one share.
func Defaults() Config {
	return Config{
		MaxAge: 7 * 24 * time.Hour, DecayHalfLife: 7 * 24 * time.Hour, CalcPeriod: 5 * time.Minute,
		Dampening: 1, Billing: Billing{CPU: Million},
	}
}

// Validate reports the first thing that makes no sense.
func (c *Config) Validate() error {
	for _, w := range []struct {
		name  string
		value int64
	}{
		{"PriorityWeightAge", c.WeightAge}, {"PriorityWeightFairshare", c.WeightFairshare}, {"PriorityWeightJobSize", c.WeightJobSize},
		{"PriorityWeightPartition", c.WeightPartition}, {"PriorityWeightQOS", c.WeightQOS},
		{"PriorityWeightTRES CPU", c.WeightTRES.CPU}, {"PriorityWeightTRES Mem", c.WeightTRES.Mem}, {"PriorityWeightTRES GRES/gpu", c.WeightTRES.GPU},
	} {
		if w.value < 0 || w.value > MaxWeight {
			return fmt.Errorf("%s must be from 0 to %d, not %d", w.name, int64(MaxWeight), w.value)
		}
	}
	switch {
	case c.MaxAge <= 0:
		return fmt.Errorf("PriorityMaxAge must be above 0, not %s", c.MaxAge)
	case c.DecayHalfLife < 0:
		return fmt.Errorf("PriorityDecayHalfLife must not be negative: %s", c.DecayHalfLife)
	case c.CalcPeriod < time.Second:
		return fmt.Errorf("PriorityCalcPeriod must be at least 1s, not %s", c.CalcPeriod)
	case !(c.Dampening > 0 && c.Dampening <= 1e6):
		return fmt.Errorf("FairShareDampeningFactor must be above 0 and at most 1e6, not %v", c.Dampening)
	case c.Billing.CPU < 0 || c.Billing.Mem < 0 || c.Billing.GPU < 0:
		return fmt.Errorf("TRESBillingWeights must not be negative")
	}
	if err := checkAccounts(c.Accounts, map[string]bool{"root": true}); err != nil {
		return err
	}
	return c.checkClasses()
}

// checkAccounts holds names to be unique: Slurm knows an account by its name
// alone, wherever in the tree it is.
func checkAccounts(list []Account, seen map[string]bool) error {
	for i := range list {
		a := &list[i]
		switch {
		case a.Name == "":
			return fmt.Errorf("an account has no name")
		case seen[a.Name]:
			return fmt.Errorf("there are two accounts %q: give one of them another name", a.Name)
		case a.Shares < 0 || a.Shares > MaxShares:
			return fmt.Errorf("account %s: shares must be from 0 to %d, not %d", a.Name, MaxShares, a.Shares)
		}
		seen[a.Name] = true
		users := map[string]bool{}
		for _, u := range a.Users {
			switch {
			case u.Name == "" || users[u.Name]:
				return fmt.Errorf("account %s: user %q is there twice, or has no name", a.Name, u.Name)
			case u.Shares < 0 || u.Shares > MaxShares:
				return fmt.Errorf("account %s: user %s: shares must be from 0 to %d, not %d", a.Name, u.Name, MaxShares, u.Shares)
			}
			users[u.Name] = true
		}
		if err := checkAccounts(a.Accounts, seen); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkClasses() error {
	classes := map[string]*QOS{}
	for i := range c.QOS {
		q := &c.QOS[i]
		switch {
		case q.Name == "" || classes[q.Name] != nil:
			return fmt.Errorf("QOS %q is there twice, or has no name", q.Name)
		case q.Priority < 0 || q.Priority > MaxWeight:
			return fmt.Errorf("QOS %s: Priority must be from 0 to %d, not %d", q.Name, int64(MaxWeight), q.Priority)
		}
		switch q.PreemptMode {
		case PreemptOff, PreemptSuspend, PreemptMove, PreemptRequeue, PreemptCancel:
		default:
			return fmt.Errorf("QOS %s: PreemptMode must be off, suspend, move, requeue or cancel, not %q", q.Name, q.PreemptMode)
		}
		classes[q.Name] = q
	}
	for i := range c.QOS {
		q := &c.QOS[i]
		for _, name := range q.Preempt {
			lower := classes[name]
			switch {
			case lower == nil:
				return fmt.Errorf("QOS %s preempts %q, which is no QOS here", q.Name, name)
			case lower.Priority >= q.Priority:
				// Otherwise two classes might stop each other's jobs for ever.
				return fmt.Errorf("QOS %s preempts %s, whose Priority is not lower: %d and %d", q.Name, name, q.Priority, lower.Priority)
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range c.Partitions {
		switch {
		case p.Name == "" || seen[p.Name]:
			return fmt.Errorf("partition %q is there twice, or has no name", p.Name)
		case p.Factor < 0 || p.Factor > MaxWeight:
			return fmt.Errorf("partition %s: PriorityJobFactor must be from 0 to %d, not %d", p.Name, int64(MaxWeight), p.Factor)
		}
		seen[p.Name] = true
	}
	return nil
}
