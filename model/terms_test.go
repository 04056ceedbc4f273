package model

import (
	"strings"
	"testing"
)

func TestReaches(t *testing.T) {
	for r, name := range map[Reach]string{ReachDevice: "device", ReachNode: "node", ReachCluster: "cluster"} {
		got, err := ParseReach(name)
		if text, bad := r.MarshalText(); err != nil || bad != nil || got != r || string(text) != name || r.String() != name {
			t.Errorf("%s: %v %v, %s %v", name, got, err, text, bad)
		}
	}
	for text, want := range map[string]string{"": "is no reach", "Node": `did you mean "node"?`, "nodes": `did you mean "node"?`, "2": "write device, node, cluster"} {
		if _, err := ParseReach(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Reach(3).MarshalText(); err == nil || Reach(3).String() != "reach 3" {
		t.Error(err)
	}
}

func TestMemoryBeyond(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "4G": 4 << 30, "512MiB": 512 << 20, "all": AllBeyond, "1EiB": AllBeyond} {
		got, err := ParseBeyond(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseBeyond(BeyondText(got)); err != nil || again != want {
			t.Errorf("%s is written as %s: %v", text, BeyondText(got), err)
		}
	}
	for text, want := range map[string]string{"": ", or all", "much": ", or all", "2EiB": "write all", "-1": ""} {
		if got, err := ParseBeyond(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestTermsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{CheckBeyond(0, 0), ""}, {CheckBeyond(1, 0), ""}, {CheckBeyond(1, AllBeyond), ""},
		{CheckBeyond(0, 1), "of a whole GPU"},
		{CheckBeyond(1, AllBeyond+1), "which is all"},
		{Turns{}.Validate(), ""}, {Turns{Class: ClassLatency, Weight: 1000}.Validate(), ""}, {Turns{Class: ClassBatch}.Validate(), ""},
		{Turns{Class: "any"}.Validate(), `there is no class "any": use latency or batch`},
		{Turns{Weight: -1}.Validate(), "give 1 to 1000"},
		{Turns{Weight: 1001}.Validate(), "give 1 to 1000"},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
}

// TestHolds: what a user says goes before what is usual, and that goes by what the job asks for.
func TestHolds(t *testing.T) {
	usual := Holds{Whole: Hold{Reach: ReachCluster, Beyond: 7}, Shares: Hold{Reach: ReachNode, Beyond: 5}, Remote: Hold{Reach: ReachDevice}}
	local, both, remote := &Request{GPUs: 1}, &Request{GPUs: 1, Remote: &RemoteGPUs{Count: 1}}, &Request{Remote: &RemoteGPUs{Count: 1}}
	home, nothing := ReachDevice, uint64(0)
	for _, c := range []struct {
		terms    Terms
		r        *Request
		share    int64
		borrowed bool
		want     Hold
	}{
		{Terms{}, local, 0, false, Hold{ReachCluster, 0}}, {Terms{}, local, 1, false, Hold{ReachNode, 5}},
		{Terms{}, remote, 0, false, Hold{}}, {Terms{}, remote, 0, true, Hold{}}, {Terms{}, remote, 1, true, Hold{ReachNode, 5}},
		{Terms{}, both, 0, false, Hold{ReachCluster, 0}}, {Terms{}, both, 0, true, Hold{}},
		{Terms{Reach: &home}, local, 1, false, Hold{ReachDevice, 5}}, {Terms{Beyond: &nothing}, local, 1, false, Hold{ReachNode, 0}},
	} {
		if got := c.terms.Of(c.r, c.share, c.borrowed, usual); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if h := DefaultHolds(); h != (Holds{Shares: Hold{Reach: ReachNode}, Remote: Hold{Reach: ReachNode}}) {
		t.Errorf("%+v", h)
	}
}
