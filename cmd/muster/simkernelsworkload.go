package main

import (
	"github.com/spf13/cobra"

	"muster/report"
	"muster/workload/phased"
)

// completePhased completes the names of workloads, and files beside them.
func completePhased(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, e := range phased.List() {
		names = append(names, e.Name+"\t"+e.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// listPhased prints the workloads that have names, and their settings. Those of the
// paper have the same, and all have settings of the same names.
func listPhased(c *cobra.Command, asJSON bool) error {
	list := phased.List()
	if asJSON {
		var out []jsonPolicy
		for _, e := range list {
			out = append(out, jsonPolicy{Name: e.Name, Summary: e.Summary, Settings: settingsJSON(e.Options)})
		}
		return printJSON(c, map[string]any{"workloads": out})
	}
	names := &report.Table{Columns: []report.Column{{Name: "Workload"}, {Name: "What it is"}}}
	for _, e := range list {
		names.Rows = append(names.Rows, []string{e.Name, e.Summary})
	}
	settings := &report.Table{Columns: []report.Column{{Name: "Setting"}, {Name: list[0].Name}, {Name: list[len(list)-1].Name}, {Name: "What it is"}}}
	for i, o := range list[0].Options {
		settings.Rows = append(settings.Rows, []string{":" + o.Name, o.Default, list[len(list)-1].Options[i].Default, o.Summary})
	}
	return writeTables(c.OutOrStdout(), []*report.Table{names, settings})
}
