// Package become lets a process that the caller starts become a user's program, so that no thread of the
// caller ever looks at the user's folder or program. exec.Cmd alone does both in a child that shares the caller's
// memory and suspends the thread that started it; if the file system does not answer (a home whose
// server is down, or a file system that the user serves), that thread keeps what Go's scheduler
// needs, and the whole process stops at its next collection of garbage.
//
// Here the child becomes this executable first, which is there at once. Before anything of Go runs in
// it, it changes to the folder and becomes the program. Every executable that imports this package can
// do that. The package knows nothing about what is started.
package become

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// mark is what a process finds as its first argument if it is to become another program: the folder,
// the program and its arguments follow.
const mark = "muster-become"

// resultFile is the descriptor to which the process writes why it did not become the program.
const resultFile = 3

// Result tells what came of a process.
type Result struct {
	read, write *os.File
}

// Prepare changes a command that was not started. It must have no ExtraFiles. After Start call
// Result.Started.
func Prepare(cmd *exec.Cmd) (*Result, error) {
	if len(cmd.ExtraFiles) > 0 {
		return nil, errors.New("the command has descriptors of its own")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Args = append([]string{"muster", mark, cmd.Dir, cmd.Path}, cmd.Args...)
	cmd.Path, cmd.Dir, cmd.ExtraFiles = "/proc/self/exe", "/", []*os.File{w}
	return &Result{r, w}, nil
}

// Started closes this process's end. It must be called once Start has returned, however it ended.
func (r *Result) Started() { r.write.Close() }

// Wait waits until the process has become the program, and returns why it has not. It returns nil,
// too, if the process was killed before.
func (r *Result) Wait() error {
	defer r.read.Close()
	text, err := io.ReadAll(io.LimitReader(r.read, 4<<10))
	if err != nil || len(text) == 0 {
		return nil // how the process ended is what its Wait says
	}
	return fmt.Errorf("%s", text)
}
