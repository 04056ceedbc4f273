// Package identity reads from a certificate to whom it belongs: a user, a node, or the head of a
// cluster. Its organizational unit says which: muster cert writes one into the certificates of
// nodes and heads, and none into those of users. So a node cannot pose as a user, nor a user as a
// node, although one authority vouches for all.
//
// It knows no connection, and does not check who vouches: TLS has done that.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is what the holder of a certificate is. Any unit other than those below means a user: sites
// that issue their own certificates write units of their own.
type Kind string

// The kinds, as certificates write them.
const (
	User Kind = ""
	Node Kind = "muster node"
	Head Kind = "muster head"
)

// KindOf returns the kind of a certificate's holder.
func KindOf(c *x509.Certificate) Kind {
	for _, unit := range c.Subject.OrganizationalUnit {
		switch kind := Kind(unit); kind {
		case Node, Head:
			return kind
		}
	}
	return User
}

// maxName is how many bytes a user's name may have.
const maxName = 64

// UserOf returns the name of the user of a certificate, or why it is not a user's.
func UserOf(c *x509.Certificate) (string, error) {
	if kind := KindOf(c); kind != User {
		return "", fmt.Errorf("the certificate is that of a %s, not of a user: use one that muster cert --user made", kind)
	}
	name := c.Subject.CommonName
	if err := CheckUser(name); err != nil {
		return "", fmt.Errorf("the certificate's common name: %w", err)
	}
	return name, nil
}

// CheckUser says why a name cannot be a user's, wherever it comes from.
func CheckUser(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a user's name of %d bytes: it must have 1 to %d", len(name), maxName)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return fmt.Errorf("%q cannot be a user's name", name)
		}
	}
	return nil
}

// IsNode refuses a certificate that is not that of the node with this name.
func IsNode(c *x509.Certificate, name string) error {
	if KindOf(c) != Node {
		return fmt.Errorf("the certificate of %q is not that of a node: make one with muster cert --host", c.Subject.CommonName)
	}
	if names := NodeNames(c); !slices.Contains(names, name) {
		for i := range names {
			names[i] = strconv.Quote(names[i])
		}
		return fmt.Errorf("the certificate is for %s, not for node %q: give the node one of these names (--name), or make a certificate for its own (muster cert --host)", strings.Join(names, ", "), name)
	}
	return nil
}

// NodeNames are the names by which a certificate's node may be known.
func NodeNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if c.Subject.CommonName != "" && !slices.Contains(names, c.Subject.CommonName) {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// IsHead refuses a certificate that is not that of a head. Whether it is the head that was dialled,
// TLS has checked by its host name.
func IsHead(c *x509.Certificate) error {
	if KindOf(c) != Head {
		return fmt.Errorf("the certificate of %q is not that of a head: make one with muster cert --head", c.Subject.CommonName)
	}
	return nil
}

// alerts says what a server's alerts mean to the holder of the certificate that it refuses, or would
// not look at: while its own list of revoked certificates cannot be used, it has an internal error
// (wire/trust). There is an alert for revoked certificates, but Go's servers cannot send it: what a server's own check
// refuses, as that of the list of revoked certificates, is a bad certificate to its caller.
var alerts = []struct{ alert, meaning string }{
	{"bad certificate", "your certificate is refused, as it was revoked or is not one for this: ask an administrator, who sees with muster cert list which were revoked and makes a new one with muster cert"},
	{"revoked certificate", "your certificate was revoked: ask an administrator for a new one, which muster cert makes"},
	{"expired certificate", "your certificate has expired, or your clock or the other one is wrong: ask an administrator for a new one, which muster cert makes"},
	{"unknown certificate authority", "your certificate was made by another authority: ask an administrator for one that muster cert makes in the folder of this cluster"},
	{"internal error", "it cannot check certificates now, most likely since its list of revoked ones (revoked.pem) is broken, which is no fault of yours: its administrator has to mend that, and finds in its log what is wrong"},
}

// Refusal is a server's alert in words.
type Refusal struct {
	meaning string
	alert   error
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s (%v)", r.meaning, r.alert) }
func (r *Refusal) Unwrap() error { return r.alert }

// Refused puts into words what a server's alert says of the certificate that its caller has shown,
// and what the caller can do: the result is or has a *Refusal. It returns any other error as it is.
func Refused(err error) error {
	if known := new(Refusal); err == nil || errors.As(err, &known) {
		return err
	}
	text := err.Error()
	for _, a := range alerts {
		if strings.Contains(text, "remote error: tls: "+a.alert) {
			return &Refusal{a.meaning, err}
		}
	}
	return err
}
