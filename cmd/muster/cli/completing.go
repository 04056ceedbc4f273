package cli

import (
	"strings"

	"muster/model/clusterfile"
	"muster/policy/catalog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CompleteFlag lets the shell complete a flag's value.
func CompleteFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return complete(c, nil, word)
	})
	if err != nil {
		panic(err) // the flag is not there: a slip in newSim
	}
}

// CompletePolicies completes the last of several names with commas between.
func CompletePolicies(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	before := word[:strings.LastIndexByte(word, ',')+1]
	var names []string
	for _, e := range catalog.Entries {
		names = append(names, before+e.Name+"\t"+e.Summary)
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// CompletePresets completes the names of clusters, and files beside them.
func CompletePresets(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, p := range clusterfile.Presets() {
		names = append(names, p.Name+"\t"+p.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// CompleteWords has the shell show what a flag takes without the marks around its placeholder.
func CompleteWords(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
}

// CompleteOne offers names of which one is chosen.
func CompleteOne(list func() []Choosable) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, e := range list() {
			names = append(names, e.Name+"\t"+e.Summary)
		}
		return names, cobra.ShellCompDirectiveDefault // a file of a script may be named, too
	}
}

// NodePolicies are what muster node --policy takes.
func NodePolicies() []Choosable {
	return []Choosable{
		{Name: "fcfs", Summary: "programs that came first are next"},
		{Name: "sjf", Summary: "the shortest GPU phase first"},
		{Name: "credit", Summary: "users below their fair share first"},
	}
}
