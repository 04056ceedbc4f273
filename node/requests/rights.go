package requests

import (
	"fmt"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/vgpu"
)

// Rights say who may do what on a node.
type Rights struct {
	Own     settings.Account // whose node it is
	Gateway int              // the process that speaks for users of other machines; 0 if there is none
	Agent   bool             // the same process is also the node's agent, and so may admit and revoke grants
}

// IsOwner says whether a peer is root or the user whose node it is.
func (r Rights) IsOwner(who socket.Peer) bool { return who.User.UID == 0 || who.User.UID == r.Own.UID }

// IsGateway says that a connection is of the node's gateway, which speaks for other machines.
func (r Rights) IsGateway(who socket.Peer) bool { return r.Gateway != 0 && int(who.PID) == r.Gateway }

// MayChange refuses users who may not change what devices the node has. The
// gateway runs as the node's user but speaks for users of other machines, who may not
// either.
func (r Rights) MayChange(who socket.Peer) error {
	if !r.IsOwner(who) || r.IsGateway(who) {
		return fmt.Errorf("only root and user %s, whose node it is, may change its devices, not %s", r.Own.Name, who.User.Name)
	}
	return nil
}

// mayGrant refuses users who may not decide who uses the node.
func (r Rights) mayGrant(who socket.Peer) error {
	if r.MayChange(who) != nil && !(r.Agent && r.IsOwner(who)) {
		return fmt.Errorf("only root and user %s, whose node it is, may do that with its grants, not %s", r.Own.Name, who.User.Name)
	}
	return nil
}

// MayConfigure refuses users who may not say how the node serves programs: only its agent, and who else may
// decide who uses it.
func (r Rights) MayConfigure(who socket.Peer) error {
	if r.mayGrant(who) != nil {
		return fmt.Errorf("only root and user %s, whose node it is, may configure it, not %s", r.Own.Name, who.User.Name)
	}
	return nil
}

// MayActOn refuses users who may not act on a client: it is his own, or any client for root and
// the node's owner. Users of other machines have no number here, so they can act on
// none. The loop calls it.
func (r Rights) MayActOn(who socket.Peer, id vgpu.ClientID, clients Clients) error {
	owner, is := clients.Owner(id)
	switch {
	case !is:
		return fmt.Errorf("there is no client %d: muster ps lists those there are", id)
	case r.MayChange(who) == nil:
	case who.User.UID != owner.UID || who.User.UID == settings.Nobody || r.IsOwner(who):
		return fmt.Errorf("client %d is user %s's: only that user, user %s, whose node it is, and root may do that", id, owner.Name, r.Own.Name)
	}
	return nil
}
