package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"muster/wire/status"
)

// topView is what the user of muster top chose to see.
type topView struct {
	order byte // the key of an order; 0: as the node lists its clients
	above int  // lines that are scrolled out of sight
	help  bool
}

const topKeys = `Keys of muster top:

  g        programs with most GPU time first
  m        programs with most memory first
  u        programs by user
  c        programs by number, as at the start
  j, down  scroll down        k, up  scroll up
  h        this help, and back
  q        quit
`

// readKeys hands over keys, arrows as j and k, until the user quits or the terminal is gone.
func readKeys(terminal io.Reader, keys chan<- string) {
	names := map[string]string{"\x1b[A": "k", "\x1b[B": "j", "\x03": "q", "Q": "q", "?": "h"}
	some := make([]byte, 16)
	for {
		n, err := terminal.Read(some)
		if err != nil {
			return
		}
		key := string(some[:n])
		if name := names[key]; name != "" {
			key = name
		}
		keys <- key
	}
}

// press does what a key stands for, and says whether the picture must be made anew.
func (v *topView) press(key string) (anew bool) {
	switch key {
	case "g", "m", "u", "c":
		anew = v.order != key[0]
		v.order, v.above = key[0], 0
	case "j":
		v.above++
	case "k":
		v.above = max(0, v.above-1)
	case "h":
		v.help = !v.help
	}
	return anew
}

// sort brings a node's clients into the chosen order; those that are equal stay as they are.
func (v *topView) sort(s *status.Node) {
	by := map[byte]func(a, b status.Client) int{
		'g': func(a, b status.Client) int { return cmp.Compare(b.BusyTime, a.BusyTime) },
		'm': func(a, b status.Client) int { return cmp.Compare(b.Allocated, a.Allocated) },
		'u': func(a, b status.Client) int { return cmp.Compare(a.User, b.User) },
	}[v.order]
	if by != nil {
		slices.SortStableFunc(s.Clients, by)
	}
}

// of is the part of a picture that is to be seen. The first line stays when the rest is scrolled,
// and the last line that there is can be reached.
func (v *topView) of(picture string) string {
	if v.help {
		return topKeys
	}
	lines := strings.Split(strings.TrimRight(picture, "\n"), "\n")
	v.above = min(v.above, max(0, len(lines)-2))
	return strings.Join(slices.Concat(lines[:1], lines[1+v.above:]), "\n")
}

// cutLine cuts a line to the columns of the screen. Colours take no room, and end with the line.
func cutLine(line string, columns int) string {
	const reset = "\x1b[0m"
	var b strings.Builder
	inColour, shown := false, 0
	for _, r := range line {
		switch {
		case r == '\x1b':
			inColour = true
			b.WriteRune(r)
		case inColour:
			inColour = r != 'm'
			b.WriteRune(r)
		case shown < columns:
			shown++
			b.WriteRune(r)
		}
	}
	if strings.Contains(line, "\x1b") {
		b.WriteString(reset)
	}
	return b.String()
}
