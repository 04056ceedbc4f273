package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"muster/internal/need"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile("(?m)^#+ (.*)$")
	fenced       = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks follows the links between the documents: the file is there, and has the heading.
func TestLinks(t *testing.T) {
	for _, name := range markdowns(t) {
		for _, link := range markdownLink.FindAllStringSubmatch(document(t, name), -1) {
			to, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			path := name
			if to != "" {
				path = filepath.Join(filepath.Dir(name), to)
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s: %s: %v", name, link[1], err)
			} else if anchor != "" && !hasHeading(document(t, path), anchor) {
				t.Errorf("%s: %s: %s has no such heading", name, link[1], path)
			}
		}
	}
}

// markdowns are the texts in Markdown.
func markdowns(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--", "*.md").Output()
	if err != nil {
		need.Missing(t, need.Tools, "no git, or no repository")
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(text), "")
}

func hasHeading(text, anchor string) bool {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		if anchorOf(h[1]) == anchor {
			return true
		}
	}
	return false
}

// anchorOf is the name that a heading has in links, as GitHub makes it.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
