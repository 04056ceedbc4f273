package words

import "strings"

// Users cannot write the administrators' comment, not even through the submit script. When a user
// holds or releases a job of Muster, the script puts one of these words in front of the user's own
// comment instead.
const (
	heldWord     = "muster:held"
	releasedWord = "muster:released"
)

// ParseBoth parses the administrators' and the user's comment of a job. The request is in the
// first; the driver's part is in the second if REST cannot write the first.
func ParseBoth(admin, users string) (Comment, error) {
	c, err := Parse(admin)
	if err != nil || c.Request == nil {
		return c, err
	}
	if own, _ := Parse(users); own.Request != nil && c.Answer == nil {
		c.Answer, c.Why, c.Other = own.Answer, own.Why, own.Other
		c.Request.Placed, c.Request.Was, c.Request.Paused = own.Request.Placed, own.Request.Was, own.Request.Paused
	}
	if held, said := UserHold(users); said {
		c.Request.Held = held
	}
	return c, nil
}

// UserHold says whether the user's comment holds or releases the job. If it does neither, said is
// false, and the request's Held counts.
func UserHold(comment string) (held, said bool) {
	first, _, _ := strings.Cut(comment, " ")
	return first == heldWord, first == heldWord || first == releasedWord
}
