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
	"muster/policy/script"
	"muster/policy/script/bundled"
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

func init() { // the scripts fall back to policies of the catalogue
	Entries = append(Entries, bundled.Entries(plain)...)
}

// New makes a policy from "NAME" or "NAME:key=value:key=value". Every policy takes two
// settings beside its own: preempt, which is suspend, move, requeue or cancel, and qos, the
// classes from the lowest to the highest, as low<normal<high. With them jobs of higher
// classes stop running jobs of lower ones. WithClasses writes a third, preempt_classes.
func New(spec string) (policy.Policy, error) {
	name, settings, _ := strings.Cut(spec, ":")
	settings, c := cutClasses(settings)
	p, err := newPlain(name, settings)
	if err != nil {
		return nil, err
	}
	return c.wrap(p, name)
}

// Script makes a policy of a script's text; settings are as behind the name in New. The
// script's own policy, around which there may be classes, tells of its trouble.
func Script(name string, source []byte, settings string) (policy.Policy, *script.Policy, error) {
	settings, c := cutClasses(settings)
	inner, err := script.Load(name, source, settings, plain)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.wrap(inner, name)
	return p, inner, err
}

// plain makes a policy without classes, for scripts to fall back to.
func plain(spec string) (policy.Policy, error) {
	name, settings, _ := strings.Cut(spec, ":")
	return newPlain(name, settings)
}

// classSettings are what a spec says of classes that preempt each other.
type classSettings struct{ rules, how, classes string }

func cutClasses(settings string) (rest string, c classSettings) {
	rest, c.rules = cutSetting(settings, classesSetting)
	rest, c.how = cutSetting(rest, "preempt=")
	rest, c.classes = cutSetting(rest, "qos=")
	return rest, c
}

func (c classSettings) wrap(p policy.Policy, name string) (policy.Policy, error) {
	switch {
	case c.rules != "" && c.how+c.classes != "":
		return nil, fmt.Errorf("policy %s: give either preempt_classes, or preempt and qos", name)
	case c.rules != "":
		return wrapped(p, name, c.rules)
	case c.how == "" || c.how == "off":
		if c.classes != "" {
			return nil, fmt.Errorf("policy %s: qos is for preemption: say how, as preempt=suspend", name)
		}
		return p, nil
	}
	r, err := preempt.ParseRules(c.classes, c.how)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return preempt.Wrap(p, r)
}

// classesSetting says all of an administrator's classes.
const classesSetting = "preempt_classes="

// WithClasses is the spec of a policy under which classes preempt each other, unless
// it has a preemption of its own.
func WithClasses(spec string, rules preempt.Rules) string {
	if len(rules) == 0 || strings.Contains(spec, ":preempt=") || strings.Contains(spec, ":"+classesSetting) {
		return spec
	}
	return spec + ":" + classesSetting + rules.String()
}

func wrapped(p policy.Policy, name, classes string) (policy.Policy, error) {
	rules, err := preempt.ReadRules(classes)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return preempt.Wrap(p, rules)
}

// cutSetting takes one setting out of the others.
func cutSetting(settings, name string) (rest, value string) {
	if !strings.Contains(settings, name) {
		return settings, ""
	}
	var others []string
	for s := range strings.SplitSeq(settings, ":") {
		if v, ok := strings.CutPrefix(s, name); ok {
			value = v
		} else {
			others = append(others, s)
		}
	}
	return strings.Join(others, ":"), value
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
