package main

import (
	"github.com/spf13/cobra"

	"muster/mapping"
	"muster/model"
	"muster/policy/catalog"
	"muster/report"
	"muster/workload"
	"muster/workload/phased"
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

// generators are what makes synthetic logs.
func generators() []choosable {
	var list []choosable
	for _, g := range workload.Generators() {
		one := choosable{name: g.Name, summary: g.Summary}
		for _, p := range g.Parameters {
			one.options = append(one.options, model.Option{Name: p.Name, Default: p.Default, Summary: p.Help})
		}
		list = append(list, one)
	}
	return list
}

// phasedWorkloads are those of the kernel simulator.
func phasedWorkloads() []choosable {
	var list []choosable
	for _, e := range phased.List() {
		list = append(list, choosable{e.Name, e.Summary, e.Options})
	}
	return list
}

// printChoosableJSON prints a catalogue for programs, as a list of that name.
func printChoosableJSON(c *cobra.Command, name string, list []choosable) error {
	out := []jsonChoosable{}
	for _, e := range list {
		one := jsonChoosable{Name: e.name, Summary: e.summary, Settings: []jsonSetting{}}
		for _, o := range e.options {
			one.Settings = append(one.Settings, jsonSetting{o.Name, o.Default, o.Summary})
		}
		out = append(out, one)
	}
	return printJSON(c, map[string]any{name: out})
}

// printChoosable prints a catalogue: below each name its settings, as they are written behind it.
func printChoosable(c *cobra.Command, heading string, list []choosable) error {
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
