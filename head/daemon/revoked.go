package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	wire "muster/wire/sessions"
	"muster/wire/trust"
)

// revokedEvery is how often the head looks whether the certificate of one who is connected, or has
// signed in to the page, was revoked.
const revokedEvery = 5 * time.Second

// revoked says that one of the certificates that vouch for a caller was revoked; nil if none was, or
// if the list cannot be used.
func (d *daemon) revoked(vouched []*x509.Certificate) (revoked *trust.Revoked) {
	err := trust.StillGood(d.TLS, vouched)
	var broken *trust.BrokenList
	if errors.As(err, &broken) {
		broken.Tell(d.log)
	}
	errors.As(err, &revoked)
	return revoked
}

// watchRevoked ends what those have whose certificate is revoked, whenever look delivers. It is no
// part of pinging, which must not wait for a disk.
func (d *daemon) watchRevoked(ctx context.Context, look <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			d.sessions.server.EndRevoked(d.sessions.revokedNode)
			d.doors.endRevoked()
			if d.doors.page != nil {
				d.doors.page.pages.endRevoked()
			}
		}
	}
}

// endRevoked hangs up on users whose certificate was revoked. Nodes are told why (sessions).
func (o *doors) endRevoked() {
	o.mu.Lock()
	all := make([]*visitor, 0, len(o.visitors))
	for v := range o.visitors {
		all = append(all, v)
	}
	o.mu.Unlock()
	for _, v := range all {
		if revoked := o.revoked(v.who.vouched); revoked != nil {
			o.log.Warn("a user's connection is ended", "user", v.who.user, "reason", revoked)
			_ = v.Close()
		}
	}
}

// register remembers the connection of a user with a certificate until it is closed.
func (o *doors) register(v *visitor) {
	if v.who.vouched == nil || v.who.node != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visitors[v] = struct{}{}
	v.forget = func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.visitors, v)
	}
}

// revokedNode says that the certificate of an agent's node was revoked after it had greeted, and notes it.
func (s *sessions) revokedNode(m wire.Member) *trust.Revoked {
	one := m.(*session)
	revoked := s.revoked(one.who.vouched)
	if revoked != nil {
		s.refusals.note(one.who.holder(one.node), refusal{names: []string{one.node}, reason: revoked.Error(), at: s.Now()})
	}
	return revoked
}
