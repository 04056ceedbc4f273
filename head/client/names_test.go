package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/internal/misuse"
)

func TestNodesOfAJob(t *testing.T) {
	noHead := func() (*Head, error) { return nil, errors.New("there is no head") }
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
		{"job", map[string]string{"MUSTER_JOB_NODELIST": "n[1-2]", "MUSTER_JOB_ID": "7"}, ""},
	} {
		got, err := ProgramNodes(context.Background(), c.text, func(name string) string { return c.environment[name] }, noHead)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("--nodes %s with %v is %q, %v", c.text, c.environment, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		read  func([]string) ([]string, error)
		lists []string
		want  []string // nil for a mistake
	}{
		{NodeNames, []string{"n[1-2],m", "k"}, []string{"n1", "n2", "m", "k"}},
		{NodeNames, []string{"n["}, nil},
		{JobIDs, []string{"17", "18_[1-3]"}, []string{"17", "18_1", "18_2", "18_3"}},
		{JobIDs, []string{"0"}, nil},
		{JobIDs, []string{"17_"}, nil},
		{JobIDs, []string{"17["}, nil},
		{JobIDs, []string{"j17"}, nil},
	} {
		got, err := c.read(c.lists)
		if !slices.Equal(got, c.want) || misuse.Is(err) != (c.want == nil) {
			t.Errorf("%q: %q, %v; want %q", c.lists, got, err, c.want)
		}
	}
}

func TestJobID(t *testing.T) {
	if id, err := JobID("17_3"); id != "17_3" || err != nil {
		t.Errorf("%s, %v", id, err)
	}
	for _, name := range []string{"17,18", "17_[1-2]", "x", ""} {
		if id, err := JobID(name); !misuse.Is(err) {
			t.Errorf("%q is %q, %v", name, id, err)
		}
	}
}

func TestJobRefs(t *testing.T) {
	for _, c := range []struct {
		lists []string
		want  string // empty: an error
	}{
		{[]string{"17"}, "17"},
		{[]string{"17,18_3", "19"}, "17 18_3 19"},
		{[]string{"17_[1-4],18_[0-9:3,12]"}, "17_[1-4] 18_[0-9:3,12]"},
		{[]string{"[17-19]"}, "17 18 19"},
		{[]string{"17_[1-"}, ""},
		{[]string{"17_[x]"}, ""},
		{[]string{"17_[4-1]"}, ""},
		{[]string{"17_[1-4:0]"}, ""},
		{[]string{"17_[1,99999999]"}, ""},
		{[]string{"x"}, ""},
	} {
		got, err := JobRefs(c.lists)
		if (err != nil) != (c.want == "") || strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, %v", c.lists, got, err)
		}
	}
}
