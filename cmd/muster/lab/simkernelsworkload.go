package lab

import (
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/report"
	"muster/workload/phased"
)

// completePhased completes the names of workloads, and files beside them, or the settings
// of a workload.
func completePhased(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	name, _, hasSettings := strings.Cut(word, ":")
	var names []string
	for _, e := range phased.List() {
		if hasSettings && strings.EqualFold(e.Name, name) {
			return completeSettings("", word, e.Options), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		names = append(names, e.Name+"\t"+e.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// listPhased prints the workloads that have names, and their settings. Those of the
// paper have the same, and all have settings of the same names.
func listPhased(c *cobra.Command, asJSON bool) error {
	list := phased.List()
	if asJSON {
		return cli.PrintChoosableJSON(c, "workloads", cli.PhasedWorkloads())
	}
	names := &report.Table{Columns: []report.Column{{Name: "Workload"}, {Name: "What it is"}}}
	for _, e := range list {
		names.Rows = append(names.Rows, []string{e.Name, e.Summary})
	}
	settings := &report.Table{Columns: []report.Column{{Name: "Setting"}, {Name: list[0].Name}, {Name: list[len(list)-1].Name}, {Name: "What it is"}}}
	for i, o := range list[0].Options {
		settings.Rows = append(settings.Rows, []string{":" + o.Name, o.Default, list[len(list)-1].Options[i].Default, o.Summary})
	}
	return report.WriteTables(c.OutOrStdout(), []*report.Table{names, settings}, screen.Columns(c.OutOrStdout()))
}
