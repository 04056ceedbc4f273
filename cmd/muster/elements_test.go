package main

import (
	"context"
	"testing"
)

func TestNodesOfAJob(t *testing.T) {
	for _, c := range []struct {
		text        string
		environment map[string]string
		want        string
	}{
		{"a, b:1", nil, "a,b:1"},
		{"a,,b", nil, ""},
		{"job", nil, ""},
		{"job", map[string]string{"SLURM_JOB_NODELIST": "n[1-3],m"}, "n1,n2,n3,m"},
		{"job", map[string]string{"SLURM_JOB_NODELIST": "n["}, ""},
		{"job", map[string]string{"SLURM_JOB_NODELIST": "n[1-3]", "MUSTER_GATEWAYS": "n1=h:7, n3=[::1]:8,m=x:1"}, "h:7,n2,[::1]:8"},
		{"job", map[string]string{"SLURM_JOB_NODELIST": "n1", "MUSTER_GATEWAYS": "n1=h"}, ""},
		{"job", map[string]string{"MUSTER_JOB_NODELIST": "n1", "MUSTER_JOB_ID": "7", "SLURM_JOB_NODELIST": "n2"}, "n1"}, // no head need be asked
	} {
		got, err := parseNodes(context.Background(), c.text, func(name string) string { return c.environment[name] })
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("--nodes %s with %v is %q, %v", c.text, c.environment, got, err)
		}
	}
}
