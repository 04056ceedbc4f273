package grant

import (
	"encoding/json"
	"strings"
	"testing"

	"muster/model"
)

// What a lender is told, and what it is shown by the home, is of no use at the other lenders.
func TestLenderLearnsNothingForOthers(t *testing.T) {
	g := &Grant{ID: "1.1.0", User: "ann", Secret: NewCredential(), Limit: AllDevices, Authority: "a", Devices: []Device{
		{Node: "home"}, {Node: "n1", Address: "n1:9421", Reach: model.ReachNode}, {Node: "n1", Address: "n1:9421", Device: 1}, {Node: "n2", Address: "n2:9421"},
	}}
	shown := map[Hash]string{}
	for _, node := range []string{"home", "n1", "n2"} {
		loan := g.Loan(node)
		text, err := json.Marshal(loan)
		if err != nil || strings.Contains(string(text), string(g.Secret)) {
			t.Errorf("%s is told %s, %v", node, text, err)
		}
		if other := shown[loan.Shown]; other != "" {
			t.Errorf("%s and %s know programs by the same credential", node, other)
		}
		shown[loan.Shown] = node
		for _, d := range loan.Devices {
			if secret := g.SecretFor(d); secret.Hash() != loan.Shown && d.IsBorrowed() || secret.Validate() != nil {
				t.Errorf("%s does not know the programs of %v", node, d)
			}
		}
	}
	home := g.HomeLoan("home")
	if home.Hash != g.Loan("home").Hash || shown[home.OfHome().SecretFor(g.Devices[3]).Hash()] != "n2" {
		t.Error("the home is not known, or cannot use what others lend")
	}
}
