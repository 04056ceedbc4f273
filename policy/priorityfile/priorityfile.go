// Package priorityfile reads what an administrator decides about priorities: a
// strict YAML file whose keys are slurm.conf's, with the accounts, classes and
// partitions that Slurm keeps in its database.
//
// What is wrong is named with file, line, column and remedy. It reads text and
// not files, so that it stays as pure as the book it configures.
package priorityfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model/strictyaml"
	"muster/policy/priority"
)

// MaxBytes is more than any such file has: one with 100,000 users fits.
const MaxBytes = 16 << 20

// Read reads a configuration; what the text does not name has Slurm's defaults.
// The name stands for the file in errors.
func Read(text []byte, name string) (*priority.Config, error) {
	d := &decoder{
		File: strictyaml.File{
			Name: name, What: "a priority configuration", Empty: "give at least one weight, as PriorityWeightFairshare: 10000",
		},
		accounts: map[string]int{"root": 0},
	}
	root, err := d.Parse(text)
	if err != nil {
		return nil, err
	}
	c := priority.Defaults()
	if err := d.document(root, &c); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, d.Errorf(strictyaml.Start(root), "%v", err)
	}
	return &c, nil
}

type decoder struct {
	strictyaml.File
	accounts map[string]int // the lines on which they are
}

func (d *decoder) document(root strictyaml.Node, c *priority.Config) error {
	_, err := d.Fields(root, d.What,
		d.weight("PriorityWeightAge", &c.WeightAge),
		d.weight("PriorityWeightFairshare", &c.WeightFairshare),
		d.weight("PriorityWeightJobSize", &c.WeightJobSize),
		d.weight("PriorityWeightPartition", &c.WeightPartition),
		d.weight("PriorityWeightQOS", &c.WeightQOS),
		value(d, "PriorityWeightTRES", &c.WeightTRES, priority.ParseWeights),
		value(d, "PriorityMaxAge", &c.MaxAge, minutes),
		value(d, "PriorityFavorSmall", &c.FavorSmall, yesNo),
		value(d, "PriorityDecayHalfLife", &c.DecayHalfLife, minutes),
		value(d, "PriorityCalcPeriod", &c.CalcPeriod, minutes),
		value(d, "PriorityUsageResetPeriod", new(bool), resetPeriod),
		strictyaml.Key("PriorityFlags", func(n strictyaml.Node) error { return d.flags(n, c) }),
		strictyaml.Key("FairShareDampeningFactor", d.Number("FairShareDampeningFactor", "above 0", func(x float64) bool { return x > 0 && x <= 1e6 }, &c.Dampening)),
		strictyaml.Key("TRESBillingWeights", d.billing(c)),
		value(d, "strict", &c.Strict, yesNo),
		strictyaml.Key("accounts", func(n strictyaml.Node) (err error) { c.Accounts, err = d.accountList(n); return err }),
		strictyaml.Key("qos", func(n strictyaml.Node) error { return d.classes(n, c) }),
		strictyaml.Key("partitions", func(n strictyaml.Node) error { return d.partitions(n, c) }),
	)
	return err
}

func value[T any](d *decoder, key string, into *T, parse func(string) (T, error)) strictyaml.Field {
	return strictyaml.Key(key, strictyaml.Value(&d.File, key, into, parse))
}

func (d *decoder) weight(key string, into *int64) strictyaml.Field {
	return value(d, key, into, whole(priority.MaxWeight))
}

// whole reads a number from 0 to most.
func whole(most int64) func(string) (int64, error) {
	return func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > most {
			return 0, fmt.Errorf("must be a whole number from 0 to %d, not %q", most, s)
		}
		return n, nil
	}
}

// minutes reads a time of slurm.conf, in which a plain number is minutes.
func minutes(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return time.Duration(n) * time.Minute, nil
	}
	return units.ParseDuration(s)
}

func yesNo(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("must be YES or NO, not %q", s)
}

func resetPeriod(s string) (bool, error) {
	if !strings.EqualFold(s, "NONE") {
		return false, fmt.Errorf("only NONE is known, not %q: let usage decay with PriorityDecayHalfLife instead", s)
	}
	return true, nil
}

// flags reads the flags of Slurm that change something here. They are one text
// with commas between, as in slurm.conf.
func (d *decoder) flags(n strictyaml.Node, c *priority.Config) error {
	w, err := d.Scalar(n, "PriorityFlags")
	if err != nil {
		return err
	}
	for flag := range strings.SplitSeq(w.Text, ",") {
		switch strings.ToUpper(strings.TrimSpace(flag)) {
		case "NO_FAIR_TREE":
			c.Classic = true
		case "MAX_TRES":
			c.Billing.Max = true
		default:
			return d.Errorf(w.Place, "PriorityFlags: %q is not known here: there are NO_FAIR_TREE and MAX_TRES", strings.TrimSpace(flag))
		}
	}
	return nil
}

// billing leaves the flag for the most expensive resource as it is, whichever of
// the two keys comes first.
func (d *decoder) billing(c *priority.Config) func(strictyaml.Node) error {
	return func(n strictyaml.Node) error {
		var b priority.Billing
		if err := strictyaml.Value(&d.File, "TRESBillingWeights", &b, priority.ParseBilling)(n); err != nil {
			return err
		}
		b.Max = c.Billing.Max
		c.Billing = b
		return nil
	}
}

