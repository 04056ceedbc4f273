package workers

import (
	"os"
	"os/user"
	"strconv"

	"muster/node/settings"
	"muster/wire/control"
)

// Lend writes into serve the user that the worker is to become: the client's, so that a
// program that takes over its worker gains nothing. The worker also gets a user number
// of its own as its real user, so that only root can send it signals.
func (p *Pool) Lend(w *Process, who *settings.Account, serve *control.Serve) (err error) {
	if os.Geteuid() != 0 {
		return nil
	}
	serve.User = processOf(*who)
	if serve.User == nil {
		return nil
	}
	if w.UID, err = p.uids.take(); err != nil || w.UID == 0 {
		return err
	}
	serve.User.Own = int(w.UID)
	if who.UID == settings.Nobody && serve.User.UID == settings.LeastPrivileged {
		serve.User.UID = int(w.UID)
	}
	return nil
}

// processOf says which user a worker becomes, apart from its own number; nil for root,
// whose workers stay root.
func processOf(a settings.Account) *control.User {
	if a.UID == 0 {
		return nil
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(a.UID), 10))
	if a.UID == settings.Nobody {
		u, err = user.Lookup(a.Name)
	}
	if err != nil {
		if a.UID == settings.Nobody {
			return &control.User{UID: settings.LeastPrivileged, GID: settings.LeastPrivileged}
		}
		return &control.User{UID: int(a.UID), GID: settings.LeastPrivileged}
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if errUID != nil || errGID != nil || uid == 0 { // root of another machine must not become root here
		return &control.User{UID: settings.LeastPrivileged, GID: settings.LeastPrivileged}
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
