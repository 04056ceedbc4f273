package gremm

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"muster/exp"
	"muster/internal/need"
)

var from = flag.String("from", "", "write testdata/claims.json anew, of this result of muster reproduce gremm --json")

// recorded are the statements of the paper with the numbers that decide them, of
//
//	muster reproduce gremm --figure 2,3,4,5,6,7,8,9 --span 1000s --json >claims.json
//	go test ./exp/gremm -run TestRecordedVerdicts -from claims.json
const recorded = "testdata/claims.json"

func readRecord(t *testing.T) []exp.Row {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var rows []exp.Row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func writeRecord(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r exp.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	var claims []exp.Row
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Metric, "claim_") {
			claims = append(claims, row)
		}
	}
	if text, err = json.MarshalIndent(claims, "", " "); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// verdictIn takes apart what a row notes of a statement.
func verdictIn(row exp.Row) (says, verdict string) {
	text := strings.TrimPrefix(row.Note, "the paper: ")
	i := strings.LastIndex(text, ": ")
	return text[:i], text[i+2:]
}

// What recorded runs say of the paper's statements is what docs/papers.md says, and nothing else.
func TestRecordedVerdicts(t *testing.T) {
	if *from != "" {
		writeRecord(t, *from)
	}
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## GREMM")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := readRecord(t)
	for _, row := range rows {
		says, verdict := verdictIn(row)
		figure := strings.TrimPrefix(strings.Split(row.Part, ":")[0], "Fig. ")
		line := fmt.Sprintf("| %s | %s | %s %s | %s |\n", figure, says, cell(row, 1), row.Unit, verdict)
		if !strings.Contains(section, line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
	}
	got := 0
	for _, v := range []exp.Verdict{exp.Refuted, exp.Direction, exp.Confirmed} {
		got += strings.Count(section, " | "+v.String()+" |\n")
	}
	if got != len(rows) {
		t.Errorf("docs/papers.md has %d verdicts, and there are %d statements", got, len(rows))
	}
}

// agrees says that short runs do not contradict the recorded verdicts: none is the opposite, but for numbers
// that differ by less than a point or per cent, which is chance.
func (l *lab) agrees(t *testing.T, tell func(*lab, *shown)) {
	t.Helper()
	record := map[string]exp.Row{}
	for _, row := range readRecord(t) {
		record[row.Metric] = row
	}
	var s shown
	tell(l, &s)
	if len(s.claims) == 0 {
		t.Error("nothing is said of the paper's statements")
	}
	opposite := map[exp.Verdict]string{exp.Confirmed: exp.Refuted.String(), exp.Refuted: exp.Confirmed.String()}
	for _, c := range s.claims {
		was, known := record[c.row.Metric]
		if !known {
			t.Errorf("%s is not in the record", c.row.Metric)
			continue
		}
		if _, verdict := verdictIn(was); verdict == opposite[c.verdict] && math.Abs(c.row.Ours-was.Ours) > 1 {
			t.Errorf("%s is %s (%s), recorded %s (%s)", c.row.Metric, c.verdict, cell(c.row, 2), verdict, cell(was, 2))
		}
	}
}

// claims runs scenarios once and for a short time; what is asserted of them holds by far, with any seed.
func claims(t *testing.T, wanted func(*lab) []scenario) *lab {
	t.Helper()
	return claimsOf(t, need.Rounds(1, 3), need.Rounds(200, 300), wanted)
}

func claimsOf(t *testing.T, runs, seconds int, wanted func(*lab) []scenario) *lab {
	t.Helper()
	o := exp.Options{Seed: 1, Runs: runs, Workers: 2, Flags: map[string]string{"span": fmt.Sprintf("%ds", seconds)}}
	if testing.Short() {
		o.Runs, o.Flags["span"] = 1, "150s"
	}
	l, err := newLab(o)
	if err != nil {
		t.Fatal(err)
	}
	l.Want(wanted(l)...)
	if missing, err := l.Simulate(t.Context()); err != nil || missing != nil {
		t.Fatalf("%v, missing %v", err, missing)
	}
	return l
}

// more is a mean difference, over the same seeds.
func (l *lab) more(a, b scenario, m measured) float64 { return exp.Mean(l.gains(a, b, m)) }

func (l *lab) mean(s scenario, m measured) float64 { return exp.Mean(exp.Values(l.Found[s], m.of)) }

// Section 5.4, Figs. 2 and 3: where use is most uneven (W3, W4) the adaptive policies improve it on GbE, and the wait of processes; GR does
// not. On W1, where all GPUs are overloaded, all of them lose. Some of these differences are small, and one run
// may have them the other way round.
func TestMixedWorkloads(t *testing.T) {
	l := claimsOf(t, 3, 300, func(l *lab) (list []scenario) {
		for _, w := range mixes {
			for _, p := range ofPaper {
				list = append(list, l.plain(w, p.mapper))
			}
		}
		return list
	})
	l.agrees(t, tellMix)
	l.agrees(t, tellKernels)
	for _, p := range dynamic {
		if got := l.more(l.plain("W1", p.mapper), l.plain("W1", static.mapper), utilisation); got > -1 {
			t.Errorf("%s on W1: %.1f points more than ST", p.name, got)
		}
	}
	for _, w := range unequal {
		st := l.plain(w, static.mapper)
		for _, p := range adaptive {
			if got := l.more(l.plain(w, p.mapper), st, utilisation); got < 2 {
				t.Errorf("%s on %s: %.1f points more than ST", p.name, w, got)
			}
			if got := l.more(l.plain(w, p.mapper), st, waitingOfProcess); got >= 0 {
				t.Errorf("%s on %s: processes wait %.2f s longer than under ST", p.name, w, got)
			}
		}
		if got := l.more(l.plain(w, reserving.mapper), st, utilisation); got > 0 {
			t.Errorf("GR on %s: %.1f points more than ST", w, got)
		}
	}
	// ST's GPUs with four processes each are closed queues: what theory says of them.
	for w, want := range map[string]float64{"W1": 99.96, "W5": 79.4} {
		if got := l.mean(l.plain(w, static.mapper), utilisation); math.Abs(got-want) > 1 {
			t.Errorf("%s under ST: %.2f %%, in theory %v %%", w, got, want)
		}
	}
	// The text on Fig. 3, in 750 s; and client L finishes less if others use its GPUs.
	for client, want := range paperKernels {
		if got := l.mean(l.plain("W3", static.mapper), finished(client, spanOfCountedKernels.Seconds())); math.Abs(got/want-1) > 0.06 {
			t.Errorf("client %s finishes %.0f kernels in 750 s, in the paper about %.0f", client, got, want)
		}
	}
	for _, p := range dynamic {
		if got := l.more(l.plain("W3", p.mapper), l.plain("W3", static.mapper), finished(light, 1)); got >= 0 {
			t.Errorf("%s: client L finishes %.1f kernels a second more", p.name, got)
		}
	}
}

// Section 5.5, Fig. 4: of the static splits that in halves is the best, and below the
// adaptive policies; GR balances. The paper's 92.5 % is what data sent ahead, or a network that costs next
// to nothing, give.
func TestSplits(t *testing.T) {
	l := claims(t, func(l *lab) (list []scenario) {
		for _, p := range append(ofPaper[:len(ofPaper):len(ofPaper)], splits...) {
			list = append(list, l.plain("W4", p.mapper), on(networks[1], l.plain("W4", p.mapper)), l.sent("W4", p.mapper, true))
		}
		return list
	})
	l.agrees(t, tellBalance)
	half := l.plain("W4", splits[1].mapper)
	for _, p := range []policy{splits[0], splits[2]} {
		if got := l.more(half, l.plain("W4", p.mapper), utilisation); got <= 0 {
			t.Errorf("%s is better than 1/2 by %.1f points", p.name, -got)
		}
	}
	for _, p := range adaptive {
		if got := l.more(l.plain("W4", p.mapper), half, utilisation); got <= 0 {
			t.Errorf("%s is %.1f points above the split 1/2", p.name, got)
		}
	}
	for _, s := range []scenario{on(networks[1], half), l.sent("W4", half.mapper, true)} {
		if got := l.mean(s, utilisation); math.Abs(got-paperSplit) > 1.5 {
			t.Errorf("%v: %.1f %%, in the paper %v %%", s, got, paperSplit)
		}
	}
	gr := l.plain("W4", reserving.mapper)
	if h, lt := l.mean(gr, onDevicesOf(heavy)), l.mean(gr, onDevicesOf(light)); math.Abs(h-lt) > 2 {
		t.Errorf("GR: %.1f %% on H's nodes, %.1f %% on L's", h, lt)
	}
}

// Data that are sent before a call joins its queue shorten the waits of the adaptive policies, but not below
// those of ST on W3, as the paper has it. GR sends nothing ahead.
func TestDataSentAhead(t *testing.T) {
	l := claims(t, func(l *lab) []scenario {
		w3, w4 := l.sending("W3"), l.sending("W4")
		return append(w3.scenarios(), w4.scenarios()...)
	})
	for _, w := range unequal {
		for _, p := range adaptive {
			ahead, turn := l.sent(w, p.mapper, true), l.sent(w, p.mapper, false)
			if got := exp.Mean(l.relative(ahead, turn, waiting)); got >= 0 {
				t.Errorf("%s on %s: the wait changes by %.1f %%", p.name, w, got)
			}
			if got := l.more(ahead, turn, utilisation); got <= 0 {
				t.Errorf("%s on %s: %.1f points more", p.name, w, got)
			}
		}
		if got := l.more(l.sent(w, reserving.mapper, true), l.sent(w, reserving.mapper, false), waiting); got != 0 {
			t.Errorf("GR on %s: the wait changes by %v s", w, got)
		}
	}
	for _, p := range adaptive {
		if got := exp.Mean(l.relative(l.sent("W3", p.mapper, true), l.sent("W3", static.mapper, true), waiting)); got < 5 {
			t.Errorf("%s on W3: the wait is %.1f %% above that of ST", p.name, got)
		}
	}
}

// Section 5.6, Fig. 5: up to 26 % in the lighter group, which is points, and far less in the heavier.
func TestIntensity(t *testing.T) {
	l := claims(t, func(l *lab) (list []scenario) {
		for _, w := range append(lighter[:len(lighter):len(lighter)], heavier...) {
			for _, p := range ofPaper {
				list = append(list, l.plain(w, p.mapper))
			}
		}
		return list
	})
	l.agrees(t, tellIntensity)
	most, _ := l.mostGained(lighter)
	less, _ := l.mostGained(heavier)
	if got := exp.Mean(most); got < 20 || got > 32 {
		t.Errorf("lighter: up to %.1f points", got)
	}
	if got := exp.Mean(less); got > 5 {
		t.Errorf("heavier: up to %.1f points", got)
	}
}

// Section 5.7, Fig. 6: GR falls as there are more data to move; AG and AR fall back to ST.
func TestDataAgainstComputation(t *testing.T) {
	l := claims(t, func(l *lab) (list []scenario) {
		for _, ratio := range ratios {
			for _, p := range ofPaper {
				list = append(list, l.moving(ratio, p.mapper, networks[0]))
			}
		}
		return list
	})
	l.agrees(t, networkPart.tell)
	last := math.Inf(1)
	for _, ratio := range ratios {
		got := l.mean(l.moving(ratio, reserving.mapper, networks[0]), utilisation)
		if got >= last {
			t.Errorf("GR at %v KB/ms: %.1f %%, with less data %.1f %%", ratio, got, last)
		}
		last = got
	}
	extreme := ratios[len(ratios)-1]
	for _, p := range adaptive {
		if got := l.more(l.moving(extreme, p.mapper, networks[0]), l.moving(extreme, static.mapper, networks[0]), utilisation); got < -2 {
			t.Errorf("%s at %v KB/ms: %.1f points more than ST", p.name, extreme, got)
		}
	}
}

// Section 5.8, Fig. 8: more GPUs, more margin. AG loses on more nodes when what they know is old, AR does not.
func TestScalability(t *testing.T) {
	const age = 100 * time.Millisecond
	first, last := nodeCounts[0], nodeCounts[len(nodeCounts)-1]
	l := claims(t, func(l *lab) (list []scenario) {
		for _, p := range []policy{static, greedy, randomised} {
			list = append(list, l.withGPUs(2, p.mapper), l.withGPUs(4, p.mapper),
				l.large("W4", p.mapper, first), l.large("W4", p.mapper, last), old(age, l.large("W4", p.mapper, first)), old(age, l.large("W4", p.mapper, last)))
		}
		return list
	})
	lost := map[policy]float64{}
	for _, p := range adaptive {
		if less, more := l.more(l.withGPUs(2, p.mapper), l.withGPUs(2, static.mapper), utilisation), l.more(l.withGPUs(4, p.mapper), l.withGPUs(4, static.mapper), utilisation); more <= less {
			t.Errorf("%s: margin of %.1f points with 2 GPUs, %.1f with 4", p.name, less, more)
		}
		for _, n := range []int{first, last} {
			margin := l.more(old(age, l.large("W4", p.mapper, n)), l.large("W4", static.mapper, n), utilisation)
			lost[p] = margin - lost[p]
		}
	}
	if lost[greedy] > -1 || lost[randomised] < -1 {
		t.Errorf("from %d to %d nodes, margins grow by %.1f points (AG) and %.1f (AR)", first, last, lost[greedy], lost[randomised])
	}
}

// Section 5.9, Fig. 9: AR is more sensitive to false negatives than to false positives.
func TestFalseNegativesHurtMore(t *testing.T) {
	l := claims(t, func(l *lab) (list []scenario) {
		for _, w := range mixes {
			list = append(list, l.wrong(w, 0.5, 0), l.wrong(w, 0, 0.5), l.wrong(w, 1, 0), l.wrong(w, 0, 1))
		}
		return list
	})
	l.agrees(t, tellStale)
	for _, w := range mixes {
		for _, ratio := range []float64{0.5, 1} {
			if got := l.more(l.wrong(w, ratio, 0), l.wrong(w, 0, ratio), utilisation); got <= 0 {
				t.Errorf("%s, ratio %v: false positives cost %.1f points more", w, ratio, -got)
			}
		}
	}
}

// What the authors left for the future gains what it is for.
func TestBeyond(t *testing.T) {
	const age = time.Second
	l := claims(t, func(l *lab) (list []scenario) {
		for _, p := range []policy{static, greedy, randomised, probing, few[0], {"", "ag:estimate=kernel"}, {"", "ag:estimate=bytes"}} {
			list = append(list, l.plain("W4", p.mapper), old(age, l.plain("W4", p.mapper)), l.large("W4", p.mapper, 96), l.plain("W3", p.mapper))
		}
		for _, reuse := range reuses {
			list = append(list, l.reusing(reuse, 100, "ag"), l.reusing(reuse, 100, "ag:locality=yes"))
		}
		for _, p := range grouped {
			list = append(list, l.large("W4", p.mapper, 96))
		}
		for _, w := range unequal {
			list = append(list, l.protecting(w, greedy.mapper, light), l.protecting(w, randomised.mapper, light))
		}
		return list
	})
	gains := func(what string, a, b scenario, least float64) {
		t.Helper()
		if got := l.more(a, b, utilisation); got < least {
			t.Errorf("%s: %.2f points more, want %v", what, got, least)
		}
	}
	gains("locality, nine tenths stay", l.reusing(0.9, 100, "ag:locality=yes"), l.reusing(0.9, 100, "ag"), 2)
	gains("groups", l.large("W4", grouped[0].mapper, 96), l.large("W4", greedy.mapper, 96), -0.5)
	gains("mixed groups, not neighbours", l.large("W4", grouped[0].mapper, 96), l.large("W4", grouped[1].mapper, 96), 1)
	gains("estimates by kernel", l.plain("W4", "ag:estimate=kernel"), l.plain("W4", "ag"), 0.3)
	gains("estimates by data", l.plain("W4", "ag:estimate=bytes"), l.plain("W4", "ag"), 0.3)
	gains("two choices of an old status", old(age, l.plain("W4", few[0].mapper)), old(age, l.plain("W4", greedy.mapper)), 3)
	gains("probe", l.plain("W4", probing.mapper), l.plain("W4", greedy.mapper), 0.5)
	gains("probe on 96 nodes", l.large("W4", probing.mapper, 96), l.large("W4", greedy.mapper, 96), 0.5)
	for _, w := range unequal {
		for _, p := range adaptive {
			if got := l.more(l.protecting(w, p.mapper, light), l.plain(w, static.mapper), finished(light, 1)); got < 0 {
				t.Errorf("%s on %s: client L is critical and finishes %.2f kernels a second less than under ST", p.name, w, -got)
			}
		}
	}
}
