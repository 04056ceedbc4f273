package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/wire/client"
	"muster/wire/identity"
	"muster/wire/trust"
)

func TestCertificatesSayWhatTheyShould(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	authority, made, err := OpenAuthority(dir, now)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	node, err := authority.Node([]string{"gpu1", "10.0.0.7", "::1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	user, err := authority.User("ada", 30)
	if err != nil {
		t.Fatal(err)
	}
	head, err := authority.Head([]string{"head1"}, 30)
	if err != nil {
		t.Fatal(err)
	}
	believed, err := trust.Believe(filepath.Join(node, client.FileCA))
	if err != nil {
		t.Fatal(err)
	}
	load := func(folder, cert, key string) *x509.Certificate {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, cert), filepath.Join(folder, key))
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	nodeCert, userCert := load(node, FileNode, FileNodeKey), load(user, client.FileUser, client.FileUserKey)
	headCert := load(head, FileHead, FileHeadKey)
	if _, err := identity.UserOf(nodeCert); err == nil || identity.IsNode(nodeCert, "gpu1") != nil || identity.IsHead(headCert) != nil || identity.KindOf(userCert) != identity.User {
		t.Error("the certificates do not say whose they are")
	}
	for _, c := range []struct {
		cert *x509.Certificate
		use  x509.ExtKeyUsage
		host string
		day  int
		good bool
	}{
		{nodeCert, x509.ExtKeyUsageServerAuth, "gpu1", 1, true},
		{nodeCert, x509.ExtKeyUsageServerAuth, "10.0.0.7", 1, true},
		{nodeCert, x509.ExtKeyUsageServerAuth, "::1", 29, true},
		{nodeCert, x509.ExtKeyUsageServerAuth, "gpu2", 1, false},
		{nodeCert, x509.ExtKeyUsageServerAuth, "gpu1", 31, false},
		{nodeCert, x509.ExtKeyUsageServerAuth, "gpu1", -1, false},
		{nodeCert, x509.ExtKeyUsageClientAuth, "", 1, true}, // to show a head who it is
		{headCert, x509.ExtKeyUsageServerAuth, "head1", 1, true},
		{headCert, x509.ExtKeyUsageClientAuth, "", 1, true}, // to show another head who it is
		{userCert, x509.ExtKeyUsageClientAuth, "", 1, true},
		{userCert, x509.ExtKeyUsageServerAuth, "", 1, false},
	} {
		_, err := c.cert.Verify(x509.VerifyOptions{Roots: believed.RootCAs, DNSName: c.host, CurrentTime: now.AddDate(0, 0, c.day), KeyUsages: []x509.ExtKeyUsage{c.use}})
		if (err == nil) != c.good {
			t.Errorf("%s for %v as %q on day %d: %v", c.cert.Subject, c.use, c.host, c.day, err)
		}
	}
	if userCert.Subject.CommonName != "ada" {
		t.Errorf("the user is %s", userCert.Subject)
	}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm()&0o077 != 0 && path != dir {
			t.Errorf("others may use %s: %v", path, info.Mode())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, made, err := OpenAuthority(dir, now); made || err != nil {
		t.Errorf("the authority was made anew: %v", err)
	}
}

func TestLoadHead(t *testing.T) {
	dir := t.TempDir()
	if config, err := LoadHead(""); config != nil || err != nil {
		t.Errorf("without a folder: %v, %v", config, err)
	}
	if _, err := ExistingAuthority(dir, time.Now()); err == nil || !strings.Contains(err.Error(), "there is no authority in "+dir) {
		t.Errorf("an empty folder: %v", err)
	}
	a, _, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ExistingAuthority(dir, time.Now()); err != nil {
		t.Error(err)
	}
	head, err := a.Head([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	node, err := a.Node([]string{"localhost"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := LoadHead(head); err != nil || len(config.Certificates) != 1 || config.ClientCAs == nil {
		t.Errorf("got %+v, %v", config, err)
	}
	if _, err := LoadHead(node); err == nil || !strings.Contains(err.Error(), "is not a head's folder: give the one that muster cert --head made") {
		t.Errorf("a node's folder: %v", err)
	}
}

func TestWorth(t *testing.T) {
	now := time.Now()
	for want, c := range map[string]Issued{
		"good": {Until: now.Add(time.Hour)}, "expired": {Until: now.Add(-time.Hour)}, "revoked": {Until: now.Add(-time.Hour), Revoked: true},
	} {
		if got := c.Worth(now); got != want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
