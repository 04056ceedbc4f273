package node

import (
	"os"
	"os/user"
	"strconv"

	"muster/wire/control"
)

// leastPrivileged is the user that workers of remote users without an account here
// become, on a node that has no user number of its own for each worker.
const leastPrivileged = 65534

// lend writes into serve the user that the worker is to become: the client's, so that a
// program that takes over its worker gains nothing. The worker also gets a user number
// of its own as its real user, so that only root can send it signals.
func (d *daemon) lend(w *workerProcess, who *account, serve *control.Serve) (err error) {
	if os.Geteuid() != 0 {
		return nil
	}
	serve.User = who.process()
	if serve.User == nil {
		return nil
	}
	if w.uid, err = d.uids.take(); err != nil || w.uid == 0 {
		return err
	}
	serve.User.Own = int(w.uid)
	if who.uid == nobody && serve.User.UID == leastPrivileged {
		serve.User.UID = int(w.uid)
	}
	return nil
}

// process says which user a worker becomes, apart from its own number; nil for root,
// whose workers stay root.
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
	if errUID != nil || errGID != nil || uid == 0 { // root of another machine must not become root here
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
