package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"muster/internal/wholefile"
	"muster/wire/trust"
)

// How long a one-time address is valid and how long a browser stays signed in, and how many of each
// there may be, in all and of one user. Beyond that the oldest is dropped.
const (
	ticketTime      = time.Minute
	pageTime        = 12 * time.Hour
	maxTickets      = 512
	maxTicketsEach  = 8
	maxSessions     = 512
	maxSessionsEach = 16
)

// secretHash is what is kept of a secret, so that reading the head's memory or files does not
// reveal the secret.
type secretHash [sha256.Size]byte

func hashOf(secret string) secretHash { return sha256.Sum256([]byte(secret)) }

// ticket is a one-time right to sign in as a user.
type ticket struct {
	hash  secretHash
	user  string
	until time.Time
	// vouched are the certificate by which the user has asked for it and those of its authorities; nil
	// at the socket.
	vouched []*x509.Certificate
}

// pageSession is a browser that has signed in. A request must show two secrets: a cookie, which
// scripts cannot read, and a key, which the browser gives only to pages of this very port. Cookies
// are shared by all ports of a host: without the key, a program that listens at another port of
// this machine could make a user's browser send it the cookie, and use it here.
type pageSession struct {
	id, key secretHash
	user    string
	until   time.Time
	vouched []*x509.Certificate // of the ticket
	// over is done when the session ends; that ends the answers that are being sent.
	over context.Context
	end  context.CancelFunc
}

// pages knows the tickets and sessions. Both lists are short, and the oldest entry is first. mu
// protects them; save, add and expire are called with mu held.
type pages struct {
	now  func() time.Time
	file string // where sessions are kept; "" if they end with the head
	log  *slog.Logger
	// revoked says that one of some certificates was revoked; nil if none was.
	revoked func([]*x509.Certificate) *trust.Revoked

	mu       sync.Mutex
	tickets  []ticket
	sessions []*pageSession
}

// savedSession is a session in the file, so that a restarted head recognises its browsers.
type savedSession struct {
	ID    string    `json:"id"`
	Key   string    `json:"key"`
	User  string    `json:"user"`
	Until time.Time `json:"until"`
	// Certificates are those that vouched for the user, in DER form; Socket says that there were none.
	// Who has neither signed in to an older head, and does so again.
	Certificates [][]byte `json:"certificates,omitempty"`
	Socket       bool     `json:"socket,omitempty"`
}

// openPages loads the sessions of a folder; with "" it never keeps any.
func openPages(dir string, now func() time.Time, revoked func([]*x509.Certificate) *trust.Revoked, log *slog.Logger) *pages {
	p := &pages{now: now, revoked: revoked, log: log}
	if dir == "" {
		return p
	}
	p.file = filepath.Join(dir, "pages.json")
	if err := p.load(); err != nil {
		log.Warn("who had signed in to the page is not known: users run muster page again", "error", err)
	}
	return p
}

func (p *pages) load() error {
	text, err := wholefile.Limit{Bytes: 16 << 20, Remedy: "remove it: users then run muster page again"}.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var saved []savedSession
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil {
		return err
	}
	for _, s := range saved {
		id, wrongID := hex.DecodeString(s.ID)
		key, wrongKey := hex.DecodeString(s.Key)
		if wrongID != nil || wrongKey != nil || len(id) != sha256.Size || len(key) != sha256.Size || s.User == "" {
			return fmt.Errorf("%s is damaged", p.file)
		}
		vouched, err := s.vouched()
		if err != nil {
			return fmt.Errorf("%s is damaged: %w", p.file, err)
		}
		if p.now().Before(s.Until) && len(p.sessions) < maxSessions && s.Socket == (vouched == nil) {
			p.add(secretHash(id), secretHash(key), s.User, s.Until, vouched)
		}
	}
	return nil
}

