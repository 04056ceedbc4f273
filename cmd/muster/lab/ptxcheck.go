package lab

import (
	"fmt"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/ptx/codecheck"
	"muster/report"
)

const ptxCheckHelp = `Say of each kernel whether the software GPU can run it. What it cannot do is named
with its line, and the exit status is 1. Nothing is run.

FILE is PTX text, a fat binary, or a program that holds one; - is standard input.
Of what a kernel takes it lists: registers of 32 bits a thread, static shared
memory a block, local memory a thread (+ where recursion or indirect calls need a
stack besides), the most threads a block may have (=X,Y,Z where a block must have
just these), and its parameters.`

func newPtxCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "check FILE... [--json]",
		Short:   "Say what of a module the software GPU can run",
		Long:    ptxCheckHelp,
		Example: "  muster ptx check kernels.ptx\n  muster ptx check --json a.out | jq '.files[].images[].kernels[].name'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageErrorf("name one file or more, or -")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return checkFiles(c, args, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// ptxCheckJSON is the document of muster ptx check --json.
type ptxCheckJSON struct {
	Supported bool             `json:"supported"`
	Files     []codecheck.File `json:"files"`
}

func checkFiles(c *cobra.Command, paths []string, asJSON bool) error {
	doc := ptxCheckJSON{Supported: true, Files: []codecheck.File{}}
	bad := 0
	for _, path := range paths {
		found := codecheck.CheckFile(c.InOrStdin(), path)
		doc.Files = append(doc.Files, found)
		if !found.Supported {
			doc.Supported = false
			bad++
		}
		if !asJSON {
			if err := found.Write(c.OutOrStdout(), c.ErrOrStderr()); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := cli.PrintJSON(c, doc); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %s cannot be run whole", bad, report.Plural(len(paths), "file"))
	}
	return nil
}
