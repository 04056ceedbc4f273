package fetch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/slurm/release"
)

// debs builds small packages that stand for a release; they are laid out as in older distributions
// of Debian, without links from /bin to /usr/bin.
func debs(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		need.Missing(t, need.Debian, "there is no dpkg-deb: packages cannot be built or unpacked here")
	}
	dir := t.TempDir()
	var made []string
	for name, files := range map[string][]string{
		"slurm":  {"usr/sbin/slurmctld-wlm", "usr/sbin/slurmd-wlm", "usr/sbin/slurmrestd", "usr/sbin/munged", "usr/bin/sbatch", "usr/include/slurm/spank.h", "etc/default/slurmd", "usr/share/doc/slurm/README"},
		"system": {"bin/bash", "usr/bin/mawk", "lib/libc.so.6"},
	} {
		root := filepath.Join(dir, name)
		for _, f := range files {
			write(t, filepath.Join(root, f), "this is "+f)
		}
		write(t, filepath.Join(root, "DEBIAN/control"), "Package: "+name+"\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: for a test\n")
		if name == "system" {
			if err := os.Link(filepath.Join(root, "bin/bash"), filepath.Join(root, "bin/rbash")); err != nil {
				t.Fatal(err)
			}
		}
		deb := filepath.Join(dir, name+".deb")
		if out, err := exec.Command("dpkg-deb", "--root-owner-group", "-b", root, deb).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		made = append(made, deb)
	}
	return made
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func unpacked(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "tree")
	if err := unpack(t.Context(), debs(t), folder, "26.05.5-1"); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestUnpack(t *testing.T) {
	folder := unpacked(t)
	for name, want := range map[string]string{
		"bin/bash": "this is bin/bash", "usr/bin/rbash": "this is bin/bash", "usr/bin/sh": "this is bin/bash",
		"usr/sbin/slurmctld": "this is usr/sbin/slurmctld-wlm", "sbin/slurmd": "this is usr/sbin/slurmd-wlm",
		"usr/bin/awk": "this is usr/bin/mawk", "lib/libc.so.6": "this is lib/libc.so.6",
	} {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"etc", "usr/share/doc", "var"} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			t.Errorf("%s was unpacked", name)
		}
	}
	for _, thoroughly := range []bool{false, true} {
		if version, err := check(folder, thoroughly); err != nil || version != "26.05.5-1" {
			t.Errorf("thoroughly %v: %q, %v", thoroughly, version, err)
		}
	}
}

func TestUnpackMissesWhatSlurmNeeds(t *testing.T) {
	packages := slices.DeleteFunc(debs(t), func(p string) bool { return strings.HasSuffix(p, "system.deb") })
	err := unpack(t.Context(), packages, filepath.Join(t.TempDir(), "tree"), "1")
	if err == nil || !strings.Contains(err.Error(), "the packages have no usr/bin/bash") {
		t.Errorf("got %v", err)
	}
}

