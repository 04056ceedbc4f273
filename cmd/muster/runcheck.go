package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"muster/device/onekernel"
	"muster/ptx/simt"
	"muster/report"
)

// checkVariable tells a node's workers what to check kernels on software GPUs for, and
// checkReportVariable names the file to which they append what they find, beside telling
// the program.
const (
	checkVariable       = "MUSTER_CHECK"
	checkReportVariable = "MUSTER_CHECK_REPORT"
)

// noteDefect appends a report to a file of the user who started the node. A worker must not fail
// because of it: the program is told anyway.
func noteDefect(report string) {
	path := os.Getenv(checkReportVariable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString(report)
	_ = f.Close()
}

// runChecked runs the program on a node of its own whose software GPU checks kernels, says
// at the end what was found, and exits as the program did, or with --error-exitcode.
func (f *runFlags) runChecked(c *cobra.Command, path string, args, environment []string) error {
	checks, err := simt.ParseChecks(f.check)
	switch {
	case err != nil:
		return usageErrorf("--check: %v", err)
	case f.errorStatus < 0 || f.errorStatus > 255:
		return usageErrorf("--error-exitcode %d: give a number from 0 to 255", f.errorStatus)
	case f.node != "" || f.grant != "" || f.nodes != "" || f.socket != "":
		return usageErrorf("--check starts a node of its own, with a software GPU: leave out --node, --nodes, --grant and --socket")
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
	for variable, value := range map[string]string{checkVariable: checks.String(), checkReportVariable: reports} {
		if err := os.Setenv(variable, value); err != nil { // the node that is started gets them
			return err
		}
	}
	err = runPrivately(c, path, args, environment, "--devices", "soft:memory=4G")
	found, readErr := countDefects(reports)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if found == 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%sno defects (%v)\n", onekernel.CheckPrefix, checks)
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s%s (%v)\n", onekernel.CheckPrefix, report.Plural(found, "defect"), checks)
	if f.errorStatus != 0 {
		return exitStatus(f.errorStatus)
	}
	return err
}

// countDefects counts the reports in a file: each begins with a line that is not indented.
func countDefects(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, onekernel.CheckPrefix); ok && !strings.HasPrefix(rest, " ") {
			found++
		}
	}
	return found, nil
}
