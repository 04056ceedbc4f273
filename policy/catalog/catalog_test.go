package catalog_test

import (
	"os"
	"strings"
	"testing"

	"muster/policy/catalog"
)

func TestEveryPolicyIsDocumentedAndCanBeMade(t *testing.T) {
	doc := ""
	for _, name := range []string{"policies", "slurm-policies", "auction", "packing", "mosaic", "mccs"} {
		text, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		doc += string(text)
	}
	seen := map[string]bool{}
	for _, e := range catalog.Entries {
		if seen[e.Name] {
			t.Errorf("%s is listed twice", e.Name)
		}
		seen[e.Name] = true
		if e.Summary == "" {
			t.Errorf("%s has no summary", e.Name)
		}
		if !strings.Contains(doc, "\n## "+e.Name+"\n") {
			t.Errorf("no page of docs/ has a section %q", e.Name)
		}
		if _, err := catalog.New(e.Name); err != nil {
			t.Error(err)
		}
		for _, o := range e.Options {
			if o.Summary == "" || !strings.Contains(doc, "`"+o.Name+"`") {
				t.Errorf("%s: setting %s is not explained", e.Name, o.Name)
			}
			if _, err := catalog.New(e.Name + ":" + o.Name + "=" + o.Default); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for spec, want := range map[string]string{
		"esay":                         `there is no policy "esay": did you mean "easy"?`,
		"quantum":                      `there is no policy "quantum": there are fcfs, sjf, first-fit, g-queue, r-queue, easy, conservative`,
		"easy:dept=3":                  `policy easy: "dept=3" is no setting of it: did you mean "depth"?`,
		"easy:speed=3":                 `policy easy: "speed=3" is no setting of it: it has depth=100, bf_window=0`,
		"auction:from=ipsched":         `policy auction: "from=ipsched" is no setting of it: did you mean "form"?`,
		"fgd:ties=random:decoupled=on": `policy fgd: ties at random are for GPUs in the job's nodes`,
		"fcfs:depth=3":                 `policy fcfs: "depth=3" is no setting of it: it has none`,
		"easy:depth=-1":                `policy easy: depth must be a whole number from 0 on, not "-1"`,
		"conservative:bf_window=1x":    "policy conservative: bf_window: ",
		"easy:depth=1:depth=2":         `policy easy: depth is set twice`,
		"conservative:depth":           `policy conservative: depth has no value: write it as depth=100`,
		"conservative:bf_window=-1h":   "policy conservative: bf_window: ",
		"easy:preempt_classes=a/maybe": `policy easy: preempt_classes=a/maybe: class "a": preempt=maybe: use suspend, move, requeue or cancel`,
		"easy:preempt_classes=a/fixed:preempt=cancel:qos=a<b": `policy easy: give either preempt_classes, or preempt and qos`,
	} {
		_, err := catalog.New(spec)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", spec, err, want)
		}
	}
}
