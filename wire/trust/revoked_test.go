package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/wire/identity"
)

// maker makes certificates and lists for tests. All have the same name, as authorities of muster cert
// do.
type maker struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newMaker(t *testing.T) *maker {
	m := &maker{t: t}
	pair := m.make(x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, Subject: pkix.Name{CommonName: "Muster authority"}})
	m.cert, m.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return m
}

// make signs a certificate, with its own key if there is no authority yet.
func (m *maker) make(template x509.Certificate) tls.Certificate {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(1)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	parent, signer := m.cert, m.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		m.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		m.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// node is a certificate of a node.
func (m *maker) node(name string, serial int64) tls.Certificate {
	m.t.Helper()
	return m.make(x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{string(identity.Node)}}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// list is a list of revoked serial numbers.
func (m *maker) list(serials ...int64) []byte {
	m.t.Helper()
	return m.numbered(1, serials...)
}

// numbered is a list with a number of its own.
func (m *maker) numbered(number int64, serials ...int64) []byte {
	m.t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, m.cert, m.key)
	if err != nil {
		m.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// believing is the configuration of one who believes some authorities, with a list in a file.
func believing(t *testing.T, list []byte, makers ...*maker) (own *tls.Config, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), FileRevoked)
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, m := range makers {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.cert.Raw}))
	}
	own, err := BelieveText(text.String(), file)
	if err != nil {
		t.Fatal(err)
	}
	return own, file
}

// refusal is why a server refuses a caller with a certificate; nil if it does not.
func refusal(t *testing.T, server *tls.Config, shows tls.Certificate) error {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		c := tls.Client(far, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shows}}) // what it thinks of the server does not matter
		if c.Handshake() == nil {
			_, _ = c.Read(make([]byte, 1))
		}
	}()
	return tls.Server(near, server).Handshake()
}

func listening(own *tls.Config, shows tls.Certificate) *tls.Config {
	own = own.Clone()
	own.Certificates = []tls.Certificate{shows}
	return Listen(own, tls.RequireAndVerifyClientCert, slog.New(slog.DiscardHandler))
}

// A caller may send certificates that nobody vouches for, or that are another's. They revoke nobody, and
// forged ones are in no list of those whom the authority knows.
func TestForgedCertificatesDoNotCount(t *testing.T) {
	m := newMaker(t)
	own, _ := believing(t, m.list(7), m)
	server := listening(own, m.node("server", 2))
	forged := newMaker(t).node("evil\x1b[2J", 7)
	for what, other := range map[string]tls.Certificate{"a forged": forged, "another's revoked": m.node("n2", 7)} {
		good := m.node("n1", 3)
		good.Certificate = append(good.Certificate, other.Certificate...)
		if err := refusal(t, server, good); err != nil {
			t.Errorf("a good certificate beside %s one is refused: %v", what, err)
		}
	}
	if c := Known(server, &Revoked{Certificate: forged.Leaf}); c != nil {
		t.Errorf("a forged certificate is known: %s", c.Subject)
	}
	err := refusal(t, server, m.node("n2\x1b[2J", 7))
	if revoked := new(Revoked); !errors.As(err, &revoked) {
		t.Fatalf("a revoked certificate: %v", err)
	}
	if c := Known(server, err); c == nil || c.Subject.CommonName != "n2\x1b[2J" {
		t.Errorf("a revoked certificate is not known: %v", err)
	}
	if text := err.Error(); !strings.Contains(text, `of "node-n2\x1b[2J" was revoked`) {
		t.Errorf("the error is %q", text)
	}
}

// Whom an authority knows, it knows also if the certificate is to be valid for longer than the
// authority's own.
func TestCertificateOutlivesItsAuthority(t *testing.T) {
	m := newMaker(t)
	own, _ := believing(t, m.list(), m)
	long := m.make(x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: m.cert.NotBefore, NotAfter: m.cert.NotAfter.Add(time.Second)})
	if Known(own, &Revoked{Certificate: long.Leaf}) == nil {
		t.Error("it is not known")
	}
}

// A list has the serial numbers of its own authority, and means no certificate of another one.
func TestListIsOfOneAuthority(t *testing.T) {
	a, b := newMaker(t), newMaker(t)
	own, _ := believing(t, a.list(7), a, b)
	server := listening(own, a.node("server", 2))
	if err := refusal(t, server, a.node("n1", 7)); err == nil {
		t.Error("a revoked certificate is accepted")
	}
	if err := refusal(t, server, b.node("n1", 7)); err != nil {
		t.Errorf("another authority's certificate of that number is refused: %v", err)
	}
	if err := StillGood(own, []*x509.Certificate{a.node("n1", 7).Leaf}); err == nil {
		t.Error("it counts as still good")
	}
}

// A broken list that is mended in place, so that the file looks as before, is read again.
func TestBrokenListDoesNotStick(t *testing.T) {
	m := newMaker(t)
	good := m.list(7)
	file := filepath.Join(t.TempDir(), FileRevoked)
	at := time.Now().Add(-time.Hour)
	write := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	r := &revocations{file: file, authorities: []*x509.Certificate{m.cert}, now: func() time.Time { return now }}
	write([]byte(strings.Repeat("x", len(good))))
	_, first := r.list()
	if first == nil {
		t.Fatal("it is no list")
	}
	now = now.Add(brokenFor)
	if _, again := r.list(); again != first {
		t.Errorf("it is as broken as before, and the error is another: %v", again)
	}
	write(good)
	if _, err := r.list(); err != first {
		t.Errorf("it is read at each look: %v", err)
	}
	now = now.Add(brokenFor)
	if list, err := r.list(); err != nil || !list.Has(m.node("n1", 7).Leaf) {
		t.Errorf("the list was mended: %v", err)
	}
}

