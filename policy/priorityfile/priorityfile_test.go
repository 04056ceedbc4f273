package priorityfile

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/policy/preempt"
	"muster/policy/priority"
)

const whole1 = `# what a site might write
PriorityWeightAge: 1000
PriorityWeightFairshare: 10000
PriorityWeightJobSize: 500
PriorityWeightPartition: 200
PriorityWeightQOS: 2000
PriorityWeightTRES: CPU=100,GRES/gpu=3000
PriorityMaxAge: 14-0
PriorityFavorSmall: YES
PriorityDecayHalfLife: 7-0
PriorityCalcPeriod: 5
PriorityUsageResetPeriod: NONE
PriorityFlags: MAX_TRES,NO_FAIR_TREE
FairShareDampeningFactor: 2
TRESBillingWeights: CPU=1.0,Mem=0.25G,GRES/gpu=10
strict: yes
accounts:
  physics:
    Fairshare: 60
    users: {alice: 2, bob: 1}
    accounts:
      lattice: {users: [carol]}
  biology: {Fairshare: 40}
qos:
  low: {Priority: 0, PreemptMode: requeue}
  high: {Priority: 100, Preempt: [low]}
partitions:
  gpu: {PriorityJobFactor: 10}
`

func TestRead(t *testing.T) {
	got, err := Read([]byte(whole1), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := &priority.Config{
		WeightAge: 1000, WeightFairshare: 10_000, WeightJobSize: 500, WeightPartition: 200, WeightQOS: 2000,
		WeightTRES: priority.Weights{CPU: 100, GPU: 3000}, MaxAge: 14 * 24 * time.Hour, FavorSmall: true,
		DecayHalfLife: 7 * 24 * time.Hour, CalcPeriod: 5 * time.Minute, Classic: true, Dampening: 2,
		Billing: priority.Billing{CPU: 1_000_000, Mem: 250_000, GPU: 10_000_000, Max: true}, Strict: true,
		Accounts: []priority.Account{
			{Name: "physics", Shares: 60, Users: []priority.User{{Name: "alice", Shares: 2}, {Name: "bob", Shares: 1}},
				Accounts: []priority.Account{{Name: "lattice", Shares: 1, Users: []priority.User{{Name: "carol", Shares: 1}}}}},
			{Name: "biology", Shares: 40},
		},
		QOS:        []priority.QOS{{Name: "low", PreemptMode: priority.PreemptRequeue}, {Name: "high", Priority: 100, Preempt: []string{"low"}}},
		Partitions: []priority.Partition{{Name: "gpu", Factor: 10}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestErrorsNameTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                          "give at least one weight",
		"PriorityWeightAges: 1":                     `p.yaml:1:1: "PriorityWeightAges" is no key of a priority configuration: did you mean PriorityWeightAge?`,
		"PriorityWeightAge: -1":                     `p.yaml:1:20: PriorityWeightAge: must be a whole number from 0 to 4294967295, not "-1"`,
		"PriorityMaxAge: 0":                         "p.yaml:1:1: PriorityMaxAge must be above 0",
		"PriorityFavorSmall: perhaps":               "must be YES or NO",
		"PriorityUsageResetPeriod: MONTHLY":         "only NONE is known",
		"PriorityFlags: FAIR_SHRUB":                 `"FAIR_SHRUB" is not known here`,
		"TRESBillingWeights: CPU=x":                 "CPU must be a number",
		"accounts: {a: {}, b: {accounts: {a: {}}}}": `p.yaml:1:34: there is an account "a" on line 1 already`,
		"accounts: {root: {}}":                      "root is the account above all",
		"accounts: {a: {users: [x, x]}}":            "user x is there twice",
		"accounts: {a: {users: 3}}":                 "users must be a list",
		"accounts: {a: {users: {x: many}}}":         "the shares of x: must be a whole number",
		"accounts: {a b: {}}":                       "must be made of letters",
		"qos: {a: {Preempt: [b]}}":                  `QOS a preempts "b", which is no QOS here`,
		"qos: {a: {PreemptMode: gang}}":             "must be off, suspend, move, requeue or cancel",
		"partitions: {a: {PriorityJobFactor: x}}":   "PriorityJobFactor: must be a whole number",
	} {
		_, err := Read([]byte(text), "p.yaml")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(whole1))
	f.Add([]byte("accounts: {a: {accounts: {b: {users: [c]}}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Read(text, "p.yaml")
		if err != nil {
			return
		}
		if _, err := priority.New(*c); err != nil {
			t.Errorf("read, but refused: %v", err)
		}
	})
}

// The file that the guide shows can be read, and its classes make sense.
func TestTheGuidesFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/priorities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("docs/priorities.md has no file")
	}
	c, err := Read([]byte(text), "docs/priorities.md")
	if err != nil {
		t.Fatal(err)
	}
	if rules := preempt.FromQOS(c.QOS); len(rules) != 4 || rules.Check() != nil {
		t.Errorf("rules %+v: %v", rules, rules.Check())
	}
}