func TestBrokenPackage(t *testing.T) {
	deb := debs(t)[0]
	text, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(deb, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unpack(t.Context(), []string{deb}, filepath.Join(t.TempDir(), "tree"), "1"); err == nil {
		t.Error("half a package was unpacked")
	}
}

// Any damage to the cache is found before a daemon starts from it.
func TestCheckFindsDamage(t *testing.T) {
	const file = "usr/sbin/slurmctld-wlm"
	for _, c := range []struct {
		name, want string
		do         func(path string) error
	}{
		{"gone", file + " is missing", os.Remove},
		{"cut short", file + " was changed", func(p string) error { return os.Truncate(p, 3) }},
		{"newer", file + " was changed", func(p string) error { return os.Chtimes(p, time.Time{}, time.Unix(77, 0)) }},
		{"a link", file + " was changed", func(p string) error { os.Remove(p); return os.Symlink("/bin/true", p) }},
		{"other bytes", file + " was changed inside", func(p string) error {
			info, err := os.Stat(p)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(p, []byte(strings.Repeat("x", int(info.Size()))), 0o755), os.Chtimes(p, info.ModTime(), info.ModTime()))
		}},
		{"no manifest", "no such file", os.Remove},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := unpacked(t)
			path := filepath.Join(folder, file)
			if c.name == "no manifest" {
				path = filepath.Join(folder, manifestName)
			}
			if err := c.do(path); err != nil {
				t.Fatal(err)
			}
			if _, err := check(folder, true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestManifestLines(t *testing.T) {
	sum := strings.Repeat("0", 64)
	for _, line := range []string{"", "file", "file\ta\t1\t2", "file\t../a\t1\t2\t" + sum, "file\ta\tx\t2\t" + sum, "link\t/a\tb", "other\ta\tb", "file\ta\t1\t2\tshort"} {
		if e, err := parseEntry(line); err == nil {
			t.Errorf("%q was taken: %v", line, e)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	for name, want := range map[string]string{
		"./usr/bin/x": "usr/bin/x", "./bin/x": "usr/bin/x", "lib64/ld.so": "usr/lib64/ld.so", "/sbin/x": "usr/sbin/x",
		"./": "", "bin": "", "../etc/passwd": "", "./usr/../../x": "", "etc/passwd": "", "./usr/share/doc/x/y": "", "usr/share/docs": "usr/share/docs",
	} {
		got, ok := placeOf(name)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
	}
}

func TestExplain(t *testing.T) {
	a := apt{mirror: "http://mirror.example/debian"}
	for _, c := range []struct{ said, want string }{
		{"E: Failed to fetch http://x  Could not connect to x:80", "no archive of Debian packages can be reached: http://mirror.example/debian (E: Failed to fetch"},
		{"E: The repository is not signed.", "the archive's signature cannot be checked"},
		{"W: GPG error: NO_PUBKEY 0E98404D386FA1D9\nE: Failed to fetch it", "install a newer debian-archive-keyring"},
		{"E: You don't have enough free space in /x/", "the disk is full"},
		{"E: Unable to locate package slurmctld", "apt-get: exit status 100: E: Unable to locate package slurmctld"},
	} {
		err := a.explain(c.said, errors.New("exit status 100"))
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.said, err, c.want)
		}
	}
}

func TestCandidate(t *testing.T) {
	if got := candidate("slurmctld:\n  Installed: (none)\n  Candidate: 26.05.5-1\n  Version table:\n"); got != "26.05.5-1" {
		t.Errorf("got %q", got)
	}
	if got := candidate("slurmctld:\n  Installed: (none)\n  Candidate: (none)\n"); got != "" {
		t.Errorf("got %q", got)
	}
}

// A mirror that does not answer is reported as such, and leaves nothing in the cache.
func TestNoMirror(t *testing.T) {
	if testing.Short() {
		t.Skip("apt tries for seconds")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		need.Missing(t, need.Debian, "there is no apt-get")
	}
	if _, err := os.Stat(keyring); err != nil {
		need.Missing(t, need.Debian, "there is no keyring of Debian")
	}
	cache := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_, err := Get(ctx, release.Newest(), Options{Cache: cache, Mirror: "http://127.0.0.1:1/debian"})
	if !errors.Is(err, ErrNoMirror) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), "--mirror") {
		t.Errorf("no next step: %v", err)
	}
	left, err := filepath.Glob(cache + "/*.new-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestGetInterrupted(t *testing.T) {
	cache := t.TempDir()
	unlock, err := lock(t.Context(), filepath.Join(cache, "26.05.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Get(ctx, release.Newest(), Options{Cache: cache}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCachedSaysHowToFetch(t *testing.T) {
	_, err := Cached(release.Newest(), Options{Cache: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "muster slurm fetch --version 26.05 brings it") {
		t.Errorf("got %v", err)
	}
}
