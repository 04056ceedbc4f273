package programs

import (
	"fmt"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/launch"
	"muster/ptx/codecheck"
	"muster/report"
)

const checkHelp = `List what a program will ask for, before it is run, and what of it is refused:

  functions  of CUDA's driver that it imports, or that it has the names of, to ask
             for them when it runs; docs/compatibility.md lists them all
  kernels    for which GPUs they are compiled. Software GPUs need PTX: kernels that
             have none, or use instructions that software GPUs do not know, run on
             real GPUs only
  libraries  that it needs, and whether they are found where the loader will look
             under muster run

PROGRAM is an executable, a shared library (for a Python package: its .so files), a
fat binary, a cubin or PTX text. Nothing is run. The exit status is 1 if something
is refused.

A program that has the CUDA runtime inside (nvcc's default) has the names of nearly
all functions in it and calls few of them. Of such a program only the functions that
it imports count; those it merely names are counted together.`

func NewCheck() *cobra.Command {
	var asJSON, onReal bool
	c := &cobra.Command{
		Use:     "check PROGRAM... [--real] [--json]",
		Short:   "Say what of a program will be refused, before it is run",
		Long:    checkHelp,
		Example: "  muster check ./program\n  muster check --real $(find venv/lib -name '*.so')\n  muster check --json a.out | jq '.files[].functions[] | select(.state == \"refused\")'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageErrorf("name one program or more")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return checkPrograms(c, args, onReal, asJSON) },
	}
	c.Flags().BoolVar(&onReal, "real", false, "the program will have real GPUs: do not mind what only software GPUs refuse")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// checkJSON is the document of muster check --json.
type checkJSON struct {
	Refused bool                `json:"refused"`
	Files   []codecheck.Program `json:"files"`
}

func checkPrograms(c *cobra.Command, paths []string, onReal, asJSON bool) error {
	lib, _ := launch.Libraries() // without it, programs find another library or none
	doc := checkJSON{Files: []codecheck.Program{}}
	bad := 0
	for _, path := range paths {
		found := codecheck.CheckProgram(c.InOrStdin(), path, lib)
		found.Count(onReal)
		if found.Refused > 0 || found.Error != "" {
			bad++
		}
		if !asJSON {
			if err := found.Write(c.OutOrStdout(), c.ErrOrStderr()); err != nil {
				return err
			}
		}
		doc.Files = append(doc.Files, found)
	}
	doc.Refused = bad > 0
	if asJSON {
		if err := cli.PrintJSON(c, doc); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("in %d of %s something is refused, or cannot be read", bad, report.Plural(len(paths), "file"))
	}
	return nil
}
