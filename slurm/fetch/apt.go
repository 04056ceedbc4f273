package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"muster/slurm/release"
)

// debianMirror is Debian's public archive, for machines whose apt uses no archive of Debian.
const debianMirror = "http://deb.debian.org/debian"

// keyring has the keys with which Debian's archives are signed.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// slurmPackages are Slurm's daemons, commands and headers. Its job_submit/lua plug-in is in
// slurm-wlm-basic-plugins, which brings liblua5.1-0.
var slurmPackages = []string{
	"munge", "slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin", "libslurm-dev",
}

// systemPackages are what job scripts expect of a machine, and what their programs link against.
var systemPackages = []string{
	"base-files", "libc-bin", "bash", "coreutils", "sed", "grep", "mawk", "findutils", "util-linux", "procps", "hostname", "libstdc++6",
}

// download fetches the packages of a release with a private apt, all of whose state is in folder,
// and returns their files and the version of Slurm.
func download(ctx context.Context, r *release.Release, folder string, o Options) (packages []string, version string, err error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, "", errors.New("there is no apt-get: releases of Slurm are Debian packages; fetch one on a Debian or Ubuntu machine and copy its folder ~/.cache/muster/slurm here")
	}
	if _, err := os.Stat(keyring); err != nil {
		return nil, "", fmt.Errorf("the keys of Debian's archive are not in %s: install the package debian-archive-keyring", keyring)
	}
	mirror := o.Mirror
	if mirror == "" {
		mirror = machineMirror(ctx)
	}
	for i, suite := range r.Suites {
		a := apt{folder: filepath.Join(folder, suite), mirror: mirror, suite: suite}
		fmt.Fprintf(o.Log, "looking for Slurm %s in Debian %s at %s\n", r.Name, suite, mirror)
		version, err = a.find(ctx, r)
		if err == nil {
			fmt.Fprintf(o.Log, "fetching Slurm %s\n", version)
			packages, err = a.fetch(ctx, r)
			return packages, version, err
		}
		if i == len(r.Suites)-1 || !errors.As(err, new(*otherVersion)) {
			return nil, "", err
		}
	}
	return nil, "", err
}

// otherVersion is the error of an archive that carries another release by now.
type otherVersion struct{ suite, has, want string }

func (e *otherVersion) Error() string {
	return fmt.Sprintf("Debian %s has Slurm %s now and no longer %s: choose one of %s, or copy the folder of a machine that has fetched it",
		e.suite, e.has, e.want, strings.Join(release.Names(), ", "))
}

// apt is a private apt: one distribution, no installed packages, its files in a folder.
type apt struct{ folder, mirror, suite string }

// find reads the archive's lists and returns the version of Slurm there.
func (a *apt) find(ctx context.Context, r *release.Release) (string, error) {
	if err := a.prepare(ctx); err != nil {
		return "", err
	}
	if _, err := a.run(ctx, "apt-get", "-q", "update"); err != nil {
		return "", err
	}
	text, err := a.run(ctx, "apt-cache", "policy", "slurmctld")
	if err != nil {
		return "", err
	}
	version := candidate(text)
	if version == "" {
		return "", fmt.Errorf("%s has no Slurm in its distribution %s: name a whole archive of Debian with --mirror", a.mirror, a.suite)
	}
	if known, err := release.Of(version); err != nil || known != r {
		return "", &otherVersion{a.suite, version, r.Name}
	}
	return version, nil
}

// candidate extracts the version that apt would install from the output of apt-cache policy.
func candidate(policy string) string {
	for _, line := range strings.Split(policy, "\n") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: "); ok && v != "(none)" {
			return v
		}
	}
	return ""
}

