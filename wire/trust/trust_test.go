package trust

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever is found in place of a certificate, the result is an error.
func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	if _, err := Believe("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero is a device: name a file") {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "user.pem"), filepath.Join(dir, "user-key.pem")
	for path, text := range map[string]string{cert: "", key: strings.Repeat("x", 2<<20)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadPair(cert, key); err == nil || !strings.HasSuffix(err.Error(), "user-key.pem: larger than 1MiB: is it a certificate or key in PEM form?") {
		t.Errorf("got %v", err)
	}
	if _, err := LoadPair(dir, key); err == nil || !strings.HasSuffix(err.Error(), "is a folder: name a file in it") {
		t.Errorf("got %v", err)
	}
}

// Who has no authority believes nobody: without one TLS would believe everybody whom the system does.
func TestNobodyIsBelievedWithoutAnAuthority(t *testing.T) {
	if to := Dial(&tls.Config{}, Anyone); to.RootCAs == nil {
		t.Error("the system's authorities count")
	}
}
