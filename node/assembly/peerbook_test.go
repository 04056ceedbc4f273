package assembly

import (
	"context"
	"errors"
	"testing"
)

// A lender knows a peer by any spelling of its address, and connects to its own spelling. Names that lead
// nowhere, other ports and other machines are nobody.
func TestPeersAreKnownByAnySpelling(t *testing.T) {
	places := map[string][]string{"n1": {"10.0.0.1", "fd00::1"}, "n1.example.org": {"10.0.0.1"}, "10.0.0.1": {"10.0.0.1"}, "fd00::1": {"fd00::1"}, "n2": {"10.0.0.2"}, "10.0.0.3": {"10.0.0.3"}}
	looked := 0
	b := newPeerBook([]string{"n1:9421", "gone:9421"})
	b.lookup = func(_ context.Context, host string) ([]string, error) {
		looked++
		if here := places[host]; here != nil {
			return here, nil
		}
		return nil, errors.New("it is not known")
	}
	b.tell([]string{"n2:9500"})
	for address, want := range map[string]string{
		"n1:9421": "n1:9421", "n1.example.org:9421": "n1:9421", "10.0.0.1:9421": "n1:9421", "[fd00::1]:9421": "n1:9421", "n2:9500": "n2:9500",
		"n1:9422": "", "n2:9421": "", "10.0.0.3:9421": "", "nowhere:9421": "", "gone:9421": "gone:9421", "n1": "", "": "",
	} {
		if as, is := b.find(context.Background(), address); as != want || is != (want != "") {
			t.Errorf("%q is %q, %v", address, as, is)
		}
	}
	before := looked
	if as, _ := b.find(context.Background(), "10.0.0.1:9421"); as != "n1:9421" || looked != before {
		t.Errorf("%q, and it looked %d times again", as, looked-before)
	}
}
