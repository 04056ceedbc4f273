package emulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// StartUnless starts a cluster unless a signal comes first.
func StartUnless(ctx context.Context, o Options, signals <-chan os.Signal) (*Cluster, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%v", s))
		case <-started:
		}
	}()
	return Start(ctx, o)
}

// Surroundings are what a command beside a cluster has of the process that starts it.
type Surroundings struct {
	// Environment is more variables than those that lead to the c.
	Environment []string
	// Signals are passed on, but for Ctrl-C, which a terminal sends to the command, too.
	Signals        <-chan os.Signal
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// RunBeside runs a command of this machine with Slurm's commands in its PATH, and returns its exit
// status as a shell would. The command is killed with this process, which the thread that starts it must
// outlive.
func (c *Cluster) RunBeside(args []string, s Surroundings) (status int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := lookIn(c.Bin(), args[0])
	if err != nil {
		return 0, err
	}
	command := exec.Command(path, args[1:]...)
	command.Env = append(c.Environ(), s.Environment...)
	command.Stdin, command.Stdout, command.Stderr = s.Stdin, s.Stdout, s.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case signal := <-s.Signals:
				if signal != os.Interrupt {
					_ = command.Process.Signal(signal) // it may have ended
				}
			case <-ended:
				return
			}
		}
	}()
	err = command.Wait()
	close(ended)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ended := exit.Sys().(syscall.WaitStatus); ended.Signaled() {
			return 128 + int(ended.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// lookIn finds a command in a folder, or else in PATH.
func lookIn(folder, name string) (string, error) {
	if !strings.Contains(name, "/") {
		if path, err := exec.LookPath(folder + "/" + name); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}

// WriteUse writes what to type in another terminal to use the cluster, as lines that a shell can read,
// with more variables to set.
func (c *Cluster) WriteUse(w io.Writer, o Options, environment []string) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "# Slurm %s with %d nodes, %s to %s", c.Tree.Version, len(c.Nodes), c.Nodes[0], c.Nodes[len(c.Nodes)-1])
	if o.GPUs > 0 && o.GPUNodes > 0 {
		fmt.Fprintf(out, ", the first %d with %d GPUs each", o.GPUNodes, o.GPUs)
	} else if o.GPUs > 0 {
		fmt.Fprintf(out, ", with %d GPUs each", o.GPUs)
	}
	fmt.Fprintf(out, "\n# type in another terminal:\nexport PATH=%s:\"$PATH\"\nexport SLURM_CONF=%s\n", c.Bin(), c.Conf())
	for _, variable := range environment {
		fmt.Fprintf(out, "export %s\n", variable)
	}
	fmt.Fprintf(out, "# then: sinfo; srun -N 2 printenv SLURMD_NODENAME; sbatch --wrap 'sleep 10'; squeue\n")
	address, _ := c.REST()
	fmt.Fprintf(out, "# REST: curl -H X-SLURM-USER-NAME:%s -H X-SLURM-USER-TOKEN:$(cat %s) %s/slurm/%s/ping\n",
		c.User, c.TokenFile(), address, c.Release().API)
	fmt.Fprintf(out, "# logs: %s/log\n", c.Folder)
	_, err := io.WriteString(w, out.String())
	return err
}
