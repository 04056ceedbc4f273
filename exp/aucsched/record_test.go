package aucsched

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/exp"
)

var from = flag.String("from", "", "write testdata/recorded.json anew, of these results of muster reproduce aucsched --table N --json, with commas between")

// recorded are the numbers of whole tables, which take too long for a test: by table, how many instances
// there were, and the metrics of its rows and of what was worked out of them.
//
//	muster reproduce aucsched --table 5 --runs 7 --json >5.json
//	go test ./exp/aucsched -run TestRecord -from 5.json,6.json,7.json,8.json
const recorded = "testdata/recorded.json"

type recordedTable struct {
	Table     string             `json:"table"`
	Instances int                `json:"instances"`
	Metrics   map[string]float64 `json:"metrics"`
}

func readRecord(t *testing.T) []recordedTable {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var list []recordedTable
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// writeRecord keeps what scripts may read of results: the rows of tables and of statements.
func writeRecord(t *testing.T, files []string) {
	t.Helper()
	var list []recordedTable
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r exp.Result
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		one := recordedTable{Metrics: map[string]float64{}}
		for _, row := range r.Rows {
			if rest, ok := strings.CutPrefix(row.Metric, "table"); ok {
				one.Table = rest[:1]
			} else if !strings.HasPrefix(row.Metric, "claim_") {
				continue
			}
			one.Metrics[row.Metric] = row.Ours
		}
		if _, err := fmt.Sscanf(r.Notes[0][strings.Index(r.Notes[0], "each of ")+len("each of "):], "%d", &one.Instances); err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pairsOfRecord are the rows of a table, and the paper's.
func pairsOfRecord(list []recordedTable) (ours, paper []pair) {
	for _, one := range list {
		p := &plan{tables: []string{one.Table}, machines: machines}
		lines := p.lines()
		for i := 0; i+1 < len(lines); i += 2 {
			a, s := &lines[i], &lines[i+1]
			x, y := one.numbersOf(a), one.numbersOf(s)
			theirs, _ := inPaper(a.table, a.version, a.method)
			slurms, _ := inPaper(s.table, s.version, s.method)
			ours = append(ours, pair{a.table, a.version, x, y})
			paper = append(paper, pair{a.table, a.version, theirs.numbers, slurms.numbers})
		}
	}
	return ours, paper
}

// numbersOf are the columns of a line. For favour there is only the mean over the table.
func (r *recordedTable) numbersOf(ln *line) numbers {
	get := func(metric string) float64 {
		return r.Metrics["table"+ln.table+"_"+ln.version+"_"+shortMethod(ln.method)+"_"+metric]
	}
	n := numbers{
		utilization: get("utilization_pct"), runtime: get("runtime_h"), wait: get("wait_h"),
		fragmentation: get("fragmentation"), slowdown: get("slowdown"), spread: get("spread"),
	}
	n.favour = r.Metrics["claim_slurm_favours_smaller"]
	if ln.method == aucschedMethod {
		n.favour = r.Metrics["claim_auction_favours_larger"]
	}
	return n
}

// What the recorded runs say of the paper's statements is what docs/papers.md says, and nothing else.
func TestRecordedVerdicts(t *testing.T) {
	if *from != "" {
		writeRecord(t, strings.Split(*from, ","))
	}
	docs, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## AUCSCHED")
	section, _, _ = strings.Cut(section, "\n## ")
	list := judged(pairsOfRecord(readRecord(t)))
	if len(list) != len(statements()) {
		t.Errorf("the record tells of %d of %d statements", len(list), len(statements()))
	}
	for _, v := range list {
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", v.says, v.paperText(), v.text(v.ours), v.verdict)
		if !strings.Contains(section, line) {
			t.Errorf("docs/papers.md does not have the line\n%s", line)
		}
		if v.verdict != exp.Confirmed && v.cause == "" {
			t.Errorf("%s is %s, and no cause is said", v.id, v.verdict)
		}
	}
	got := 0
	for _, v := range []exp.Verdict{exp.Refuted, exp.Direction, exp.Confirmed} {
		got += strings.Count(section, " | "+v.String()+" |\n")
	}
	if got != len(list) {
		t.Errorf("docs/papers.md has %d verdicts, and there are %d statements", got, len(list))
	}
	for id := range causes {
		if !slices.ContainsFunc(list, func(v verdictOf) bool { return v.id == id && v.verdict != exp.Confirmed }) {
			t.Errorf("a cause is said of %s, which needs none", id)
		}
	}
}

// The record is up to date: one of its rows, run again with all its instances, gives the same
// numbers.
func TestRecordIsOfToday(t *testing.T) {
	if testing.Short() {
		t.Skip("makes runs of four hours again")
	}
	record := readRecord(t)[0]
	p, _, err := newPlan(exp.Options{Seed: 1, Runs: record.Instances, Workers: 2, Flags: map[string]string{"table": "5"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Want(bySlurm.on("S", "V.2"), byAuction.on("S", "V.2"))
	if missing, err := p.Simulate(t.Context()); err != nil || missing != nil {
		t.Fatal(err, missing)
	}
	for _, ln := range p.lines() {
		found := p.Found[ln.scenario]
		if found == nil {
			continue
		}
		want, got := record.numbersOf(&ln), meanOf(found)
		for _, c := range columns {
			if math.Abs(c.of(&got)-c.of(&want)) > 1e-9 {
				t.Errorf("%s %s, %s: %v, recorded %v", ln.version, ln.method, c.metric, c.of(&got), c.of(&want))
			}
		}
	}
}
