package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

func cert(name string, units ...string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: units}, DNSNames: []string{"n1", "n1.example.org"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 7)}}
}

func TestWho(t *testing.T) {
	for _, c := range []struct {
		cert             *x509.Certificate
		user, node, head string // what is wrong; "" for nothing
	}{
		{cert("alice"), "", "not that of a node", "not that of a head"},
		{cert("alice", "Physics"), "", "not that of a node", "not that of a head"},
		{cert("n1", "muster node"), "is that of a muster node, not of a user", "", "not that of a head"},
		{cert("alice", "Physics", "muster node"), "is that of a muster node", "", "not that of a head"},
		{cert("h", "muster head"), "is that of a muster head", "not that of a node", ""},
		{cert(""), "it must have 1 to 64", "not that of a node", "not that of a head"},
		{cert(strings.Repeat("a", 65)), "it must have 1 to 64", "not that of a node", "not that of a head"},
		{cert("a\nb"), "cannot be a user's", "not that of a node", "not that of a head"},
	} {
		_, err := UserOf(c.cert)
		for what, got := range map[string]struct {
			err  error
			want string
		}{"user": {err, c.user}, "node": {IsNode(c.cert, "n1.example.org"), c.node}, "head": {IsHead(c.cert), c.head}} {
			if (got.err == nil) != (got.want == "") || got.err != nil && !strings.Contains(got.err.Error(), got.want) {
				t.Errorf("%v as %s: got %v, want %q", c.cert.Subject, what, got.err, got.want)
			}
		}
	}
	for name, is := range map[string]bool{"n1": true, "10.0.0.7": true, "common": true, "n2": false, "": false, "N1": false} {
		if err := IsNode(cert("common", "muster node"), name); (err == nil) != is {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Alerts of a server about the caller's certificate are put into words; other errors stay as they
// are.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"remote error: tls: bad certificate":               "it was revoked or is not one for this: ask an administrator",
		"remote error: tls: revoked certificate":           "your certificate was revoked: ask an administrator",
		"remote error: tls: expired certificate":           "has expired",
		"remote error: tls: unknown certificate authority": "made by another authority",
		"remote error: tls: internal error":                "its administrator has to mend that",
	} {
		alert := errors.New(text)
		if told := Refused(alert); !strings.Contains(told.Error(), want) || !errors.Is(told, alert) {
			t.Errorf("%s: %v", text, told)
		} else if again := fmt.Errorf("dialling: %w", told); Refused(again) != again {
			t.Errorf("it is put into words twice: %v", Refused(again))
		}
	}
	for _, other := range []error{nil, io.EOF, errors.New("remote error: tls: decode error")} {
		if told := Refused(other); told != other {
			t.Errorf("%v becomes %v", other, told)
		}
	}
}
