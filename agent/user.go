package agent

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user whose processes a task has.
type account struct {
	name, home, shell string
	uid               int
	// credential is nil if the supervisor already runs as that user.
	credential *syscall.Credential
}

// findAccount finds a job's user on this node.
func findAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("this node has no user %s: every node must know the cluster's users by the same names", name)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil {
		return nil, fmt.Errorf("user %s has no number", name)
	}
	a := &account{name: u.Username, home: u.HomeDir, shell: "/bin/sh", uid: uid}
	if own := os.Geteuid(); own != 0 {
		if uid != own {
			return nil, fmt.Errorf("this node runs as user %d and can start no processes of %s: start it as root", own, name)
		}
		return a, nil
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("the groups of user %s: %w", name, err)
	}
	a.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, g := range groups {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s is in a group %q", name, g)
		}
		a.credential.Groups = append(a.credential.Groups, uint32(n))
	}
	return a, nil
}

// Credential is what processes of a user are started with on this node; nil if this process
// already runs as that user.
func Credential(name string) (*syscall.Credential, error) {
	a, err := findAccount(name)
	if err != nil {
		return nil, err
	}
	return a.credential, nil
}

// ownName is the user of this process.
func ownName() (string, error) {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return "", fmt.Errorf("the agent's own user: %w", err)
	}
	return u.Username, nil
}
