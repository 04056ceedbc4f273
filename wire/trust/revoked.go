package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"muster/internal/wholefile"
	"muster/wire/identity"
)

// FileRevoked lists the revoked certificates: an X.509 revocation list that the authority signs. It
// lies beside the authority's certificate.
const FileRevoked = "revoked.pem"

var revokedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a list that muster cert revoke made?"}

// ReadRevoked reads the serial numbers in a revocation list. One of the authorities must have
// signed it. A file without a list is no empty list: it is being copied, or the disk was full.
func ReadRevoked(file string, authorities []*x509.Certificate) (map[string]bool, error) {
	text, err := revokedLimit.ReadFile(file)
	if err != nil {
		return nil, err
	}
	revoked := map[string]bool{}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("%s is no list of certificates that muster cert revoke made: %s", file, mendList)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s is no list of certificates that muster cert revoke made (%w): %s", file, err, mendList)
		}
		if !slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return list.CheckSignatureFrom(a) == nil }) {
			return nil, fmt.Errorf("the list of revoked certificates %s was not signed by the authority beside it: %s", file, mendList)
		}
		for _, entry := range list.RevokedCertificateEntries {
			revoked[Serial(entry.SerialNumber)] = true
		}
		if len(bytes.TrimSpace(rest)) == 0 {
			return revoked, nil
		}
	}
}

const mendList = "copy the one that muster cert revoke wrote, or remove the file if nothing was revoked"

// Revoked says that a certificate was revoked.
type Revoked struct{ Certificate *x509.Certificate }

func (r *Revoked) Error() string {
	return fmt.Sprintf("the certificate %s of %s was revoked: its owner needs a new one (muster cert)", Serial(r.Certificate.SerialNumber), NameOf(r.Certificate))
}

// BrokenList says that a list of revoked certificates cannot be used, so that nobody is let in. It is
// no fault of those who connect. The same value is returned until the file changes or the reason does.
type BrokenList struct {
	File string
	Err  error

	found fs.FileInfo // the file as it was read; nil if it could not be, which may pass by itself
	told  atomic.Bool
}

func (b *BrokenList) Error() string { return b.Err.Error() }
func (b *BrokenList) Unwrap() error { return b.Err }

// Tell logs what is wrong, once for each state of the file: anyone could fill the log by connecting.
func (b *BrokenList) Tell(log *slog.Logger) {
	if !b.told.Swap(true) {
		log.Error("nobody who uses TLS is let in, since the list of revoked certificates cannot be used: an administrator has to mend it", "file", b.File, "error", b.Err)
	}
}

// revocations refuses peers with a revoked certificate. It reads the list again when the file has
// changed, so nothing has to be restarted. While the list cannot be read all peers are refused.
type revocations struct {
	file        string
	authorities []*x509.Certificate

	mu      sync.Mutex
	seen    fs.FileInfo // of the list that was read; nil if there was none
	revoked map[string]bool
	broken  *BrokenList // nil if the list can be used
}

// list returns the serial numbers that are revoked. An error is a *BrokenList.
func (r *revocations) list() (map[string]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.seen, r.revoked, r.broken = nil, nil, nil
		return nil, nil
	case err != nil:
		return nil, r.trouble(nil, err)
	case r.broken != nil && same(r.broken.found, info):
		return nil, r.broken
	case r.broken == nil && same(r.seen, info):
		return r.revoked, nil
	}
	revoked, err := ReadRevoked(r.file, r.authorities)
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread):
		return nil, r.trouble(nil, err)
	case err != nil:
		return nil, r.trouble(info, err)
	}
	r.seen, r.revoked, r.broken = info, revoked, nil
	return revoked, nil
}

// trouble is the error of a list that cannot be used. A file that could not be read is tried again
// each time, and the error is the former one as long as it says the same.
func (r *revocations) trouble(found fs.FileInfo, err error) error {
	if b := r.broken; b == nil || found != nil || b.found != nil || b.Error() != err.Error() {
		r.broken = &BrokenList{File: r.file, Err: err, found: found}
	}
	return r.broken
}

// same says whether a file was not changed between two looks; a is nil if there was no first one.
func same(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// check is meant for tls.Config.VerifyConnection. An error is a *Revoked or a *BrokenList.
func (r *revocations) check(s tls.ConnectionState) error {
	revoked, err := r.list()
	if err != nil {
		return err
	}
	for _, c := range s.PeerCertificates {
		if revoked[Serial(c.SerialNumber)] {
			return &Revoked{c}
		}
	}
	return nil
}

// StillGood looks again at certificates that were shown when a connection began. The error is a
// *Revoked if one of them was revoked since. A list that cannot be used meanwhile is a *BrokenList: it
// is no reason to end connections.
func StillGood(own *tls.Config, shown []*x509.Certificate) error {
	if own == nil || own.VerifyConnection == nil || len(shown) == 0 {
		return nil
	}
	return own.VerifyConnection(tls.ConnectionState{PeerCertificates: shown})
}

// NameOf returns the name of the folder that a certificate was made for.
func NameOf(c *x509.Certificate) string {
	kind := map[identity.Kind]string{identity.Node: "node-", identity.Head: "head-", identity.User: "user-"}[identity.KindOf(c)]
	return kind + strings.ReplaceAll(c.Subject.CommonName, ":", "_")
}

// Serial is a serial number as lists and people write it.
func Serial(n *big.Int) string { return fmt.Sprintf("%x", n) }
