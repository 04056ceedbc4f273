package strictyaml

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
)

// Value reads a plain value with a parse function.
func Value[T any](f *File, what string, into *T, parse func(string) (T, error)) func(Node) error {
	return func(n Node) error {
		w, err := f.Scalar(n, what)
		if err != nil {
			return err
		}
		v, err := parse(w.Text)
		if err != nil {
			return f.Errorf(w.Place, "%s: %v", what, err)
		}
		*into = v
		return nil
	}
}

// Size reads a number of bytes.
func (f *File) Size(what string, into *int64) func(Node) error {
	return Value(f, what, into, units.ParseSize)
}

// Bandwidth reads bytes per second.
func (f *File) Bandwidth(what string, into *int64) func(Node) error {
	return Value(f, what, into, units.ParseBandwidth)
}

// Duration reads a time.
func (f *File) Duration(what string, into *time.Duration) func(Node) error {
	return Value(f, what, into, units.ParseDuration)
}

// Number reads a number; need says in words which are accepted.
func (f *File) Number(what, need string, fits func(float64) bool, into *float64) func(Node) error {
	return Value(f, what, into, func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(x, 0) || !fits(x) {
			return 0, fmt.Errorf("must be a number %s, not %q", need, s)
		}
		return x, nil
	})
}

// Count reads a whole number.
func (f *File) Count(what string, least, most int, into *int) func(Node) error {
	return Value(f, what, into, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be a whole number from %d to %d, not %q", least, most, s)
		}
		return n, nil
	})
}

// Bool reads true or false.
func (f *File) Bool(what string, into *bool) func(Node) error {
	return Value(f, what, into, func(s string) (bool, error) {
		if s != "true" && s != "false" {
			return false, fmt.Errorf("must be true or false, not %q", s)
		}
		return s == "true", nil
	})
}

// Text reads text that is not empty.
func (f *File) Text(what string, into *string) func(Node) error {
	return Value(f, what, into, func(s string) (string, error) {
		if s == "" {
			return "", fmt.Errorf("must not be empty")
		}
		return s, nil
	})
}

// Identifier reads a name that is safe in every file format and command line.
func (f *File) Identifier(what string, into *string) func(Node) error {
	return Value(f, what, into, func(s string) (string, error) { return s, CheckName(s) })
}

// CheckName says what is wrong with a name.
func CheckName(s string) error {
	bad := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-+", r))
	}
	if s == "" || len(s) > 255 || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("must be made of letters, digits and ._-+, not %q", s)
	}
	return nil
}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	// yamlWords are words that some YAML reader does not read as text.
	yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"}
)

// Quote writes a text so that every YAML reader reads it as text, without quotes if possible.
func Quote(s string) string {
	if plainWord.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

// ListenAddress returns a function that reads HOST:PORT, where a daemon listens. port is an example.
func ListenAddress(port string) func(string) (string, error) {
	return func(s string) (string, error) {
		_, given, err := net.SplitHostPort(s)
		number, notNumber := strconv.Atoi(given)
		if err != nil || given == "" || notNumber == nil && (number < 0 || number > 65535) {
			return "", fmt.Errorf("must be HOST:PORT with a port up to 65535, as 127.0.0.1:%[1]s, or :%[1]s for all addresses, not %[2]q", port, s)
		}
		return s, nil
	}
}

// Into reads a whole document into a value that has the defaults. The value is changed only if all of
// the document is right.
func Into[T any](f *File, text []byte, into *T, decode func(Node, *T) error) error {
	root, err := f.Parse(text)
	if err != nil {
		return err
	}
	read := *into
	if err := decode(root, &read); err != nil {
		return err
	}
	*into = read
	return nil
}
