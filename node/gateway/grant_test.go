package gateway

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/wire"
	"muster/wire/client"
	"muster/wire/grant"
)

// A program with a grant needs neither a certificate nor the token; the daemon is told the
// credential, and whose the certificate is if there is one.
func TestGrantsComeIn(t *testing.T) {
	secret := string(grant.NewCredential())
	alone := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.Certificates = nil
		return c
	}
	certified := func(c *tls.Config) *tls.Config { return c }
	for _, c := range []struct {
		name   string
		node   func(*Config)
		user   func(*tls.Config) *tls.Config
		grant  string
		want   string
		tokens string // that the daemon hears
	}{
		{"instead of a certificate", nil, alone, secret, "", "gateway:"},
		{"beside a certificate", nil, certified, secret, "", "gateway:ada"},
		{"instead of a token", func(c *Config) { c.Token = "token" }, alone, secret, "", "gateway:"},
		{"nothing else is known", func(c *Config) { c.Grants, c.TLS.ClientCAs = true, nil }, alone, secret, "", "gateway:"},
		{"nothing at all", func(c *Config) { c.Grants, c.TLS.ClientCAs = true, nil }, alone, "", "the node wants to know who is there", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testGeometry, c.node)
			socket := newSocket()
			w.relay(t, socket, client.Remote{Dial: client.Dialler(w.address, c.user(w.user)), Grant: c.grant})
			s, err := client.Attach(socket, client.Hello("test", 0), 0)
			if err == nil {
				s.Close()
			}
			if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q", got, c.want)
			}
			w.daemon.mu.Lock()
			defer w.daemon.mu.Unlock()
			if got := strings.Join(slices.Compact(w.daemon.tokens), " "); got != c.tokens {
				t.Errorf("the daemon heard %q, want %q", got, c.tokens)
			}
			if got := strings.Join(slices.Compact(w.daemon.grants), " "); c.want == "" && got != secret {
				t.Errorf("the daemon heard of the grant %q", got)
			}
		})
	}
}

// One whose grant the daemon does not know is refused, and stays nobody: it takes none of
// the places of those who are known. A job has as many as a user.
func TestPlacesOfGrants(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.User, c.Limits.All = 1, 1 })
	w.daemon.mu.Lock()
	w.daemon.refuse = &wire.Refused{Result: resultNotPermitted, Reason: "the node knows no grant with this credential"}
	w.daemon.mu.Unlock()
	socket := newSocket()
	w.relay(t, socket, client.Remote{Dial: client.Dialler(w.address, w.user), Grant: string(grant.NewCredential())})
	for range 3 {
		if _, err := client.Attach(socket, client.Hello("test", 0), 0); err == nil || !strings.Contains(err.Error(), "knows no grant") {
			t.Fatal(err)
		}
	}
	w.daemon.mu.Lock()
	w.daemon.refuse = nil
	w.daemon.mu.Unlock()
	s := attachTo(t, socket)
	defer s.Close()
	if _, err := client.Attach(socket, client.Hello("test", 0), 0); err == nil || !strings.Contains(err.Error(), "the job has 1 programs' connections") {
		t.Error(err)
	}
}
