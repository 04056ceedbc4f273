// Package content draws what hostile, careless and unlucky users send: every option, name and
// number at and beyond its limits, texts with zero bytes, control characters and invalid UTF-8,
// huge arrays and requests, JSON that is nearly right, broken frames, and scripts that do not end.
//
// It is pure: a seed determines every piece. It knows how users and nodes write what they send, and
// nothing about who receives it: campaigns against running clusters and worlds in virtual time send
// the same.
package content

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind says what is odd about a piece.
type Kind string

// The kinds of content.
const (
	Sound   Kind = "sound"   // nothing: what everybody sends
	Zero    Kind = "zero"    // a zero byte in a text
	Control Kind = "control" // control characters, newlines, escape sequences
	UTF8    Kind = "utf8"    // no valid UTF-8, or characters that look like others or turn the line round
	Long    Kind = "long"    // a text at or beyond any length that somebody expects
	Shape   Kind = "shape"   // a text that looks like something else: an option, a path, a pattern
	Number  Kind = "number"  // a number at or beyond a limit, or none
	Array   Kind = "array"   // an array at or beyond the limit
	GPUs    Kind = "gpus"    // more GPUs than anybody has, or than a grant holds
	Word    Kind = "word"    // a word that is not among those which an option takes
	Whose   Kind = "whose"   // another user's name, or what is another user's
	Many    Kind = "many"    // very many small things in one request
	JSON    Kind = "json"    // names twice, in another case or unknown; deep; cut off; a wrong type
	Frame   Kind = "frame"   // a length that is not true, a message that is none
	Script  Kind = "script"  // a policy or a job's script that does too much, or is none
)

// Kinds are all kinds of content.
var Kinds = []Kind{Sound, Zero, Control, UTF8, Long, Shape, Number, Array, GPUs, Word, Whose, Many, JSON, Frame, Script}

// Source draws content.
type Source struct {
	r *rand.Rand
	// Jobs are numbers of other users' jobs, if the caller knows some.
	Jobs []uint64
	// Directory and Environment are those of sound submissions.
	Directory   string
	Environment []string
	// Only, if it is not nil, has the kinds of submissions and requests that are drawn.
	Only []Kind
	// Most bounds long texts, in bytes.
	Most int
}

// New makes a source.
func New(seed, part uint64) *Source {
	return &Source{r: rand.New(rand.NewPCG(seed, 0x636f6e74656e74^part)), Directory: "/", Most: 1 << 20}
}

// wanted says whether a piece of this kind may be sent.
func (s *Source) wanted(k Kind) bool { return s.Only == nil || slices.Contains(s.Only, k) }

// IntN draws a number below n.
func (s *Source) IntN(n int) int { return s.r.IntN(n) }

func pick[T any](s *Source, choices ...T) T { return choices[s.r.IntN(len(choices))] }

// ---- texts ----

var controls = []string{"\x01", "\x07", "\x08", "\n", "\r\n", "\t", "\x0b", "\x1b[2J", "\x1b]0;title\x07", "\x1b[31m", "\x7f", "a\nb=c", "\u0085", "\u2028"}

var strange = []string{
	"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80b", "\xe2\x82", "\ufeff", "\u202e\u0074\u0073\u0061", "\u200b", "A\u030a\u0301",
	"\U0001f4a3", "\u0430dmin", "\uffff", "\ufffd", "ſ", "K", "ﬀ", "i\u0307",
}

var shapes = []string{
	"", " ", "  x  ", "-", "--", "-J", "--help", "--wrap=id", ".", "..", "../../../../etc/passwd", "/", "//", "/dev/zero", "/dev/full", "/proc/self/mem", "~root", "%j", "%%", "%",
	"%999999999j", "%A_%a", "%s%s%s%n", "$HOME", "$(id)", "`id`", "a;id", "a|id", "a&", "'", "\"", "\\", "\\0", "[1-", "n[1-1000000000]", "n[01-99999999999999999999]", "a,b,,c", "a=b=c",
	"=", "=x", "{}", "[]", "null", "true", "<script>alert(1)</script>", "https://example.org/", "root", "nobody", "0", "-1", "1e999", "NaN", "afterok:0", "singleton", "ALL", "NONE", "NIL",
}

// lengths are those at which somebody's limit may be, one less and one more included.
var lengths = []int{63, 64, 127, 128, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 131072, 1 << 20, 8 << 20}

// Text draws an odd text.
func (s *Source) Text() (Kind, string) {
	switch s.r.IntN(5) {
	case 0:
		return Zero, pick(s, "\x00", "x\x00", "\x00x", "a\x00b", strings.Repeat("\x00", 1+s.r.IntN(300)))
	case 1:
		return Control, pick(s, "", "x") + pick(s, controls...) + pick(s, "", "y")
	case 2:
		return UTF8, pick(s, "", "x") + pick(s, strange...) + pick(s, "", "y")
	case 3:
		return Long, s.long()
	}
	return Shape, pick(s, shapes...)
}

func (s *Source) long() string {
	n := min(pick(s, lengths...), s.Most)
	unit := pick(s, "a", "7", "/", "é", "a,", "%j", "\"", "[", "x=y,")
	return strings.Repeat(unit, n/len(unit)+1)[:n]
}

// ---- numbers ----

var edges = []int64{0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 1000, 1001, 1023, 1024, 4095, 4096, 4097, 10_000, 10_001, 32767, 65535, 65536,
	99_999, 100_000, 100_001, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<53 + 1, 1<<63 - 1}

var noNumbers = []string{
	"", " ", "-", "+1", "-0", "00000000000000000000001", "1 ", "0x10", "1_000", "1e3", "1e308", "1e-3", "1.5", ".5", "NaN", "Inf", "٣", "１", "1,2", "1-", "-1-2", "1k", "1K", "1T", "1P", "1E",
	"9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "99999999999999999999999999", "1:2:3:4:5", "0-0:0", "1\x00", "one",
}

// Number draws a number at a limit, or a text that is none.
func (s *Source) Number() string {
	switch s.r.IntN(4) {
	case 0:
		return pick(s, noNumbers...)
	case 1:
		return fmt.Sprint(-pick(s, edges...))
	}
	return fmt.Sprint(pick(s, edges...))
}

// Count draws a number at a limit, which may be none for its place.
func (s *Source) Count() int64 {
	n := pick(s, edges...)
	if s.r.IntN(4) == 0 {
		n = -n
	}
	return n
}
