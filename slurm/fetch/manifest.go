package fetch

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wholefile"
)

// entry is a file or link as it was unpacked.
type entry struct {
	path     string
	target   string // of a link
	size     int64
	modified int64
	sum      string // SHA-256
}

// manifestName is the list of what was unpacked, at the root of a release. It is written last: a
// folder without it is incomplete.
const manifestName = "muster-manifest"

// manifestVersion changes with what is unpacked and how. A release with another one is fetched
// again.
const manifestVersion = "muster slurm release, version 1"

func writeManifest(folder, version string, entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nslurm %s\n", manifestVersion, version)
	for i, e := range entries {
		switch {
		case i > 0 && e.path == entries[i-1].path:
		case e.target != "":
			fmt.Fprintf(&b, "link\t%s\t%s\n", e.path, e.target)
		default:
			fmt.Fprintf(&b, "file\t%s\t%d\t%d\t%s\n", e.path, e.size, e.modified, e.sum)
		}
	}
	return wholefile.Replace(filepath.Join(folder, manifestName), []byte(b.String()), 0o644)
}

// check compares a release with its manifest and returns its version. If there is no release, the
// error is os.ErrNotExist.
func check(folder string, thoroughly bool) (version string, err error) {
	f, err := os.Open(filepath.Join(folder, manifestName))
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if !lines.Scan() || lines.Text() != manifestVersion {
		return "", errors.New("it was unpacked by another version of Muster")
	}
	lines.Scan()
	version, ok := strings.CutPrefix(lines.Text(), "slurm ")
	if !ok {
		return "", errors.New("its manifest names no version")
	}
	files := 0
	for lines.Scan() {
		e, err := parseEntry(lines.Text())
		if err != nil {
			return "", err
		}
		if err := e.compare(folder, thoroughly); err != nil {
			return "", err
		}
		files++
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("its manifest: %w", err)
	}
	if files == 0 {
		return "", errors.New("its manifest is empty")
	}
	return version, nil
}

func parseEntry(line string) (entry, error) {
	words := strings.Split(line, "\t")
	bad := fmt.Errorf("its manifest has the line %.80q", line)
	if len(words) < 3 || !filepath.IsLocal(words[1]) {
		return entry{}, bad
	}
	e := entry{path: words[1]}
	switch {
	case words[0] == "link" && len(words) == 3:
		e.target = words[2]
		return e, nil
	case words[0] == "file" && len(words) == 5:
		var err1, err2 error
		e.size, err1 = strconv.ParseInt(words[2], 10, 64)
		e.modified, err2 = strconv.ParseInt(words[3], 10, 64)
		e.sum = words[4]
		if err1 == nil && err2 == nil && len(e.sum) == 2*sha256.Size {
			return e, nil
		}
	}
	return entry{}, bad
}

// compare says how a file differs from what was unpacked. Errors for missing files do not wrap
// os.ErrNotExist: the release is present, and damaged.
func (e entry) compare(folder string, thoroughly bool) error {
	path := filepath.Join(folder, e.path)
	if e.target != "" {
		if target, err := os.Readlink(path); err != nil || target != e.target {
			return fmt.Errorf("%s is no link to %s", e.path, e.target)
		}
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing", e.path)
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() != e.size || info.ModTime().Unix() != e.modified:
		return fmt.Errorf("%s was changed", e.path)
	case !thoroughly:
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.sum {
		return fmt.Errorf("%s was changed inside", e.path)
	}
	return nil
}
