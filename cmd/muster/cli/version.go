package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"muster/internal/screen"
	"muster/internal/service"
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

func ReadVersion() version {
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

func NewVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version [--json]",
		Short:   "Say which Muster this is",
		Long:    "Say which Muster this is: its version, the commit it was built from, by which Go, and for which vectors of this processor the software GPU compiles kernels.",
		Example: "  muster version\n  muster version --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return PrintJSON(c, ReadVersion())
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), ReadVersion())
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// PrintJSON prints the one document of a command with --json.
func PrintJSON(c *cobra.Command, v any) error {
	enc := json.NewEncoder(c.OutOrStdout())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteTable writes a table so that it fits the terminal, where there is one.
func WriteTable(w io.Writer, t *report.Table) error { return t.WriteFitted(w, screen.Columns(w)) }

// DaemonLogFlags are the flags of a daemon that say how it logs.
func DaemonLogFlags(c *cobra.Command, l *service.Log) {
	flags := c.Flags()
	flags.StringVar(&l.Level, "log-level", "info", "what to log: debug, info, warn or error")
	flags.BoolVar(&l.JSON, "json-log", false, "log JSON even on a terminal")
	flags.BoolVar(&l.Text, "text-log", false, "log text even where there is no terminal")
}
