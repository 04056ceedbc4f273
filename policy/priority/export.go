package priority

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Document is a whole book as plain values, for a driver to keep as JSON.
type Document struct {
	Version int           `json:"version"`
	Now     time.Duration `json:"now_ns"`
	Nodes   int64         `json:"nodes"`
	Whole   TRES          `json:"whole"`
	Usage   []Kept        `json:"usage"`
	Jobs    []KeptJob     `json:"jobs"`
}

// Kept is what a user in an account had used at an instant. Its rate follows from
// the jobs that run.
type Kept struct {
	Account string        `json:"account"`
	User    string        `json:"user"`
	Used    float64       `json:"used"`
	Since   time.Duration `json:"since_ns"`
}

// KeptJob is a job that waits, runs, or does neither.
type KeptJob struct {
	Key Key `json:"key"`
	Submission
	Waits bool  `json:"waits,omitempty"`
	Holds *TRES `json:"holds,omitempty"`
}

const documentVersion = 1

// Export writes the book down.
func (b *Book) Export() Document {
	d := Document{Version: documentVersion, Now: b.now, Nodes: b.nodes, Whole: b.whole, Usage: []Kept{}, Jobs: []KeptJob{}}
	for i := range b.tree.members {
		m := &b.tree.members[i]
		if m.user {
			d.Usage = append(d.Usage, Kept{b.tree.members[m.parent].name, m.name, m.meter.used, m.meter.since})
		}
	}
	for _, j := range b.byKey() {
		d.Jobs = append(d.Jobs, KeptJob{Key: j.key, Submission: j.s, Waits: j.place >= 0, Holds: j.holds})
	}
	return d
}

// Import makes a book of a configuration and what was exported. Usage goes on as
// it would have, to the bit; the first Due works out all ranks anew.
func Import(c Config, d Document) (*Book, error) {
	b, err := New(c)
	if err != nil {
		return nil, err
	}
	if d.Version != documentVersion {
		return nil, fmt.Errorf("the book is of version %d, this program reads %d: use the program that wrote it", d.Version, documentVersion)
	}
	b.nodes, b.whole, b.now = d.Nodes, d.Whole, d.Now
	for _, k := range d.Usage {
		if k.Account == "" || !(k.Used >= 0) || math.IsInf(k.Used, 0) || k.Since > d.Now {
			return nil, fmt.Errorf("the usage of user %q in account %q makes no sense: %v since %s", k.User, k.Account, k.Used, k.Since)
		}
		m := &b.tree.members[b.tree.memberOf(k.Account, k.User)].meter
		m.used, m.since = k.Used, k.Since
	}
	for i := range d.Jobs {
		if err := b.take(&d.Jobs[i]); err != nil {
			return nil, fmt.Errorf("job %d: %w", d.Jobs[i].Key, err)
		}
	}
	return b, nil
}

func (b *Book) take(k *KeptJob) error {
	switch {
	case b.jobs[k.Key] != nil:
		return errors.New("it is there twice")
	case k.Waits && k.Holds != nil:
		return errors.New("it waits and runs")
	case k.Account == "":
		return errors.New("it has no account")
	}
	if err := checkNice(k.Nice); err != nil {
		return err
	}
	j := &job{key: k.Key, s: k.Submission, user: b.tree.memberOf(k.Account, k.User), place: -1}
	b.jobs[k.Key] = j
	if k.Holds != nil {
		holds := *k.Holds
		j.holds, j.rate = &holds, b.config.Billing.rate(holds)
		b.tree.members[j.user].meter.rate += j.rate
	}
	if k.Waits {
		b.wait(j)
	}
	return nil
}
