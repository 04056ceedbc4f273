package workers

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"muster/node/settings"
)

// IsMapped says whether this user namespace has the whole range: a container may have
// few users. The text is that of /proc/self/uid_map, one stretch a line.
func IsMapped(r settings.UIDRange, text string) bool {
	for line := range strings.Lines(text) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			continue
		}
		if inside <= uint64(r.First) && uint64(r.Last) < inside+count {
			return true
		}
	}
	return false
}

// ChooseUIDs returns the range for workers, given the configuration and the namespace;
// the zero value if there is none.
func ChooseUIDs(wanted settings.UIDRange, uidMap string) (settings.UIDRange, error) {
	if wanted != (settings.UIDRange{}) {
		if !IsMapped(wanted, uidMap) {
			return settings.UIDRange{}, fmt.Errorf("worker_uids %v: this container (user namespace) does not have these users: /proc/self/uid_map lists those that it has", wanted)
		}
		return wanted, nil
	}
	for _, r := range []settings.UIDRange{settings.WideUIDs, settings.NarrowUIDs} {
		if IsMapped(r, uidMap) {
			return r, nil
		}
	}
	return settings.UIDRange{}, nil
}

// Uids lends each worker a user number that no other process has. Numbers are lent in
// order, around and around, so that each stays unused for a long time before it is lent
// again.
type Uids struct {
	mu     sync.Mutex
	all    settings.UIDRange // the zero value: none are lent
	next   uint32
	lent   map[uint32]bool
	others map[uint32]bool // numbers that some process had when this round began

	inUse   func(uid uint32) bool  // says whether a process has it as its real user
	present func() map[uint32]bool // all numbers that processes have
}

// NewUIDs makes the numbers of a daemon that runs as root; any other cannot change the
// user of its workers. Daemons of one machine begin at different places, by their
// process numbers.
func NewUIDs(wanted settings.UIDRange, log *slog.Logger) (*Uids, error) {
	u := &Uids{lent: map[uint32]bool{}, inUse: isRealUser, present: usersOfProcesses}
	if os.Geteuid() != 0 {
		return u, nil
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, fmt.Errorf("finding out which users there are: %w", err)
	}
	if u.all, err = ChooseUIDs(wanted, string(text)); err != nil {
		return nil, err
	}
	if u.all == (settings.UIDRange{}) {
		log.Warn("this container has no user numbers for workers: users can stop and kill their own workers, and remote users each other's; name some that it has with worker_uids")
	}
	const apart = 4096
	u.startAt(uint64(os.Getpid()) * apart)
	return u, nil
}

func (u *Uids) startAt(offset uint64) {
	if u.all != (settings.UIDRange{}) {
		u.next = u.all.First + uint32(offset%u.all.Size())
		u.others = u.present()
	}
}

// take lends a number, or 0 if the daemon has none to lend.
func (u *Uids) take() (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == (settings.UIDRange{}) {
		return 0, nil
	}
	const most = 1 << 16 // how many numbers are tried
	for range min(u.all.Size(), most) {
		uid := u.next
		u.advance()
		if !u.lent[uid] && !u.others[uid] && !u.inUse(uid) {
			u.lent[uid] = true
			return uid, nil
		}
	}
	return 0, errors.New("no user number is free for another worker: give the node a larger range with worker_uids")
}

// advance goes to the next number. A process that a worker left behind keeps that
// worker's number, perhaps no longer as its real user, which is all that inUse sees: so
// at the beginning of each round all processes are examined. No process can acquire a
// number later, unless it descends from a worker that has it.
func (u *Uids) advance() {
	if u.next < u.all.Last {
		u.next++
		return
	}
	u.next = u.all.First
	u.others = u.present()
}

// adopt notes that a worker of an earlier daemon has a number.
func (u *Uids) adopt(uid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if uid != 0 {
		u.lent[uid] = true
	}
}

// giveBack takes back the number of a worker that has ended.
func (u *Uids) giveBack(uid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.lent, uid)
}

// isRealUser asks for the priority of a user's processes, which is the quickest way to
// learn that there are none.
func isRealUser(uid uint32) bool {
	const ofUser = 2 // PRIO_USER
	_, err := syscall.Getpriority(ofUser, int(uid))
	return !errors.Is(err, syscall.ESRCH)
}

// usersOfProcesses returns the users that any thread of the machine has: as real,
// effective, saved or file system user. A node does this when it starts, on machines with
// thousands of threads: it opens nothing but the lists and what it reads.
func usersOfProcesses() map[uint32]bool {
	found := map[uint32]bool{}
	buffer := make([]byte, 4096) // the line is one of the first
	for _, process := range numbersIn("/proc") {
		tasks := "/proc/" + process + "/task"
		for _, thread := range numbersIn(tasks) {
			for _, uid := range usersIn(beginningOf(tasks+"/"+thread+"/status", buffer)) {
				found[uid] = true
			}
		}
	}
	return found
}

// numbersIn lists what a folder has whose name is a number: processes, or threads of one. There is
// nothing in one that has ended.
func numbersIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return slices.DeleteFunc(names, func(name string) bool { return name[0] < '0' || name[0] > '9' })
}

// beginningOf reads as much of a file as one call gives, or nothing.
func beginningOf(path string, buffer []byte) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	n, _ := syscall.Read(fd, buffer)
	return buffer[:max(n, 0)]
}

// usersIn returns the four users in the status of a thread.
func usersIn(status []byte) (found []uint32) {
	for line := range bytes.Lines(status) {
		if rest, is := bytes.CutPrefix(line, []byte("Uid:")); is {
			for field := range bytes.FieldsSeq(rest) {
				if uid, err := strconv.ParseUint(string(field), 10, 32); err == nil {
					found = append(found, uint32(uid))
				}
			}
			break
		}
	}
	return found
}
