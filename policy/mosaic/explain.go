package mosaic

import (
	"muster/policy"
)

// Explain is an account of the latest step.
func (p *mosaic) Explain(v *policy.View) *policy.Explanation {
	return &policy.Explanation{}
}
