package screen

import (
	"strings"
	"testing"
)

func TestCutLineLeavesColours(t *testing.T) {
	for line, want := range map[string]string{
		"abcdef":                  "abc",
		"\x1b[31mab\x1b[0mcdef":   "\x1b[31mab\x1b[0mc\x1b[0m",
		"\x1b[32mabcdefg\x1b[0mh": "\x1b[32mabc\x1b[0m\x1b[0m",
	} {
		if got := cutLine(line, 3); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// A picture never runs over the screen, and never leaves anything of the last
// one.
func TestPictureFitsTheScreen(t *testing.T) {
	drawn := over(strings.Repeat(strings.Repeat("x", 200)+"\n", 50), 80, 24)
	lines := strings.Split(drawn, "\r\n")
	if len(lines) != 24 || !strings.HasPrefix(drawn, "\x1b[H") || !strings.HasSuffix(drawn, "\x1b[J") {
		t.Errorf("%d lines: %q", len(lines), drawn)
	}
	for _, line := range lines {
		if n := strings.Count(line, "x"); n != 80 || !strings.Contains(line, "\x1b[K") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
