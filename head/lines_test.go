package head_test

import (
	"fmt"
	"testing"

	"muster/head"
)

// A user may name accounts, classes and numbers of licences as he likes: these make no lines of jobs, all of which
// are looked at whenever a job ends. What an administrator limits does, also from one day to the next.
func TestLines(t *testing.T) {
	l := newLive(t, "fcfs")
	cfg := head.Config{Cluster: "test", Limits: head.Limits{Running: 1}, Licenses: map[string]int{"x": 100}}
	l.core.Configure(cfg)
	const jobs = 20
	for i := range jobs {
		l.submit(began, "alice", "-n1", fmt.Sprint("-Aa", i), fmt.Sprint("-qq", i))
		l.submit(began, "alice", "-n1", fmt.Sprint("-Lx:", 1+i))
	}
	if n := l.core.Lines(); n != 2 {
		t.Errorf("%d lines", n)
	}
	cfg.Accounts = map[string]head.Limits{"a5": {Running: 3}, "a6": {Running: 3}}
	cfg.QOS = map[string]head.QOSLimits{"q7": {PerUser: head.Limits{Running: 3}}}
	l.core.Configure(cfg)
	if n := l.core.Lines(); n != 5 {
		t.Errorf("%d lines", n)
	}
	cfg.Limits, cfg.Accounts, cfg.QOS = head.Limits{}, nil, nil
	l.core.Configure(cfg)
	if n := l.core.Lines(); n != 1 { // 1 + ... + 13 licences are 91
		t.Errorf("%d lines", n)
	}
}
