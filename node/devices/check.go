package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"muster/ptx/onekernel"
	"muster/ptx/simt/memcheck"
)

// checkVariable tells a node's workers what to check kernels on software GPUs for, and
// checkReportVariable names the file to which they append what they find, beside telling
// the program.
const (
	checkVariable       = "MUSTER_CHECK"
	checkReportVariable = "MUSTER_CHECK_REPORT"
)

// CheckEnvironment is what a node's environment must have so that its software GPUs check kernels and
// append what they find to a file, which must exist and belong to the user.
func CheckEnvironment(checks memcheck.Checks, reports string) map[string]string {
	return map[string]string{checkVariable: checks.String(), checkReportVariable: reports}
}

// checksWanted reads what CheckEnvironment has set: found is told what the device finds.
func checksWanted(getenv func(string) string) (checks memcheck.Checks, found func(report string), err error) {
	list := getenv(checkVariable)
	if list == "" {
		return checks, nil, nil
	}
	if checks, err = memcheck.Parse(list); err != nil {
		return checks, nil, fmt.Errorf("$%s: %w", checkVariable, err)
	}
	path := getenv(checkReportVariable)
	return checks, func(report string) { appendReport(path, report) }, nil
}

// appendReport appends a report to a file of the user who started the node. A worker must not fail
// because of it: the program is told anyway.
func appendReport(path, report string) {
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

// CountReports counts the reports in a file: each begins with a line that is not indented.
func CountReports(path string) (int, error) {
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
