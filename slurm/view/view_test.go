package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/slurm"
)

// squeue puts a squeue into PATH that answers for each field as the function of a shell says.
func squeue(t *testing.T, fields string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$7\" in\n" + fields + "esac\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func TestJobThatMusterPlaces(t *testing.T) {
	squeue(t, `JobID:*) echo "17   " ;;
Name:*) echo "night | run" ;;
UserName:*) echo alice ;;
State:*) echo RUNNING ;;
Reason:*) echo None ;;
NodeList:*) echo "n[5,7]" ;;
Comment:*) echo "(null)" ;;
admin_comment:*) echo "muster:req rgpu=2 mem=4096M mode=shar reach=cluster beyond=1024M map=ag or=-n4%20-c2 muster:got 1 17 nodes=n5,n7 rgpu=n1:0,n3:1 grant=/run/a why=it is first" ;;
`)
	j, err := AskJob(t.Context(), "17")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(j)
	if want := `{"id":"17","name":"night | run","user":"alice","state":"RUNNING","reason":"None","nodes":"n[5,7]","muster":true,"why":"it is first",` +
		`"gpus":2,"memory_bytes":4294967296,"mode":"shar","borrowed":["n1:0","n3:1"],"terms":["--gpu-reach=cluster","--gpu-beyond=1G","--mapping=ag"],"alternatives":["-n4 -c2"]}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var b bytes.Buffer
	if err := j.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"it is first", "2 GPUs anywhere, 4096 MB of each --gpu-reach=cluster --gpu-beyond=1G --mapping=ag", "1: -n4 -c2", "0: n1:0", "RUNNING (None)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A job of Slurm's own is told apart, and one that Slurm has forgotten is no empty job.
func TestOtherJobs(t *testing.T) {
	squeue(t, "JobID:*) echo 18 ;;\nState:*) echo PENDING ;;\nReason:*) echo Resources ;;\n*) echo '(null)' ;;\n")
	j, err := AskJob(t.Context(), "18")
	var b bytes.Buffer
	if err != nil || j.Muster || j.WriteText(&b) != nil || !strings.Contains(b.String(), "it is Slurm's own") {
		t.Errorf("%+v, %v: %s", j, err, b.String())
	}
	for _, fields := range []string{"*) echo ;;\n", "*) echo 'slurm_load_jobs error: Invalid job id specified'; exit 1 ;;\n"} {
		squeue(t, fields)
		if _, err := AskJob(t.Context(), "19"); err == nil || !strings.Contains(err.Error(), "Slurm knows no job 19") {
			t.Errorf("%s: %v", fields, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := AskJob(t.Context(), "19"); err == nil || !strings.Contains(err.Error(), "squeue is not in PATH") {
		t.Error(err)
	}
}

// What is shown of a driver that cannot read Slurm begins with that.
func TestStatusSaysThatSlurmIsAway(t *testing.T) {
	var out bytes.Buffer
	if err := WriteStatus(&out, slurm.Status{Problem: "slurmrestd is away", Nodes: 8}, 0); err != nil {
		t.Fatal(err)
	}
	if want := "Slurm does not answer the driver: slurmrestd is away\nStart slurmctld and slurmrestd; jobs that run go on meanwhile, and nothing new is placed. As it was when Slurm last answered:\n0 of 8 nodes up;"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("it says %q", &out)
	}
}

func TestInWords(t *testing.T) {
	for want, got := range map[string]string{
		"Muster does not place jobs: no socket. muster slurm doctor says what else is missing.": InWords(slurm.Status{}, errors.New("no socket")),
		"Muster's driver runs, and Slurm does not answer it: timed out. " + away:                InWords(slurm.Status{Problem: "timed out"}, nil),
		"Muster's driver runs: " + summary(slurm.Status{Nodes: 3, Up: 2, Waiting: 1}) + ".":     InWords(slurm.Status{Nodes: 3, Up: 2, Waiting: 1}, nil),
	} {
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
