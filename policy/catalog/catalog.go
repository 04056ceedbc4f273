// Package catalog lists the policies by name. A new policy joins with one
// line here; no other policy knows of it.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"muster/model"
	"muster/policy"
	"muster/policy/auction"
	"muster/policy/conservative"
	"muster/policy/consres"
	"muster/policy/easy"
	"muster/policy/firstfit"
	"muster/policy/inorder"
	"muster/policy/mosaic"
	"muster/policy/packing"
	"muster/policy/preempt"
)

// Entries are all policies, in the order in which they are shown.
var Entries = slices.Concat([]policy.Entry{
	inorder.FCFS,
	inorder.SJF,
	firstfit.FirstFit,
	firstfit.GQueue,
	firstfit.RQueue,
	easy.Entry,
	conservative.Entry,
	consres.Slurm,
	consres.RGPU,
	auction.Entry,
	mosaic.Entry,
}, packing.Entries)

// New makes a policy from "NAME" or "NAME:key=value:key=value". Every policy takes two
// settings beside its own: preempt, which is suspend, requeue or cancel, and qos, the
// classes from the lowest to the highest, as low<normal<high. With them jobs of higher
// classes stop running jobs of lower ones.
func New(spec string) (policy.Policy, error) {
	name, settings, _ := strings.Cut(spec, ":")
	settings, how, classes := cutPreemption(settings)
	p, err := newPlain(name, settings)
	switch {
	case err != nil:
		return nil, err
	case how == "" || how == "off":
		if classes != "" {
			return nil, fmt.Errorf("policy %s: qos is for preemption: say how, as preempt=suspend", name)
		}
		return p, nil
	}
	rules, err := preempt.ParseRules(classes, how)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return preempt.Wrap(p, rules)
}

// cutPreemption takes the settings of preemption out of the others.
func cutPreemption(settings string) (rest, how, classes string) {
	if !strings.Contains(settings, "preempt=") && !strings.Contains(settings, "qos=") {
		return settings, "", ""
	}
	var others []string
	for s := range strings.SplitSeq(settings, ":") {
		if v, ok := strings.CutPrefix(s, "preempt="); ok {
			how = v
		} else if v, ok := strings.CutPrefix(s, "qos="); ok {
			classes = v
		} else {
			others = append(others, s)
		}
	}
	return strings.Join(others, ":"), how, classes
}

func newPlain(name, settings string) (policy.Policy, error) {
	names := make([]string, len(Entries))
	for i := range Entries {
		if Entries[i].Name == name {
			return Entries[i].Make(settings)
		}
		names[i] = Entries[i].Name
	}
	if near := model.Nearest(name, names); near != "" {
		return nil, fmt.Errorf("there is no policy %q: did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("there is no policy %q: there are %s", name, strings.Join(names, ", "))
}
