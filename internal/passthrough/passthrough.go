// Package passthrough runs a program as if it had been started instead of this process: the program
// gets this process's input, output and signals, and this process can end as the program did. It
// knows nothing of what the program is for.
package passthrough

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"muster/internal/screen"
)

// Notify catches signals, but those that this process was started to ignore: they stay ignored, here
// and in the programs that it starts, as nohup and shells that start a job in the background want it.
func Notify(caught chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// Run runs the program to its end and passes signals on to it.
func Run(path string, args, environment []string) (*os.ProcessState, error) {
	signals := make(chan os.Signal, 16)
	Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGALRM)
	defer signal.Stop(signals)
	// The program must not outlive us. The system ties it to the thread that
	// started it, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := &exec.Cmd{
		Path: path, Args: args, Env: environment, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if !fromTerminal(s) {
					_ = cmd.Process.Signal(s)
				}
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	return cmd.ProcessState, nil
}

// fromTerminal says whether the program has got a signal already: what is typed
// at the terminal goes to all processes in its foreground.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := screen.ForegroundGroup(terminal)
	return err == nil && group == syscall.Getpgrp()
}

// DieBy ends this process by a signal. Go has handlers of its own for some, and
// a new program has none, so a shell takes this one's place. Where the signal is ignored the exit
// status says what it would have said.
func DieBy(s syscall.Signal) {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	signal.Reset()
	_ = syscall.Exec("/bin/sh", []string{"sh", "-c", fmt.Sprintf("kill -%d $$; exit %d", int(s), 128+int(s))}, os.Environ())
}

// Set gives a variable a value, instead of one that it may have: of two, programs
// find the first.
func Set(environment []string, variable, value string) []string {
	without := slices.DeleteFunc(environment, func(s string) bool { return strings.HasPrefix(s, variable+"=") })
	return append(without, variable+"="+value)
}

// Prepend puts a path before those of a variable.
func Prepend(environment []string, variable, path string) []string {
	at := slices.IndexFunc(environment, func(s string) bool { return strings.HasPrefix(s, variable+"=") })
	if at < 0 {
		return append(environment, variable+"="+path)
	}
	if old := strings.TrimPrefix(environment[at], variable+"="); old != "" {
		path += ":" + old
	}
	environment[at] = variable + "=" + path
	return environment
}
