package settings

import (
	"maps"
	"slices"
	"testing"
)

func TestStrangers(t *testing.T) {
	cfg := Config{
		Allow:  []string{"alice", "bbo", "1007", AllowAny},
		Limits: Limits{Users: map[string]UserLimits{"alice": {}, "remote": {}, "elsewhere": {}, "1008": {}}},
	}
	allowed, limited := cfg.Strangers(func(name string) bool { return name == "alice" })
	if !slices.Equal(allowed, []string{"bbo"}) || !slices.Equal(limited, []string{"elsewhere", "remote"}) {
		t.Errorf("got %v and %v", allowed, limited)
	}
}

// A node that is not root's serves its user and root, and whom it was told to.
func TestWhoMayUseANode(t *testing.T) {
	ann, bob := Account{1001, "ann"}, Account{1002, "bob"}
	root := Account{0, "root"}
	for _, c := range []struct {
		allow []string
		own   uint32
		user  Account
		may   bool
	}{
		{nil, 0, ann, true}, {nil, 0, root, true},
		{nil, 1001, ann, true}, {nil, 1001, root, true}, {nil, 1001, bob, false},
		{[]string{}, 0, ann, false}, {[]string{}, 0, root, true}, {[]string{}, 1001, ann, true},
		{[]string{"any"}, 1001, bob, true}, {[]string{"bob"}, 1001, bob, true}, {[]string{"1002"}, 1001, bob, true},
		{[]string{"eve", "10020"}, 1001, bob, false}, {[]string{"bob"}, 0, ann, false},
	} {
		cfg := Config{Allow: c.allow}
		if got := cfg.MayUse(c.user, c.own); got != c.may {
			t.Errorf("allow %v, node of %d: user %s may: %v", c.allow, c.own, c.user.Name, got)
		}
	}
}

// Two users' limits are told apart by name and by number.
func TestLimitsOfUsers(t *testing.T) {
	l := Limits{Default: UserLimits{Clients: 1}, Users: map[string]UserLimits{"alice": {Clients: 2}, "1001": {Clients: 3}}}
	for _, c := range []struct {
		user Account
		want int
	}{{Account{5, "alice"}, 2}, {Account{1001, "bob"}, 3}, {Account{6, "carol"}, 1}} {
		if got := l.Of(c.user); got.Clients != c.want {
			t.Errorf("%v: %+v", c.user, got)
		}
	}
}

// Limits of a user's own replace the default ones, by name or by number.
func TestVGPULimitsOfUsers(t *testing.T) {
	c := Config{Limits: Limits{Default: UserLimits{VGPUs: 4}, Users: map[string]UserLimits{
		"alice": {Clients: 2}, "bob": {VGPUs: 1}, "1001": {VGPUs: 2}, "1002": {VGPUs: 3}, "1003": {VGPUs: 7},
	}}}
	names := map[uint32]string{1001: "carol", 1002: "1002", 1003: "bob"}
	got := c.Dispatcher(nil, func(uid uint32) string { return names[uid] })
	want := map[string]int{"alice": 0, "bob": 1, "carol": 2, "1002": 3}
	if got.SlotLimit != 4 || !maps.Equal(got.SlotLimits, want) {
		t.Errorf("%d, %v", got.SlotLimit, got.SlotLimits)
	}
}
