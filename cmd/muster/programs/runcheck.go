package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/node/devices"
	"muster/ptx/onekernel"
	"muster/ptx/simt/memcheck"
	"muster/report"
)

// runChecked runs the program on a node of its own whose software GPU checks kernels, says
// at the end what was found, and exits as the program did, or with --error-exitcode.
func (f *runFlags) runChecked(c *cobra.Command, path string, args, environment []string) error {
	checks, err := memcheck.Parse(f.check)
	switch {
	case err != nil:
		return cli.UsageErrorf("--check: %v", err)
	case f.errorStatus < 0 || f.errorStatus > 255:
		return cli.UsageErrorf("--error-exitcode %d: give a number from 0 to 255", f.errorStatus)
	case f.elsewhere.Node != "" || f.grant != "" || f.wishes.Nodes != "" || f.socket != "":
		return cli.UsageErrorf("--check starts a node of its own, with a software GPU: leave out --node, --nodes, --grant and --socket")
	}
	folder, err := os.MkdirTemp("", "muster-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) // it is only a report
	reports := filepath.Join(folder, "reports")
	if err := os.WriteFile(reports, nil, 0o600); err != nil {
		return err
	}
	for variable, value := range devices.CheckEnvironment(checks, reports) {
		if err := os.Setenv(variable, value); err != nil { // the node that is started gets them
			return err
		}
	}
	err = runPrivately(c, path, args, environment, "--devices", "soft:memory=4G")
	found, readErr := devices.CountReports(reports)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if found == 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%sno defects (%v)\n", onekernel.CheckPrefix, checks)
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s%s (%v)\n", onekernel.CheckPrefix, report.Plural(found, "defect"), checks)
	if f.errorStatus != 0 {
		return cli.ExitStatus(f.errorStatus)
	}
	return err
}
