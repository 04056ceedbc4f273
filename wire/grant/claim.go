package grant

import (
	"fmt"
	"regexp"
	"strings"
)

// Claim says under which grant a program is, without the secret: for daemons that act for the
// program's processes on several nodes, and believe each other.
type Claim struct {
	ID   string
	Hash Hash // of the grant's credential
}

// String is the text form, which ParseClaim reads.
func (c Claim) String() string { return c.Hash.String() + " " + c.ID }

// ParseClaim reads a claim.
func ParseClaim(text string) (c Claim, err error) {
	hash, id, _ := strings.Cut(text, " ")
	if err = c.Hash.UnmarshalText([]byte(hash)); err != nil {
		return Claim{}, fmt.Errorf("a claim to a grant: %w", err)
	}
	c.ID = id
	return c, CheckName("grant's id", id)
}

// parts are the names of grants that are parts of one job: each node of a job has one. The head's are
// job.attempt.part, and those of Slurm slurm-job-start-part.
var parts = regexp.MustCompile(`^([0-9]+\.[0-9]+\.|slurm-[0-9]+-[0-9]+-)[0-9]+$`)

// SameJob says whether a grant with this name is another part of the claim's job.
func (c Claim) SameJob(id string) bool {
	mine, other := parts.FindStringSubmatch(c.ID), parts.FindStringSubmatch(id)
	return mine != nil && other != nil && mine[1] == other[1]
}
