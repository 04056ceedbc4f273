package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/wire/identity"
)

// Explain puts into words why a handshake with a host has failed, and what to do. It returns what it
// does not know as it is.
func Explain(host string, own *tls.Config, err error) error {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &x509.UnknownAuthorityError{}) || errors.As(err, &unverified) && foreign(own, unverified.UnverifiedCertificates):
		return explained{fmt.Sprintf("the certificate of %s was made by another authority than the one that is believed here (ca.pem in the folder of --tls-dir, or tls.ca): "+
			"use a folder that muster cert made with the authority of %s, or, if ca.pem is an old one, copy that authority's", host, host), err}
	case errors.As(err, &name) && namesIn(name.Certificate) == "", errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return explained{fmt.Sprintf("the certificate of %s is not one for a machine that is called, as a user's is not: give it the folder of a node or a head, which muster cert --host or --head makes", host), err}
	case errors.As(err, &name):
		return explained{fmt.Sprintf("the certificate of %s is for %s: use one of these names, or make a certificate for this one with muster cert DIR %s %s",
			host, namesIn(name.Certificate), flagFor(name.Certificate), host), err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		return explained{expiredAuthority(host, invalid.Cert) + ", and this machine's clock says otherwise: set the clock, or make a new authority and new certificates with muster cert in a new folder", err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return explained{fmt.Sprintf("the certificate of %s is good from %s to %s only, and this machine's clock says otherwise: set the clock, or make a new certificate with muster cert DIR %s %s",
			host, day(invalid.Cert.NotBefore), day(invalid.Cert.NotAfter), flagFor(invalid.Cert), host), err}
	}
	return identity.Refused(err)
}

// ExplainCaller is Explain for the one who was called: why it has refused a caller's certificate, as
// the owner of that certificate is told in a list or a log.
func ExplainCaller(c *x509.Certificate, err error) error {
	const clock = ", and the clock of the machine that it calls says otherwise: set the clock that is wrong, or "
	var invalid x509.CertificateInvalidError
	name := Quoted(c.Subject.CommonName)
	switch {
	case !errors.As(err, &invalid):
		return err
	case invalid.Reason == x509.IncompatibleUsage:
		return explained{fmt.Sprintf("the certificate of %s is not for calling others (it lacks the key usage clientAuth): make a new one with muster cert DIR %s %s", name, flagFor(c), name), err}
	case invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		return explained{expiredAuthority(name, invalid.Cert) + clock + "make a new authority and new certificates with muster cert in a new folder", err}
	case invalid.Reason == x509.Expired:
		return explained{fmt.Sprintf("the certificate of %s is good from %s to %s only%smake a new certificate with muster cert DIR %s %s",
			name, day(c.NotBefore), day(c.NotAfter), clock, flagFor(c), name), err}
	}
	return err
}

func expiredAuthority(holder string, ca *x509.Certificate) string {
	return fmt.Sprintf("the authority that made the certificate of %s is good from %s to %s only", holder, day(ca.NotBefore), day(ca.NotAfter))
}

// explained is an error in words of ours. The error of TLS can be found in it, but is not repeated.
type explained struct {
	words string
	err   error
}

func (e explained) Error() string { return e.words }
func (e explained) Unwrap() error { return e.err }

// foreign says whether no authority that is believed has made a certificate. TLS looks at its names
// first. What names a stranger has is no advice.
func foreign(own *tls.Config, shown []*x509.Certificate) bool {
	if own == nil || len(shown) == 0 {
		return false
	}
	_, err := shown[0].Verify(x509.VerifyOptions{Roots: own.RootCAs, Intermediates: poolOf(shown[1:]), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return errors.As(err, &x509.UnknownAuthorityError{})
}

func poolOf(all []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool
}

// Known returns the certificate of a caller whom a handshake has refused with an error, if an authority
// that is believed has made it: it was revoked, or has expired. Otherwise it returns nil.
func Known(own *tls.Config, refused error) *x509.Certificate {
	var revoked *Revoked
	var unverified *tls.CertificateVerificationError
	var shown []*x509.Certificate
	switch {
	case errors.As(refused, &revoked):
		shown = append([]*x509.Certificate{revoked.Certificate}, revoked.chain...)
	case errors.As(refused, &unverified):
		shown = unverified.UnverifiedCertificates
	}
	if len(shown) == 0 || own.ClientCAs == nil { // without an authority Verify asks the system
		return nil
	}
	c := shown[0]
	for _, valid := range []time.Time{c.NotAfter, c.NotBefore} { // its authority may end before it, or begin after it
		_, err := c.Verify(x509.VerifyOptions{Roots: own.ClientCAs, Intermediates: poolOf(shown[1:]), CurrentTime: valid, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			return c
		}
	}
	return nil
}

// flagFor is the flag of muster cert that makes a certificate of the same kind.
func flagFor(c *x509.Certificate) string {
	if identity.KindOf(c) == identity.Head {
		return "--head"
	}
	return "--host"
}

// namesIn lists the names that TLS takes from a certificate.
func namesIn(c *x509.Certificate) string {
	const most = 8
	names := []string{}
	for _, name := range c.DNSNames {
		names = append(names, Quoted(name))
	}
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