func (s *savedSession) vouched() (list []*x509.Certificate, err error) {
	for _, der := range s.Certificates {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// save writes the sessions. If that fails the head continues: it only forgets them when it ends.
func (p *pages) save() {
	if p.file == "" {
		return
	}
	saved := []savedSession{}
	for _, s := range p.sessions {
		one := savedSession{ID: hex.EncodeToString(s.id[:]), Key: hex.EncodeToString(s.key[:]), User: s.user, Until: s.until, Socket: s.vouched == nil}
		for _, c := range s.vouched {
			one.Certificates = append(one.Certificates, c.Raw)
		}
		saved = append(saved, one)
	}
	text, err := json.Marshal(saved)
	if err == nil {
		err = wholefile.Replace(p.file, text, 0o600)
	}
	if err != nil {
		p.log.Warn("who has signed in to the page cannot be written down: after a restart users run muster page again", "error", err)
	}
}

// User is the user who has signed in.
func (s *pageSession) User() string { return s.user }

// add adds a session, for which the caller has made room. The session ends by itself at until.
func (p *pages) add(id, key secretHash, user string, until time.Time, vouched []*x509.Certificate) {
	s := &pageSession{id: id, key: key, user: user, until: until, vouched: vouched}
	s.over, s.end = context.WithTimeout(context.Background(), until.Sub(p.now()))
	p.sessions = append(p.sessions, s)
}

// ticket makes a one-time right to sign in, and returns its secret. It is worth as much as the
// certificates that vouch for the user; nil at the socket.
func (p *pages) ticket(user string, vouched []*x509.Certificate) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	p.tickets = makeRoom(p.tickets, user, maxTicketsEach, maxTickets, func(t ticket) string { return t.user }, func(ticket) {})
	secret := rand.Text()
	p.tickets = append(p.tickets, ticket{hashOf(secret), user, p.now().Add(ticketTime), vouched})
	return secret
}

// redeem signs a browser in; false if the ticket is unknown, used or expired, or its user was revoked.
func (p *pages) redeem(secret string) (cookie, key, user string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	hash := hashOf(secret)
	for i, t := range p.tickets {
		if t.hash != hash {
			continue
		}
		p.tickets = append(p.tickets[:i], p.tickets[i+1:]...)
		if p.revoked(t.vouched) != nil {
			break
		}
		p.sessions = makeRoom(p.sessions, t.user, maxSessionsEach, maxSessions, (*pageSession).User, func(s *pageSession) { s.end() })
		cookie, key = rand.Text(), rand.Text()
		p.add(hashOf(cookie), hashOf(key), t.user, p.now().Add(pageTime), t.vouched)
		p.save()
		return cookie, key, t.user, true
	}
	return "", "", "", false
}

// find is the session that a request shows; nil if it shows none, or a wrong one, or if its user was
// revoked, which ends it.
func (p *pages) find(cookie, key string) *pageSession {
	s := p.shown(cookie, key)
	if s == nil || p.endIfRevoked(s) {
		return nil
	}
	return s
}

// endRevoked signs out the browsers of users who were revoked.
func (p *pages) endRevoked() {
	p.mu.Lock()
	all := slices.Clone(p.sessions)
	p.mu.Unlock()
	for _, s := range all {
		p.endIfRevoked(s)
	}
}

func (p *pages) endIfRevoked(s *pageSession) bool {
	revoked := p.revoked(s.vouched)
	if revoked == nil {
		return false
	}
	p.log.Warn("a browser is signed out", "user", s.user, "reason", revoked)
	p.signOut(s)
	return true
}

func (p *pages) shown(cookie, key string) *pageSession {
	if cookie == "" || key == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	id, keyHash := hashOf(cookie), hashOf(key)
	for _, s := range p.sessions {
		if s.id == id {
			if subtle.ConstantTimeCompare(s.key[:], keyHash[:]) == 1 {
				return s
			}
			return nil
		}
	}
	return nil
}

// signOut ends a session.
func (p *pages) signOut(s *pageSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.sessions {
		if other == s {
			p.sessions = append(p.sessions[:i], p.sessions[i+1:]...)
			s.end()
			p.save()
			return
		}
	}
}

// expire drops what has expired. Both lists are in the order of expiry.
func (p *pages) expire() {
	now := p.now()
	for len(p.tickets) > 0 && !now.Before(p.tickets[0].until) {
		p.tickets = p.tickets[1:]
	}
	for len(p.sessions) > 0 && !now.Before(p.sessions[0].until) {
		p.sessions[0].end()
		p.sessions = p.sessions[1:]
	}
}

// makeRoom drops the oldest entry of a user who has each entries, or else the oldest of all if
// there are all entries.
func makeRoom[T any](list []T, user string, each, all int, userOf func(T) string, end func(T)) []T {
	count, first := 0, -1
	for i, one := range list {
		if userOf(one) == user {
			if count++; first < 0 {
				first = i
			}
		}
	}
	switch {
	case count >= each:
	case len(list) >= all:
		first = 0
	default:
		return list
	}
	end(list[first])
	return append(list[:first], list[first+1:]...)
}

// close ends all answers that are being sent; the sessions in the file stay.
func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		s.end()
	}
}
