package node

import (
	"os"
	"os/user"
	"strconv"

	"muster/wire/control"
)

// leastPrivileged is who runs the work of remote users that have no account
// here.
const leastPrivileged = 65534

// lend names, in what the worker is told, the user that it becomes.
func (d *daemon) lend(who *account, serve *control.Serve) {
	if os.Geteuid() == 0 {
		serve.User = who.process()
	}
}

// process says who the worker of a user is: the user, so that a program that
// breaks its worker has gained nothing. For root it stays root.
func (a account) process() *control.User {
	if a.uid == 0 {
		return nil
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(a.uid), 10))
	if a.uid == nobody {
		u, err = user.Lookup(a.name)
	}
	if err != nil {
		if a.uid == nobody {
			return &control.User{UID: leastPrivileged, GID: leastPrivileged}
		}
		return &control.User{UID: int(a.uid), GID: leastPrivileged}
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil || uid == 0 { // a remote root is none here
		return &control.User{UID: leastPrivileged, GID: leastPrivileged}
	}
	process := &control.User{UID: uid, GID: gid}
	groups, _ := u.GroupIds()
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil {
			process.Groups = append(process.Groups, n)
		}
	}
	return process
}
