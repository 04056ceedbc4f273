package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"muster/internal/screen"
	"muster/ptx/simt/vec"
	"muster/report"
)

// version is what this binary was built from.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"` // of the software GPU: "avx512" or "plain"
	Why      string `json:"kernels_reason"`
}

func readVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	v.Kernels, v.Why = vec.InUse().Name, vec.InUse().Reason
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
	return fmt.Sprintf("muster %s (commit %s) %s %s; the software GPU uses %v", v.Version, commit, v.Go, v.Platform, vec.InUse())
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version [--json]",
		Short:   "Say which Muster this is",
		Long:    "Say which Muster this is: its version, the commit it was built from, by which Go, and whether the software GPU uses the processor's vectors.",
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
