package settings

import (
	"strings"
	"unicode"
)

// Account is a user of the machine.
type Account struct {
	UID  uint32
	Name string
}

// Nobody stands for users who have no account on this machine; no account has this
// number.
const Nobody = ^uint32(0)

// LeastPrivileged is the user that workers of remote users without an account here
// become, on a node that has no user number of its own for each worker.
const LeastPrivileged = 65534

// Printable keeps control characters in what a program says of itself away from terminals.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}
