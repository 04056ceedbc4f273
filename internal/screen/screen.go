// Package screen shows text on a terminal: how large the terminal is, pictures that are drawn over
// each other, and single keys that the user presses.
//
// It does not know what the pictures show. Where the output is no terminal, callers print instead.
package screen

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// What a terminal of the last forty years understands.
const (
	alternateScreen, normalScreen = "\x1b[?1049h", "\x1b[?1049l"
	hideCursor, showCursor        = "\x1b[?25l", "\x1b[?25h"
	home, clearLine, clearBelow   = "\x1b[H", "\x1b[K", "\x1b[J"
	resetColour                   = "\x1b[0m"
)

// IsTerminal says whether what is written there goes to a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Columns is how many columns a writer's text is shown in; 0 if that is unknown, or if it is no
// terminal.
func Columns(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	columns, _, err := Size(w.(*os.File))
	if err != nil {
		return 0
	}
	return columns
}

// Open clears a terminal for pictures. The function that it returns makes the terminal what it was.
func Open(out *os.File) (restore func()) {
	fmt.Fprint(out, alternateScreen+hideCursor)
	return func() { fmt.Fprint(out, showCursor+normalScreen) }
}

// Draw draws a picture over the last one, and cuts it to the terminal.
func Draw(out *os.File, picture string) error {
	columns, rows, err := Size(out)
	if err != nil || columns == 0 || rows == 0 {
		columns, rows = 80, 24
	}
	_, err = io.WriteString(out, over(picture, columns, rows))
	return err
}

// over is what draws a picture over the last one.
func over(picture string, columns, rows int) string {
	lines := strings.Split(strings.TrimRight(picture, "\n"), "\n")
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines[:min(len(lines), rows)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clearLine + cutLine(line, columns))
	}
	return b.String() + clearBelow
}

// cutLine cuts a line to the columns of the screen. Colours take no room, and end with the line.
func cutLine(line string, columns int) string {
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
		b.WriteString(resetColour)
	}
	return b.String()
}

// Live is a picture that changes in place while the user watches, until q or Ctrl-C.
type Live struct {
	Every time.Duration
	// Write makes a new picture.
	Write func(io.Writer) error
	// Seen is the part of a picture that is shown; nil: all of it.
	Seen func(picture string) string
	// Press does what a key other than q stands for, and says whether a new picture is wanted at
	// once. Arrow keys are j and k.
	Press func(key string) (anew bool)
}

// Run shows pictures until the user quits, or something arrives on stop.
func (l *Live) Run(out *os.File, stop <-chan os.Signal) error {
	keys := make(chan string)
	if terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		defer terminal.Close()
		if restore, err := singleKeys(terminal); err == nil {
			defer restore()
			go readKeys(terminal, keys)
		}
	}
	defer Open(out)()
	for {
		var b bytes.Buffer
		if err := l.Write(&b); err != nil {
			return err
		}
		if quit, err := l.show(out, b.String(), keys, stop); quit || err != nil {
			return err
		}
	}
}

// show shows one picture until the next is wanted, or the user quits.
func (l *Live) show(out *os.File, picture string, keys <-chan string, stop <-chan os.Signal) (quit bool, err error) {
	next := time.After(l.Every)
	for {
		seen := picture
		if l.Seen != nil {
			seen = l.Seen(picture)
		}
		if err := Draw(out, seen); err != nil {
			return true, err
		}
		select {
		case <-next:
			return false, nil
		case <-stop:
			return true, nil
		case key := <-keys:
			if key == "q" {
				return true, nil
			}
			if l.Press(key) {
				return false, nil
			}
		}
	}
}

// Repeat does something again and again, with a pause between: as often as times says, or without
// end if that is 0. It ends early when something arrives on stop.
func Repeat(every time.Duration, times int, stop <-chan os.Signal, do func(i int) error) error {
	for i := 0; ; i++ {
		if err := do(i); err != nil || i+1 == times {
			return err
		}
		select {
		case <-time.After(every):
		case <-stop:
			return nil
		}
	}
}

// readKeys hands over keys, arrows as j and k, until the terminal is gone.
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
