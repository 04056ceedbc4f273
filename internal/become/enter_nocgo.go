//go:build !cgo

package become

import (
	"fmt"
	"os"
	"syscall"
)

// Without C the process becomes its program as soon as Go initialises this package.
func init() {
	if len(os.Args) < 5 || os.Args[1] != mark {
		return
	}
	syscall.CloseOnExec(resultFile)
	var err error
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() { // whoever made this executable setuid did not mean all programs
		err = fmt.Errorf("executing %s: %w", os.Args[3], syscall.EPERM)
	} else if folder := os.Args[2]; folder != "" {
		if err = os.Chdir(folder); err != nil {
			err = fmt.Errorf("changing to %s: %w", folder, err.(*os.PathError).Err)
		}
	}
	if err == nil {
		err = fmt.Errorf("executing %s: %w", os.Args[3], syscall.Exec(os.Args[3], os.Args[4:], os.Environ()))
	}
	_, _ = syscall.Write(resultFile, []byte(err.Error()))
	os.Exit(127)
}
