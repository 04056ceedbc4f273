// Package bundled has the scripts that come with the program: the three policies of
// chapter 4 of the fourth paper, as in its Listings 4-1 to 4-3.
package bundled

import (
	"embed"
	"slices"
	"strings"

	"muster/model"
	"muster/policy"
	"muster/policy/script"
)

//go:embed *.star
var files embed.FS

// Settings of several scripts.
var (
	nodes   = model.Option{Name: "nodes", Default: "1", Summary: "on how many nodes at most the processes of a job are kept together"}
	deal    = model.Option{Name: "deal", Default: "fill", Summary: "how they are given to these: fill one after the other, or even, in turn"}
	apart   = model.Option{Name: "apart", Default: "ADFA", Summary: "the names of the programs whose processes are spread over all nodes, as ADFA/BFS"}
	short   = model.Option{Name: "short", Default: "10m", Summary: "jobs that say they run no longer than this are short-running"}
	move    = model.Option{Name: "move", Default: "no", Summary: "yes: a suspended job whose place is taken goes on elsewhere, where it can be saved and there is room"}
	weights = model.Option{Name: "weights", Summary: "how many processes each node should have: 8/4/4 in order, or node1*8/node2*4; else as many as it has GPUs"}
)

// scripts are the names of the policies, with their files. Their settings are as the scripts have them: every
// muster that starts lists the policies, and only one that schedules by a script is to read it.
var scripts = []struct {
	name, file, summary string
	own                 []model.Option
}{
	{"mccs-roundrobin", "roundrobin.star", "Listing 4-1: jobs in order, their processes given to the nodes one at a time", nil},
	{"mccs-colocation", "colocation.star", "Listing 4-2: a job's processes on the node with the most weight left, some spread over all", []model.Option{nodes, deal, apart, weights}},
	{"mccs-latency", "latency.star", "Listing 4-3: as mccs-colocation, and long jobs are suspended while short ones find no room", []model.Option{nodes, deal, apart, short, move, weights}},
}

// limits of one call are wider than those of other scripts: these end, and must get
// through a day's jobs that come all at once.
var limits = map[string]string{"steps": "50000000", "memory": "256M"}

// Entries are the bundled scripts as policies. named makes the policy that decides where a
// script fails.
func Entries(named func(spec string) (policy.Policy, error)) []policy.Entry {
	entries := make([]policy.Entry, len(scripts))
	for i, s := range scripts {
		load := func(settings string) (*script.Policy, error) {
			text, err := files.ReadFile(s.file)
			if err != nil {
				return nil, err
			}
			return script.Load(s.name, text, settings, named)
		}
		options := slices.Concat(s.own, script.Common)
		for k := range options {
			if more, ok := limits[options[k].Name]; ok {
				options[k].Default = more
			}
		}
		entries[i] = policy.Entry{Name: s.name, Summary: s.summary, Options: options, New: func(given model.Settings) (policy.Policy, error) {
			var own []string
			for _, o := range options {
				if _, limited := limits[o.Name]; limited || given[o.Name] != o.Default {
					own = append(own, o.Name+"="+given[o.Name])
				}
			}
			return load(strings.Join(own, ":"))
		}}
	}
	return entries
}

// Source is the text of a bundled script by the name of its policy; "" if there is none.
func Source(name string) string {
	for _, s := range scripts {
		if s.name == name {
			text, _ := files.ReadFile(s.file) // it is embedded
			return string(text)
		}
	}
	return ""
}
