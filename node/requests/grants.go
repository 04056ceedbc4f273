package requests

import (
	"fmt"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/settings"
	"muster/node/socket"
	"muster/wire/grant"
	"muster/wire/status"
	"time"
)

func (d *Desk) answerGrantAdmit(who socket.Peer, line []byte) (any, error) {
	var r ask.AdmitRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	g := &grants.Granted{ID: r.ID, User: r.User, Hash: r.Hash, Devices: r.Devices, Limit: grant.AllDevices}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	g.Limit = *r.Limit
	if r.Expires != 0 {
		g.Expires = time.Unix(r.Expires, 0)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.Grants.Admit(g) })
}

func (d *Desk) answerGrantRevoke(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	reason := fmt.Sprintf("grant %s was revoked", settings.Printable(r.ID))
	if r.Reason != "" {
		reason += ": " + settings.Printable(r.Reason)
	}
	return d.aboutGrant(who, "", func() error { return d.Grants.Revoke(r.ID, reason) })
}

func (d *Desk) answerGrantLimit(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.Grants.Limit(r.ID, *r.Limit) })
}

func (d *Desk) answerGrants(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantsRequest
	if err := Strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Claim == "" {
		return d.aboutGrant(who, r.ID, func() error { return nil })
	}
	claim, err := grant.ParseClaim(r.Claim)
	if err != nil {
		return nil, err
	}
	if !d.IsOwner(who) { // the daemon's own process asks, which is the gateway's, too
		return nil, fmt.Errorf("only root and user %s, whose node it is, may ask what a claim means, not %s", d.Own.Name, who.User.Name)
	}
	return d.listGrants(func() ([]string, error) {
		d.Grants.Expire()
		if g := d.Grants.Claimed(claim, r.User); g != nil {
			return []string{g.ID}, nil
		}
		return nil, nil
	})
}

// aboutGrant has the loop run do, and answers with one grant, or with all if id is "".
func (d *Desk) aboutGrant(who socket.Peer, id string, do func() error) (any, error) {
	if err := d.mayGrant(who); err != nil {
		return nil, err
	}
	return d.listGrants(func() ([]string, error) {
		if err := do(); err != nil || id != "" {
			return []string{id}, err
		}
		return d.Grants.Ids(), nil
	})
}

// listGrants answers with those grants that which names. The loop calls which.
func (d *Desk) listGrants(which func() ([]string, error)) (any, error) {
	answer := status.Grants{Node: d.Node, Grants: []status.Grant{}}
	err := d.Loop.Try(func() error {
		ids, err := which()
		for _, id := range ids {
			if g := d.Grants.Of(id); g != nil && err == nil {
				answer.Grants = append(answer.Grants, d.GrantStatus(g))
			}
		}
		return err
	})
	return answer, err
}