// fetch downloads the packages of a release with their dependencies.
func (a *apt) fetch(ctx context.Context, r *release.Release) ([]string, error) {
	wanted := slices.Concat([]string{"-q", "-y", "--download-only", "install"}, slurmPackages, systemPackages, r.Extra)
	if _, err := a.run(ctx, "apt-get", wanted...); err != nil {
		return nil, err
	}
	packages, err := filepath.Glob(filepath.Join(a.folder, "archives", "*.deb"))
	if err == nil && len(packages) == 0 {
		err = errors.New("apt-get fetched no package")
	}
	return packages, err
}

// prepare writes apt's configuration. Only the network settings are the machine's own.
func (a *apt) prepare(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.folder, dir), 0o755); err != nil {
			return err
		}
	}
	source := fmt.Sprintf("deb [%ssigned-by=%s] %s %s main\n", ownArchitecture(), keyring, a.mirror, a.suite)
	for name, text := range map[string]string{"status": "", "sources.list": source, "conf": a.config() + networkSettings(ctx)} {
		if err := os.WriteFile(filepath.Join(a.folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ownArchitecture keeps apt from reading the lists of other architectures that the machine may
// have.
func ownArchitecture() string {
	switch runtime.GOARCH {
	case "amd64", "arm64": // Debian has the same names as Go
		return "arch=" + runtime.GOARCH + " "
	}
	return ""
}

func (a *apt) config() string {
	return fmt.Sprintf(`Dir::State::lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s";
Dir::Cache::archives "%[1]s/archives";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Log "%[1]s";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
APT::Update::Error-Mode "any";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
`, a.folder)
}

// networkSettings are the machine's apt settings for proxies and certificates.
func networkSettings(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return "" // without apt-config there are none to be found
	}
	var kept strings.Builder
	for _, line := range strings.Split(string(out), "\n") {
		key, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(key, "Acquire::http") || strings.HasSuffix(key, "::Timeout") || strings.HasSuffix(line, ` "";`) {
			continue
		}
		kept.WriteString(line + "\n")
	}
	return kept.String()
}

// machineMirror is the first archive of Debian that this machine's apt uses.
func machineMirror(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)").Output()
	if err != nil {
		return debianMirror
	}
	for _, uri := range strings.Fields(string(out)) {
		if bare := strings.TrimRight(uri, "/"); strings.HasSuffix(bare, "/debian") && !strings.HasPrefix(uri, "cdrom:") {
			return bare
		}
	}
	return debianMirror
}

// run runs a command of apt and returns its output.
func (a *apt) run(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.folder, "conf"), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s was interrupted: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return "", a.explain(string(out), err)
	}
	return string(out), nil
}

// explain turns apt's messages into what was wrong and what to do about it.
func (a *apt) explain(out string, err error) error {
	said := complaints(out)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(out, w) })
	}
	switch {
	case has("No space left", "enough free space"):
		return fmt.Errorf("the disk is full (%s): make room, or set XDG_CACHE_HOME to a folder on another disk", said)
	case has("NO_PUBKEY", "not signed", "signatures couldn't be verified", "Sub-process /usr/bin/sqv", "EXPKEYSIG"):
		return fmt.Errorf("the archive's signature cannot be checked (%s): install a newer debian-archive-keyring; nothing was unpacked", said)
	case has("Hash Sum mismatch"):
		return fmt.Errorf("%s changed while it was read (%s): try again in a few minutes", a.mirror, said)
	case has("Could not resolve", "Could not connect", "Unable to connect", "Temporary failure", "Connection failed", "Connection timed out", "Failed to fetch"):
		return fmt.Errorf("%w: %s (%s): name another with --mirror, set http_proxy, or copy ~/.cache/muster/slurm from a machine that has fetched it", ErrNoMirror, a.mirror, said)
	}
	return fmt.Errorf("apt-get: %w: %s", err, said)
}

// complaints are the first errors in apt's output, at most three lines.
func complaints(out string) string {
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "W: ") || strings.HasPrefix(line, "Err:") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) > 3 {
		lines = lines[:3]
	}
	return strings.Join(lines, "; ")
}
