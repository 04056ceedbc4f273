package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"muster/wire/trust"
)

// revokedEvery is how often the gateway looks whether the certificate of one who is connected was
// revoked.
const revokedEvery = 5 * time.Second

// shown are the certificates that count of one who is connected, and what ends its connection. Lanes
// are not among these connections: they end with the bridge that they belong to.
type shown struct {
	certificates []*x509.Certificate
	end          func(reason string) // may be nil. The gateway's mu is held while it changes, not while it runs
}

// remember notes what a connection has shown. It returns nil if it has shown nothing.
func (g *Gateway) remember(conn link, end func(reason string)) *shown {
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	s := &shown{trust.Vouched(secure.ConnectionState()), end}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown[s] = struct{}{}
	return s
}

// endBy changes what ends a connection: a program that is served is told why.
func (g *Gateway) endBy(s *shown, end func(reason string)) {
	if s == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.end = end
}

func (g *Gateway) discard(s *shown) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.shown, s)
}

// watchRevoked ends connections whose certificate is revoked, from time to time until ctx is cancelled.
func (g *Gateway) watchRevoked(ctx context.Context) {
	if g.TLS == nil || g.TLS.VerifyConnection == nil {
		return
	}
	time.AfterFunc(revokedEvery, func() {
		if ctx.Err() == nil {
			g.endRevoked()
			g.watchRevoked(ctx)
		}
	})
}

// endRevoked ends the connections of those whose certificate was revoked after they had come. A list
// that cannot be used ends none.
func (g *Gateway) endRevoked() {
	g.mu.Lock()
	all := make([]*shown, 0, len(g.shown))
	for s := range g.shown {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		err := trust.StillGood(g.TLS, s.certificates)
		var revoked *trust.Revoked
		var broken *trust.BrokenList
		switch {
		case errors.As(err, &broken):
			broken.Tell(g.Log)
			return
		case !errors.As(err, &revoked):
			continue
		}
		g.mu.Lock()
		end := s.end
		s.end = nil
		g.mu.Unlock()
		if end != nil {
			g.Log.Warn("a connection is ended", "reason", revoked)
			end(revoked.Error())
		}
	}
}
