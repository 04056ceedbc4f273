package workers

import (
	"os"
	"slices"
	"strings"
	"testing"

	"muster/node/settings"
)

func TestChooseUIDs(t *testing.T) {
	const all = "         0          0 4294967295\n"
	for _, c := range []struct {
		name   string
		wanted settings.UIDRange
		uidMap string
		want   settings.UIDRange
		fails  bool
	}{
		{"a machine", settings.UIDRange{}, all, settings.WideUIDs, false},
		{"a container", settings.UIDRange{}, "0 100000 65536\n", settings.NarrowUIDs, false},
		{"a container with few users", settings.UIDRange{}, "0 1000 1\n1 100000 60000\n", settings.UIDRange{}, false},
		{"the last user is missing", settings.UIDRange{}, "0 100000 61183\n", settings.UIDRange{}, false},
		{"just enough", settings.UIDRange{}, "0 1000 1\n60578 100000 606\n", settings.NarrowUIDs, false},
		{"named", settings.UIDRange{First: 5000, Last: 5999}, all, settings.UIDRange{First: 5000, Last: 5999}, false},
		{"named and not there", settings.UIDRange{First: 5000, Last: 70000}, "0 100000 65536\n", settings.UIDRange{}, true},
		{"nothing is known", settings.UIDRange{}, "", settings.UIDRange{}, false},
	} {
		got, err := ChooseUIDs(c.wanted, c.uidMap)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// Numbers are lent in order, and none that any process has.
func TestLendingUIDs(t *testing.T) {
	inUse, present, looks := map[uint32]bool{}, map[uint32]bool{}, 0
	u := &Uids{
		all: settings.UIDRange{First: 10, Last: 14}, lent: map[uint32]bool{},
		inUse:   func(uid uint32) bool { return inUse[uid] },
		present: func() map[uint32]bool { looks++; return present },
	}
	present[12] = true
	u.startAt(1)
	take := func(want uint32) {
		t.Helper()
		if got, err := u.take(); got != want || err != nil {
			t.Fatalf("%d, %v: want %d", got, err, want)
		}
	}
	take(11)
	take(13) // 12 belongs to a process that was there before
	inUse[14] = true
	present = map[uint32]bool{}
	take(10) // another daemon has 14
	take(12)
	if got, err := u.take(); err == nil || !strings.Contains(err.Error(), "worker_uids") {
		t.Fatal(got, err)
	}
	u.giveBack(13)
	take(13)
	u.giveBack(11)
	present = map[uint32]bool{11: true} // it left a process behind
	if got, err := u.take(); err == nil {
		t.Fatal(got)
	}
	present, inUse = map[uint32]bool{}, map[uint32]bool{}
	take(14)
	take(11)
	if looks < 3 {
		t.Errorf("processes were looked at %d times", looks)
	}
	none := &Uids{lent: map[uint32]bool{}}
	if got, err := none.take(); got != 0 || err != nil {
		t.Error(got, err)
	}
}

func TestUsersOfProcesses(t *testing.T) {
	me := uint32(os.Getuid())
	if !usersOfProcesses()[me] || me != 0 && !isRealUser(me) { // 0 stands for the caller
		t.Error("this process was not found")
	}
	const noneHas = 1234567891
	if usersOfProcesses()[noneHas] || isRealUser(noneHas) {
		t.Error("a user has processes that nobody started")
	}
}

func TestUsersInAStatus(t *testing.T) {
	const status = "Name:\tUid: 9\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1\t22\t333\t4294967294\nGid:\t5\t6\t7\t8\n"
	if got := usersIn([]byte(status)); !slices.Equal(got, []uint32{1, 22, 333, 4294967294}) {
		t.Error(got)
	}
	if got := usersIn(nil); got != nil {
		t.Error("in nothing:", got)
	}
}
