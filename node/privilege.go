package node

import (
	"os"
	"os/user"
	"strconv"

	"muster/wire/control"
)

// leastPrivileged is who runs the work of remote users that have no account
// here, on a node that has no user number of its own for each worker.
const leastPrivileged = 65534

// lend names, in what the worker is told, the user that it becomes: the client's,
// so that a program that breaks its worker has gained nothing. The worker also gets
// a user number of its own, by which only root can send it a signal.
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

// process says who the worker of a user is, apart from its own number. For root it
// stays root.
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
