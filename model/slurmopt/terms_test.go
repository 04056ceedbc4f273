package slurmopt

import (
	"reflect"
	"strings"
	"testing"

	"muster/model"
)

func TestTerms(t *testing.T) {
	reach := func(r model.Reach) *model.Reach { return &r }
	bytes := func(n uint64) *uint64 { return &n }
	for line, want := range map[string]model.Terms{
		"--gres=gpu:1":                                         {},
		"--gres=gpu:1 --gpu-reach=device":                      {Reach: reach(model.ReachDevice)},
		"--gres=rgpu:4 --gpu-reach node":                       {Reach: reach(model.ReachNode)},
		"-G 1 --gpu-reach=node --gpu-reach=cluster":            {Reach: reach(model.ReachCluster)},
		"--gres=gpu:1:4G --gpu-beyond=8G":                      {Beyond: bytes(8 << 30)},
		"--gres=gpu:1:4G --gpu-beyond=512":                     {Beyond: bytes(512 << 20)},
		"--gres=gpu:1:4G --gpu-beyond=0":                       {Beyond: bytes(0)},
		"--gres=rgpu:2:1G --gpu-beyond=all":                    {Beyond: bytes(model.AllBeyond)},
		"--gpu-class=latency --gpu-weight=3 --gres=gpu:1":      {Turns: model.Turns{Class: model.ClassLatency, Weight: 3}},
		"--gres=gpu:1 --mapping=ag":                            {Mapping: "ag"},
		"--gres=gpu:1 --or='-n 4' --gpu-class=batch":           {Turns: model.Turns{Class: model.ClassBatch}},
		"-n 4 --or='--gres=rgpu:1:1G' --gpu-beyond=1G":         {Beyond: bytes(1 << 30)}, // one of its requests has shares
		"--gres=gpu:2 --or='--gres=gpu:1:1G' --gpu-beyond=all": {Beyond: bytes(model.AllBeyond)},
	} {
		for _, read := range []func(string) (*Options, error){parseSubmit, ParseLine} { // simulated jobs have them, too
			o, err := read(line)
			if err != nil || !reflect.DeepEqual(o.GPU, want) || len(o.Notes) > 0 {
				t.Errorf("%s: %v\ngot  %+v\nwant %+v", line, err, o, want)
			}
		}
		o, _ := parseSubmit(line)
		checkSubmitFormat(t, o)
		if p := o.Public(); !reflect.DeepEqual(p.GPU, want) {
			t.Errorf("%s: others see %+v", line, p.GPU)
		}
	}
}

func TestTermsThatAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"--gres=gpu:1 --gpu-reach=nodes":                     `--gpu-reach: "nodes" is no reach: write device, node, cluster; did you mean "node"?`,
		"--gres=gpu:1 --gpu-reach=''":                        `--gpu-reach: "" is no reach: write device, node, cluster`,
		"--gres=gpu:1:1G --gpu-beyond=much":                  `--gpu-beyond: "much" is no size: write 4G, 512M, or plain megabytes`,
		"--gres=gpu:1 --gpu-beyond=1G":                       "--gpu-beyond: whole GPUs have no memory beyond them: ask for shares with --gres=gpu:1:4G, or leave it out",
		"--gres=rgpu:1:1G --rcuda-mode=excl --gpu-beyond=1G": "--gpu-beyond: whole GPUs have no memory beyond them: ask for shares with --gres=gpu:1:4G, or leave it out",
		"--gres=gpu:1 --gpu-class=any":                       `--gpu-class: there is no class "any": use latency or batch`,
		"--gres=gpu:1 --gpu-class=''":                        "--gpu-class: it is empty: write latency or batch",
		"--gres=gpu:1 --gpu-weight=0":                        `--gpu-weight: "0" is no weight: write 1 to 1000`,
		"--gres=gpu:1 --gpu-weight=1001":                     `--gpu-weight: "1001" is no weight: write 1 to 1000`,
		"--gres=gpu:1 --mapping=":                            "--mapping: it is empty: name a mapper, or leave it out",
		"-n 2 --gpu-reach=node":                              "--gpu-reach: the job asks for no GPUs: ask for some with --gres=gpu:1 or --gres=rgpu:1, or leave it out",
		"-n 2 --mapping=ag":                                  "--mapping: the job asks for no GPUs: ask for some with --gres=gpu:1 or --gres=rgpu:1, or leave it out",
		"--or='--gres=gpu:1 --gpu-reach=node'":               "--or: column 14: --gpu-reach says nothing about a request: inside --or give -N, -n, -c, --gres, -t and their like",
	} {
		if _, err := parseSubmit(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", line, err, want)
		}
	}
}

// TestTermsOfScripts: the script may ask for the GPUs of which the command line says more.
func TestTermsOfScripts(t *testing.T) {
	argv := []string{Submit, "--gpu-reach=cluster", "job.sh"}
	if _, words, err := ParseCommand(argv); err != nil || !reflect.DeepEqual(words, []string{"--gpu-reach=cluster"}) {
		t.Errorf("%q, %v", words, err)
	}
	o, err := ParseScript("#!/bin/sh\n#SBATCH --gres=gpu:1:4G\n#MUSTER --gpu-beyond=all --gpu-reach=node\n", argv)
	if err != nil || *o.GPU.Reach != model.ReachCluster || *o.GPU.Beyond != model.AllBeyond {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := ParseScript("#!/bin/sh\n", argv); err == nil || !strings.Contains(err.Error(), "the job asks for no GPUs") {
		t.Error(err)
	}
	if _, err := ParseScript("#!/bin/sh\n#MUSTER --gpu-weight=2\n", []string{Submit, "job.sh"}); err == nil || !strings.HasPrefix(err.Error(), "line 2, column 9: --gpu-weight: the job asks for no GPUs") {
		t.Error(err)
	}
	if _, _, err := ParseCommand([]string{Submit, "--mapping=ag", "--", "prog"}); err == nil || !strings.Contains(err.Error(), "the job asks for no GPUs") {
		t.Error(err)
	}
}
