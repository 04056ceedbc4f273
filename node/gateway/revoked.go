package gateway

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"slices"
	"time"

	"muster/internal/wholefile"
	"muster/wire/trust"
)

// issuedFolder has a copy of each certificate that an authority issued, by serial number: the
// folders themselves are given away.
const issuedFolder = "issued"

// Issued is a certificate that an authority issued.
type Issued struct {
	Name    string    `json:"name"` // of its folder: user-alice, node-gpu1
	Serial  string    `json:"serial"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	Revoked bool      `json:"revoked"`
	number  *big.Int
}

// Worth says in a word what the certificate is worth.
func (c *Issued) Worth(now time.Time) string {
	switch {
	case c.Revoked:
		return "revoked"
	case now.After(c.Until):
		return "expired"
	}
	return "good"
}

// List returns the certificates that the authority issued, by name and then by date.
func (a *Authority) List() ([]Issued, error) {
	files, err := filepath.Glob(filepath.Join(a.dir, "*", "*.pem"))
	if err != nil {
		return nil, err
	}
	revoked, err := trust.ReadRevoked(filepath.Join(a.dir, trust.FileRevoked), []*x509.Certificate{a.cert})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list := []Issued{} // JSON has an empty list, never null
	seen := map[string]bool{trust.Serial(a.cert.SerialNumber): true}
	for _, file := range files {
		c := readCertificate(file)
		if c == nil || seen[trust.Serial(c.SerialNumber)] || c.CheckSignatureFrom(a.cert) != nil {
			continue // a key, or a certificate of another authority
		}
		number := trust.Serial(c.SerialNumber)
		seen[number] = true
		list = append(list, Issued{Name: trust.NameOf(c), Serial: number, From: c.NotBefore, Until: c.NotAfter, Revoked: revoked.Has(c), number: c.SerialNumber})
	}
	slices.SortFunc(list, func(x, y Issued) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), x.From.Compare(y.From), cmp.Compare(x.Serial, y.Serial))
	})
	return list, nil
}

// Revoke revokes the certificates with one of the names or serial numbers. It returns them, and the
// files that it wrote: the authority's own list, and those in the folders that are still here.
func (a *Authority) Revoke(names []string) (revoked []Issued, written []string, err error) {
	list, err := a.List()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		known := false
		for i := range list {
			if list[i].Name == name || list[i].Serial == name {
				known, list[i].Revoked = true, true
				revoked = append(revoked, list[i])
			}
		}
		if !known {
			return nil, nil, fmt.Errorf("the authority in %s made no certificate %q: muster cert list %s shows what it made", a.dir, name, a.dir)
		}
	}
	text, err := a.signList(list)
	if err != nil {
		return nil, nil, err
	}
	written = []string{filepath.Join(a.dir, trust.FileRevoked)}
	for _, kind := range []string{"node-*", "head-*"} {
		folders, _ := filepath.Glob(filepath.Join(a.dir, kind))
		for _, folder := range folders {
			written = append(written, filepath.Join(folder, trust.FileRevoked))
		}
	}
	for _, file := range written {
		if err := wholefile.Replace(file, text, 0o600); err != nil {
			return nil, nil, err
		}
	}
	return revoked, written, nil
}

// signList returns the signed list of the revoked certificates.
func (a *Authority) signList(list []Issued) ([]byte, error) {
	signer, ok := a.key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of the authority in %s cannot sign", a.dir)
	}
	number := big.NewInt(a.now.UnixNano())
	before, err := trust.ReadRevoked(filepath.Join(a.dir, trust.FileRevoked), []*x509.Certificate{a.cert})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if last := before.Number(); last != nil && last.Cmp(number) >= 0 { // the clock was ahead then: nobody takes a list with a lower number
		number.Add(last, big.NewInt(1))
	}
	template := &x509.RevocationList{Number: number, ThisUpdate: a.now, NextUpdate: a.now.AddDate(0, 0, authorityDays)}
	for _, c := range list {
		if c.Revoked {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.number, RevocationTime: a.now})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.cert, signer)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), nil
}

var certificateLimit = wholefile.Limit{Bytes: 1 << 20, Remedy: "is it a certificate that muster cert made?"}

// readCertificate reads a certificate; nil if the file has none.
func readCertificate(file string) *x509.Certificate {
	text, err := certificateLimit.ReadFile(file)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}
