// Package demo is what muster demo shows: a cluster of a head and three nodes on this machine, to
// which real CUDA and MPI jobs are submitted as a user does (Guard, Play), and a node whose two
// devices programs share (Node). Each checks that all results are right, and that nothing is left.
//
// It knows Muster as its users do: it runs the program with the commands that are shown, and asks the
// head and the nodes how things are. It knows no command line of its own and no terminal; the caller
// hands over what draws on one.
package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options say how the demonstration of a cluster is played.
type Options struct {
	Programs    string // the folder of the programs, as Folder finds it
	Stay        bool   // the cluster stays up until an interrupt
	Out, Errors io.Writer
	Screen      *os.File // the terminal for the live view; nil: none
	Interrupted int      // the exit status that tells the guard of an interrupt
}

// Status is how a demonstration in a process of its own ended, which has said why.
type Status int

func (s Status) Error() string { return fmt.Sprintf("the demonstration ended with status %d", int(s)) }

// Folder is where the programs of the demonstrations are: the given folder, or the one beside this
// program.
func Folder(given string) (string, error) {
	if given == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding this program: %w", err)
		}
		given = filepath.Join(filepath.Dir(self), "examples")
	}
	folder, err := filepath.Abs(given)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "mm")); err != nil {
		return "", fmt.Errorf("the programs are not in %s: make examples builds them", folder)
	}
	return folder, nil
}
