package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/cmd/muster/cli"
	"muster/slurm/emulate/emulatetest"
)

func noEnvironment(string) string { return "" }

// A command sees the cluster, and its status is the exit status.
func TestSlurmEmulateRuns(t *testing.T) {
	emulatetest.Need(t, nil)
	parent, err := os.MkdirTemp("/tmp", "muster-test-") // a short name, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	folder, extra := filepath.Join(parent, "cluster"), filepath.Join(parent, "extra")
	if err := os.WriteFile(extra, []byte("PartitionName=second Nodes=n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	status := run([]string{"slurm", "emulate", "--nodes", "3", "--gpus", "1", "--gpu-nodes", "2", "--folder", folder, "--extra", extra, "--",
		"sh", "-c", "cat; echo $SLURM_CONF; echo ${MUSTER_SLURM_DRIVE_REST%:*} ${MUSTER_SLURM_DRIVE_REST_USER:+me}; srun -p second sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'; exit 5"},
		strings.NewReader("input\n"), &stdout, &stderr, noEnvironment)
	if want := "input\n" + folder + "/slurm.conf\nhttp://127.0.0.1 me\nn2\n"; status != 5 || strings.ReplaceAll(stdout.String(), "n2 \n", "n2\n") != want {
		t.Errorf("status %d, got %q, want %q: %s", status, &stdout, want, &stderr)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// Without a command it says what to type, and ends with Ctrl-C.
func TestSlurmEmulateWaits(t *testing.T) {
	emulatetest.Need(t, nil)
	reader, writer := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	go func() {
		defer writer.Close()
		status <- run([]string{"slurm", "emulate", "--nodes", "2"}, strings.NewReader(""), writer, &stderr, noEnvironment)
	}()
	var script strings.Builder
	folder := ""
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		script.WriteString(lines.Text() + "\n")
		if logs, ok := strings.CutPrefix(lines.Text(), "# logs: "); ok {
			folder = filepath.Dir(logs)
			break
		}
	}
	go io.Copy(io.Discard, reader)
	if folder == "" {
		t.Fatalf("status %d: %s", <-status, &stderr)
	}
	if out := shell(t, script.String()+"srun -N2 printenv SLURM_CLUSTER_NAME"); out != "muster\nmuster\n" {
		t.Errorf("what is printed leads to %q", out)
	}
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	if got := <-status; got != cli.ExitDone {
		t.Errorf("status %d: %s", got, &stderr)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func shell(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
	return string(out)
}

// A machine without Slurm's commands is told so.
func TestSlurmJobWithoutSlurm(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var stdout, stderr bytes.Buffer
	status := run([]string{"slurm", "job", "17"}, strings.NewReader(""), &stdout, &stderr, noEnvironment)
	if want := "muster slurm job: squeue is not in PATH: run this on a machine that has the commands of the Slurm\n"; status != cli.ExitFailed || stderr.String() != want {
		t.Errorf("status %d: %q", status, &stderr)
	}
}

// A weight of 0 is no weight, and not the user's own.
func TestRunRefusesWeightZero(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run([]string{"run", "--weight", "0", "--", "true"}, strings.NewReader(""), &stdout, &stderr, noEnvironment)
	if status != cli.ExitUsage || !strings.Contains(stderr.String(), "--weight 0: give a number from 1 to 1000") {
		t.Errorf("status %d: %q", status, &stderr)
	}
}
