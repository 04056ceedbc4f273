package main

import (
	"github.com/spf13/cobra"

	"muster/mapping"
	"muster/model"
	"muster/policy/catalog"
	"muster/report"
)

// choosable is something that is chosen by name, with settings.
type choosable struct {
	name, summary string
	options       []model.Option
}

// policies are those of jobs.
func policies() []choosable {
	var list []choosable
	for _, e := range catalog.Entries {
		list = append(list, choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// mappers are the policies of kernels.
func mappers() []choosable {
	var list []choosable
	for _, e := range mapping.Entries {
		list = append(list, choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// printChoosable prints a catalogue.
func printChoosable(c *cobra.Command, heading string, list []choosable, asJSON bool) error {
	if asJSON {
		var out jsonPolicies
		for _, e := range list {
			out.Policies = append(out.Policies, jsonPolicy{Name: e.name, Summary: e.summary, Settings: settingsJSON(e.options)})
		}
		return printJSON(c, out)
	}
	t := &report.Table{Columns: []report.Column{{Name: heading}, {Name: "What it does"}}}
	for _, e := range list {
		t.Rows = append(t.Rows, []string{e.name, e.summary})
		for _, o := range e.options {
			t.Rows = append(t.Rows, []string{"  :" + o.Name + "=" + o.Default, o.Summary})
		}
	}
	return writeTable(c.OutOrStdout(), t)
}

type (
	jsonPolicies struct {
		Policies []jsonPolicy `json:"policies"`
	}
	jsonPolicy struct {
		Name     string        `json:"name"`
		Summary  string        `json:"summary"`
		Settings []jsonSetting `json:"settings"`
	}
	jsonSetting struct {
		Name    string `json:"name"`
		Default string `json:"default"`
		Summary string `json:"summary"`
	}
)

func settingsJSON(options []model.Option) []jsonSetting {
	list := []jsonSetting{}
	for _, o := range options {
		list = append(list, jsonSetting{o.Name, o.Default, o.Summary})
	}
	return list
}