// What is wrong with a list is in the log before a caller is refused for it.
func TestBrokenListIsToldFirst(t *testing.T) {
	m := newMaker(t)
	own, file := believing(t, m.list(7), m)
	if err := os.WriteFile(file, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	server := Listen(own, tls.RequireAndVerifyClientCert, slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		if _, err := server.GetConfigForClient(nil); err == nil {
			t.Error("a broken list is no reason to refuse")
		}
	}
	if strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), file) {
		t.Errorf("the log has %q", log.String())
	}
}

// Both sides say which certificate has expired, and what the caller's is not for.
func TestExplainedByKind(t *testing.T) {
	node := newMaker(t).node("n1", 3).Leaf
	old := &x509.Certificate{IsCA: true, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(86400, 0)}
	expired := x509.CertificateInvalidError{Cert: old, Reason: x509.Expired}
	const authority = "the authority that made the certificate of n1 is good from 1970-01-01 to 1970-01-02 only, and "
	if err := Explain("n1", nil, expired); !strings.HasPrefix(err.Error(), authority+"this machine's clock") || !strings.Contains(err.Error(), "make a new authority") {
		t.Errorf("an authority: %v", err)
	}
	if err := ExplainCaller(node, expired); !strings.HasPrefix(err.Error(), authority+"the clock of the machine that it calls") {
		t.Errorf("a caller's authority: %v", err)
	}
	expired.Cert = node
	if err := ExplainCaller(node, expired); !strings.Contains(err.Error(), "says otherwise: set the clock that is wrong, or make a new certificate with muster cert DIR --host n1") {
		t.Errorf("a caller: %v", err)
	}
	if err := ExplainCaller(node, x509.CertificateInvalidError{Cert: node, Reason: x509.IncompatibleUsage}); !strings.Contains(err.Error(), "is not for calling others") {
		t.Errorf("a caller with another usage: %v", err)
	}
}

// A list that was there and is missing readmits nobody, neither in the same process nor in the next.
func TestMissingListReadmitsNobody(t *testing.T) {
	m := newMaker(t)
	dir := t.TempDir()
	file := filepath.Join(dir, FileRevoked)
	authorities := []*x509.Certificate{m.cert}
	r := &revocations{file: file, authorities: authorities, now: time.Now}
	if _, err := r.list(); err != nil {
		t.Fatalf("there never was a list: %v", err)
	}
	text := m.list(7)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.list(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	next := &revocations{file: file, authorities: authorities, now: time.Now}
	for _, each := range []*revocations{r, next} {
		var broken *BrokenList
		if _, err := each.list(); !errors.As(err, &broken) || !strings.Contains(err.Error(), "is missing, and there was one: copy the one that muster cert revoke wrote") {
			t.Errorf("without the list: %v", err)
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, each := range []*revocations{r, next} {
		if _, err := each.list(); err != nil {
			t.Errorf("the list is back: %v", err)
		}
	}
	// An administrator who wants no list says so.
	if err := errors.Join(os.Remove(file), os.Remove(file+seenSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&revocations{file: file, authorities: authorities, now: time.Now}).list(); err != nil {
		t.Error(err)
	}
}

// An older list readmits nobody whom a newer one names, neither in the same process nor in the next. Of
// several authorities each counts for itself, and one that is no longer believed does not count.
func TestOlderListReadmitsNobody(t *testing.T) {
	m, other := newMaker(t), newMaker(t)
	file := filepath.Join(t.TempDir(), FileRevoked)
	both := []*x509.Certificate{m.cert, other.cert}
	r := &revocations{file: file, authorities: both, now: time.Now}
	put := func(lists ...[]byte) {
		t.Helper()
		next := file + ".next"
		if err := errors.Join(os.WriteFile(next, bytes.Join(lists, nil), 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, accepted bool) {
		t.Helper()
		next := &revocations{file: file, authorities: both, now: time.Now}
		for _, each := range []*revocations{r, next} {
			_, err := each.list()
			var broken *BrokenList
			if accepted && err != nil || !accepted && (!errors.As(err, &broken) || !strings.Contains(err.Error(), "is older than one that was read before: copy the newest")) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	old := m.numbered(5, 7)
	put(old, other.numbered(1, 3))
	check("the first", true)
	put(m.numbered(6, 7, 8), other.numbered(1, 3))
	check("a newer one", true)
	put(old, other.numbered(2, 3))
	check("an older one, beside a newer one of another authority", false)
	put(other.numbered(2, 3))
	check("without that of an authority", false)
	put(m.numbered(7, 7, 8), other.numbered(2, 3))
	check("a newer one again", true)
	both = both[1:]
	put(other.numbered(3, 3))
	r = &revocations{file: file, authorities: both, now: time.Now}
	check("the other authority's alone, which alone is believed", true)
	// An administrator who has to go back says so.
	put(other.numbered(1))
	if err := os.Remove(file + seenSuffix); err != nil {
		t.Fatal(err)
	}
	r = &revocations{file: file, authorities: both, now: time.Now}
	check("an older one, by an administrator's will", true)
	if err := os.WriteFile(file+seenSuffix, []byte("newest x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (&revocations{file: file, authorities: both, now: time.Now}).list(); err == nil || !strings.Contains(err.Error(), seenSuffix) {
		t.Errorf("with a mark that nobody wrote: %v", err)
	}
}
