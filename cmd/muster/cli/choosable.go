package cli

import (
	"github.com/spf13/cobra"

	"muster/mapping"
	"muster/model"
	"muster/policy/catalog"
	"muster/report"
	"muster/workload"
	"muster/workload/phased"
)

// Choosable is something that is chosen by name, with settings.
type Choosable struct {
	Name, Summary string
	Options       []model.Option
}

// Policies are those of jobs.
func Policies() []Choosable {
	var list []Choosable
	for _, e := range catalog.Entries {
		list = append(list, Choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// Mappers are the policies of kernels.
func Mappers() []Choosable {
	var list []Choosable
	for _, e := range mapping.Entries {
		list = append(list, Choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// Generators are what makes synthetic logs.
func Generators() []Choosable {
	var list []Choosable
	for _, g := range workload.Generators() {
		one := Choosable{Name: g.Name, Summary: g.Summary}
		for _, p := range g.Parameters {
			one.Options = append(one.Options, model.Option{Name: p.Name, Default: p.Default, Summary: p.Help})
		}
		list = append(list, one)
	}
	return list
}

// PhasedWorkloads are those of the kernel simulator.
func PhasedWorkloads() []Choosable {
	var list []Choosable
	for _, e := range phased.List() {
		list = append(list, Choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// PrintChoosableJSON prints a catalogue for programs, as a list of that name.
func PrintChoosableJSON(c *cobra.Command, name string, list []Choosable) error {
	out := []jsonChoosable{}
	for _, e := range list {
		one := jsonChoosable{Name: e.Name, Summary: e.Summary, Settings: []jsonSetting{}}
		for _, o := range e.Options {
			one.Settings = append(one.Settings, jsonSetting{o.Name, o.Default, o.Summary})
		}
		out = append(out, one)
	}
	return PrintJSON(c, map[string]any{name: out})
}

// PrintChoosable prints a catalogue: below each name its settings, as they are written behind it.
func PrintChoosable(c *cobra.Command, heading string, list []Choosable) error {
	t := &report.Table{Columns: []report.Column{{Name: heading}, {Name: "What it does"}}}
	for _, e := range list {
		t.Rows = append(t.Rows, []string{e.Name, e.Summary})
		for _, o := range e.Options {
			t.Rows = append(t.Rows, []string{"  :" + o.Name + "=" + o.Default, o.Summary})
		}
	}
	return WriteTable(c.OutOrStdout(), t)
}

type (
	jsonChoosable struct {
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
