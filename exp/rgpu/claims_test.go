package rgpu

import (
	"math"
	"slices"
	"strings"
	"testing"

	"muster/exp"
)

// claims runs scenarios with two orders of their jobs.
func claims(t *testing.T, wanted ...scenario) *lab {
	t.Helper()
	l, err := newLab(exp.Options{Seed: 1, Runs: 2, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	l.Want(wanted...)
	if missing, err := l.Simulate(t.Context()); err != nil || missing != nil {
		t.Fatalf("%v, missing %v", err, missing)
	}
	return l
}

func (l *lab) meanSeconds(s scenario) float64 { return exp.Mean(exp.Values(l.Found[s], seconds)) }

// Section IV.E: twelve MCUDA-MEME at once take about as long as one after the other.
func TestTwelveAtOnce(t *testing.T) {
	l := claims(t, twelve, twelveInTurn)
	if got := l.meanSeconds(twelve); got < paperTwelveAtOnce-2 || got > paperTwelveAtOnce+2 {
		t.Errorf("at once: %v s, want %v", got, paperTwelveAtOnce)
	}
	if got := l.meanSeconds(twelveInTurn); got != paperTwelveInTurn {
		t.Errorf("in turn: %v s, want %v", got, paperTwelveInTurn)
	}
}

// Fig. 2 left: with the options of Table III both modes behave alike, if MCUDA-MEME
// keeps GPUs as busy as twelve at once say.
func TestMaximumPerformanceIsAlike(t *testing.T) {
	native, remote := with(cuda, maxPerformance, 2), with(rcuda, maxPerformance, 2)
	l := claims(t, native, remote)
	if got := l.meanSeconds(native) / l.meanSeconds(remote); got < 0.85 || got > 1.25 {
		t.Errorf("rCUDA is %v times faster", got)
	}
}

// Figs. 2 right and 3: remote GPUs are more than twice as fast on 4 GPUs, and
// keep their throughput from 8 to 4, if MCUDA-MEME keeps GPUs busy a quarter of the time;
// local ones lose theirs.
func TestFewerGPUs(t *testing.T) {
	light := readings[2]
	all, few := light.as(with(rcuda, onEight, 2)), light.as(with(rcuda, onFour, 2))
	nativeAll, nativeFew := with(cuda, onEight, 2), with(cuda, onFour, 2)
	l := claims(t, all, few, nativeAll, nativeFew)
	if got := l.meanSeconds(nativeFew) / l.meanSeconds(few); got <= 2 {
		t.Errorf("on 4 GPUs rCUDA is %v times faster; the paper: more than 2", got)
	}
	if got := l.meanSeconds(all) / l.meanSeconds(few); got < 0.9 {
		t.Errorf("on 4 GPUs rCUDA keeps %v of its throughput; the paper: all", got)
	}
	if got := l.meanSeconds(nativeAll) / l.meanSeconds(nativeFew); got > 0.9 {
		t.Errorf("on 4 GPUs CUDA keeps %v of its throughput; the paper: it falls", got)
	}
}

// The paper's claims about twelve at once and about 4 GPUs cannot both be explained by GPUs alone:
// if MCUDA-MEME keeps four GPUs busy for 95 % of its time, no schedule on four is twice as fast as
// CUDA.
func TestBothClaimsCannotBeTrue(t *testing.T) {
	native, remote := with(cuda, onFour, 2), with(rcuda, onFour, 2)
	l := claims(t, native, remote)
	busy := float64(table2[2][2]) * paperTwelveAtOnce / onlyCount // seconds that each GPU computes for MCUDA-MEME alone
	if got := l.meanSeconds(remote); got < busy {
		t.Errorf("%v s, though the GPUs have %v s of work", got, busy)
	}
	if most := l.meanSeconds(native) / busy; most >= 2 {
		t.Errorf("a perfect schedule is %v times faster than CUDA", most)
	}
}

// GPUs that are decoupled but not shared help while there are enough for all that ask
// for several; jobs alone on their GPUs run as long as they do alone.
func TestExclusive(t *testing.T) {
	native, alone, few := with(cuda, onEight, 2), with(exclusive, onEight, 2), with(exclusive, onFour, 2)
	l := claims(t, native, alone, few)
	if before, after := l.meanSeconds(native), l.meanSeconds(alone); after >= before {
		t.Errorf("on 8 GPUs %v s, with CUDA %v s", after, before)
	}
	sum := 0.0
	for i, n := range table2[2] {
		sum += float64(n) * applications[i].seconds
	}
	for _, s := range []scenario{alone, few} {
		for _, o := range l.Found[s] {
			if want := sum / float64(table2Totals[2]); math.Abs(o.run-want) > 1e-6 {
				t.Errorf("%v: jobs run for %v s, alone for %v s", s, o.run, want)
			}
		}
	}
}

// The choice by everything pays for its waiting where there is nothing to choose, and the notes say so.
func TestWaitingCosts(t *testing.T) {
	if note := claims(t).waitingCosts(); note != "" {
		t.Errorf("not run, yet: %s", note)
	}
	l := claims(t, selecting("memory", twoSwitches, onFour, 2), selecting("all", twoSwitches, onFour, 2))
	if note := l.waitingCosts(); !strings.Contains(note, "longer until all is done") || !slices.Contains(l.notes(), note) {
		t.Errorf("the note: %q", note)
	}
}

// Beyond the paper: GPUs chosen by more than memory help where there is a choice.
func TestSelection(t *testing.T) {
	for _, c := range []struct{ how, cluster string }{
		{"intensity", likePaper}, {"all", likePaper}, {"speed", twoSpeeds}, {"all", twoSpeeds}, {"all", bothVaried},
	} {
		plain, better := selecting("memory", c.cluster, onEight, 2), selecting(c.how, c.cluster, onEight, 2)
		l := claims(t, plain, better)
		if before, after := l.meanSeconds(plain), l.meanSeconds(better); after >= 0.95*before {
			t.Errorf("%s on %s: %v s instead of %v s", c.how, clusterTitle(c.cluster), after, before)
		}
	}
}

// Submitting all jobs at once, which overflowed the authors' controller, causes no problem.
func TestBurst(t *testing.T) {
	for _, mode := range []string{cuda, rcuda} {
		burst, slow := inABurst(mode, 8)
		l := claims(t, burst, slow)
		if at, late := l.meanSeconds(burst), l.meanSeconds(slow); at > 1.1*late {
			t.Errorf("%s: %v s at once, %v s delayed", mode, at, late)
		}
	}
}

// The workloads are those of Table II in every mode.
func TestCounts(t *testing.T) {
	var wanted []scenario
	for _, h := range workloads {
		wanted = append(wanted, with(cuda, onFour, h), with(rcuda, maxPerformance, h))
	}
	l := claims(t, wanted...)
	for _, s := range wanted {
		for _, o := range l.Found[s] {
			for i, n := range o.counts {
				if n != table2[s.hours][i] {
					t.Errorf("%v: %d %s, want %d", s, n, applications[i].name, table2[s.hours][i])
				}
			}
		}
	}
}