func (d *decoder) accountList(n strictyaml.Node) ([]priority.Account, error) {
	entries, err := d.Entries(n, "accounts")
	if err != nil {
		return nil, err
	}
	var list []priority.Account
	for _, e := range entries {
		if line, twice := d.accounts[e.Key.Text]; twice {
			if e.Key.Text == "root" {
				return nil, d.Errorf(e.Key.Place, "root is the account above all: give this one another name")
			}
			return nil, d.Errorf(e.Key.Place, "there is an account %q on line %d already: an account is known by its name, wherever it is", e.Key.Text, line)
		}
		d.accounts[e.Key.Text] = e.Key.Line
		a := priority.Account{Name: e.Key.Text, Shares: 1}
		if err := d.name(e.Key); err != nil {
			return nil, err
		}
		_, err := d.Fields(e.Value, "account "+a.Name,
			value(d, "Fairshare", &a.Shares, whole(priority.MaxShares)),
			strictyaml.Key("users", func(n strictyaml.Node) (err error) { a.Users, err = d.users(n); return err }),
			strictyaml.Key("accounts", func(n strictyaml.Node) (err error) { a.Accounts, err = d.accountList(n); return err }),
		)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

func (d *decoder) name(w strictyaml.Word) error {
	if err := strictyaml.CheckName(w.Text); err != nil {
		return d.Errorf(w.Place, "the name %v", err)
	}
	return nil
}

// users reads a list of names, with one share each, or names with their shares.
func (d *decoder) users(n strictyaml.Node) ([]priority.User, error) {
	var list []priority.User
	if items, ok := strictyaml.Items(n); ok {
		seen := map[string]bool{}
		for _, item := range items {
			w, err := d.Scalar(item, "a user")
			if err == nil {
				err = d.name(w)
			}
			switch {
			case err != nil:
				return nil, err
			case seen[w.Text]:
				return nil, d.Errorf(w.Place, "user %s is there twice: remove one", w.Text)
			}
			seen[w.Text] = true
			list = append(list, priority.User{Name: w.Text, Shares: 1})
		}
		return list, nil
	}
	if !strictyaml.IsMapping(n) {
		return nil, d.Errorf(strictyaml.Start(n), "users must be a list, as [alice, bob], or names with shares, as {alice: 2, bob: 1}, not %s", strictyaml.Kind(n))
	}
	entries, err := d.Entries(n, "users")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		u := priority.User{Name: e.Key.Text}
		if err := d.name(e.Key); err != nil {
			return nil, err
		}
		if err := strictyaml.Value(&d.File, "the shares of "+u.Name, &u.Shares, whole(priority.MaxShares))(e.Value); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

func (d *decoder) classes(n strictyaml.Node, c *priority.Config) error {
	entries, err := d.Entries(n, "qos")
	if err != nil {
		return err
	}
	for _, e := range entries {
		q := priority.QOS{Name: e.Key.Text}
		if err := d.name(e.Key); err != nil {
			return err
		}
		_, err := d.Fields(e.Value, "QOS "+q.Name,
			value(d, "Priority", &q.Priority, whole(priority.MaxWeight)),
			strictyaml.Key("Preempt", func(n strictyaml.Node) (err error) { q.Preempt, err = d.names(n); return err }),
			value(d, "PreemptMode", &q.PreemptMode, preemptMode),
		)
		if err != nil {
			return err
		}
		c.QOS = append(c.QOS, q)
	}
	return nil
}

func preemptMode(s string) (priority.PreemptMode, error) {
	switch m := priority.PreemptMode(strings.ToLower(s)); m {
	case "off":
		return priority.PreemptOff, nil
	case priority.PreemptSuspend, priority.PreemptMove, priority.PreemptRequeue, priority.PreemptCancel:
		return m, nil
	}
	return "", errors.New("must be off, suspend, move, requeue or cancel, not " + strconv.Quote(s))
}

func (d *decoder) names(n strictyaml.Node) ([]string, error) {
	items, ok := strictyaml.Items(n)
	if !ok {
		return nil, d.Errorf(strictyaml.Start(n), "Preempt must be a list of QOS, as [low, normal], not %s", strictyaml.Kind(n))
	}
	var list []string
	for _, item := range items {
		w, err := d.Scalar(item, "a QOS")
		if err != nil {
			return nil, err
		}
		list = append(list, w.Text)
	}
	return list, nil
}

func (d *decoder) partitions(n strictyaml.Node, c *priority.Config) error {
	entries, err := d.Entries(n, "partitions")
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := priority.Partition{Name: e.Key.Text, Factor: 1}
		if err := d.name(e.Key); err != nil {
			return err
		}
		if _, err := d.Fields(e.Value, "partition "+p.Name, value(d, "PriorityJobFactor", &p.Factor, whole(priority.MaxWeight))); err != nil {
			return err
		}
		c.Partitions = append(c.Partitions, p)
	}
	return nil
}
