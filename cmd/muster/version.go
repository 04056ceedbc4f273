package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"muster/internal/screen"
	"muster/ptx/simt/native"
	"muster/report"
)

// version is what this binary was built from.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Compiles string `json:"compiles_for"` // the software GPU: "AVX-512", "AVX2", or "" if it interprets kernels
}

func readVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	v.Compiles = native.Vectors()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	commit := v.Commit
	if commit == "" {
		commit = "unknown"
	}
	if v.Modified {
		commit += ", modified"
	}
	how := "interprets kernels"
	if v.Compiles != "" {
		how = "compiles kernels for " + v.Compiles
	}
	return fmt.Sprintf("muster %s (commit %s) %s %s; the software GPU %s", v.Version, commit, v.Go, v.Platform, how)
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version [--json]",
		Short:   "Say which Muster this is",
		Long:    "Say which Muster this is: its version, the commit it was built from, by which Go, and for which vectors of this processor the software GPU compiles kernels.",
		Example: "  muster version\n  muster version --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(c, readVersion())
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), readVersion())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// printJSON prints the one document of a command with --json.
func printJSON(c *cobra.Command, v any) error {
	enc := json.NewEncoder(c.OutOrStdout())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeTable writes a table so that it fits the terminal, where there is one.
func writeTable(w io.Writer, t *report.Table) error { return t.WriteFitted(w, screen.Columns(w)) }
