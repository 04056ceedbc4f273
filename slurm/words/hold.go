package words

import "strings"

// Users cannot write the administrators' comment, not even through the submit script. When a user
// holds or releases a job of Muster, the script puts one of these words in front of the user's own
// comment instead.
const (
	heldWord     = "muster:held"
	releasedWord = "muster:released"
)

// UserHold says whether the user's comment holds or releases the job; said is false where it does
// neither, and the request's Held counts.
func UserHold(comment string) (held, said bool) {
	first, _, _ := strings.Cut(comment, " ")
	return first == heldWord, first == heldWord || first == releasedWord
}
