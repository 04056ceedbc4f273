package client

import (
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/misuse"
)

// RemoteShell is what a launcher such as mpiexec asks of ssh: a command on a host.
type RemoteShell struct {
	Host string
	// Command hands the words of the command to a shell, as ssh does.
	Command []string
	// NoInput is ssh's -n: the command gets nothing as standard input.
	NoInput bool
}

// ParseRemoteShell reads the arguments of ssh: options that mean nothing here, a host, of which only
// the name counts, and the words of a command.
func ParseRemoteShell(args []string) (RemoteShell, error) {
	const withValue = "BbcDEeFIiJLlmOopQRSWw"
	var r RemoteShell
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		r.NoInput = r.NoInput || strings.HasPrefix(option, "-n")
		if len(option) == 2 && strings.Contains(withValue, option[1:]) && len(args) > 0 {
			args = args[1:]
		}
	}
	if len(args) < 2 {
		return r, misuse.Errorf("--rsh takes HOST COMMAND..., as ssh does")
	}
	r.Host = args[0]
	if at := strings.LastIndexByte(r.Host, '@'); at >= 0 {
		r.Host = r.Host[at+1:]
	}
	r.Command = []string{"/bin/sh", "-c", strings.Join(args[1:], " ")}
	return r, nil
}

// AsRemoteShell makes the command line of a program that was called as muster-rsh, and
// keeps the options that a launcher gives to ssh from being taken for ours.
func AsRemoteShell(argv []string) []string {
	args := argv[1:]
	if filepath.Base(argv[0]) == "muster-rsh" {
		args = append([]string{"exec", "--rsh"}, args...)
	}
	if len(args) > 2 && args[0] == "exec" && args[1] == "--rsh" && args[2] != "--" {
		args = slices.Insert(slices.Clone(args), 2, "--")
	}
	return args
}
