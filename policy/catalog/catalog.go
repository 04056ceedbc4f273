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

// New makes a policy from "NAME" or "NAME:key=value:key=value".
func New(spec string) (policy.Policy, error) {
	name, settings, _ := strings.Cut(spec, ":")
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
