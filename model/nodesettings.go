package model

import (
	"fmt"
	"slices"
	"strings"
)

// NodeSettings is how the runtime of a node serves programs, as far as somebody says so who is not on the
// node: what is left out is as the node's own configuration has it. It has JSON names of its own since all who
// tell of it tell the same.
type NodeSettings struct {
	// VGPUs is how many virtual GPUs each device has: so many programs of a pool or a granted share can be on it
	// at a time. 0 says nothing.
	VGPUs int `json:"vgpus,omitempty"`
	// Sharing is Shared or Exclusive; exclusive devices have one virtual GPU, whatever VGPUs says.
	Sharing string `json:"sharing,omitempty"`
	// Policy orders the programs that wait; one of NodePolicies.
	Policy string `json:"policy,omitempty"`
	// Above is how many programs must wait before the node borrows virtual GPUs of others; 0 says nothing. Keep
	// is how many free ones it does not lend.
	Above int  `json:"above,omitempty"`
	Keep  *int `json:"keep,omitempty"`
	// Profiling is how often the node reports what programs measured, in seconds.
	Profiling float64 `json:"profiling_s,omitempty"`
}

// What Sharing can be.
const (
	Shared    = "shared"
	Exclusive = "exclusive"
)

// NodePolicies are the ways in which a node orders programs that wait for its devices.
var NodePolicies = []string{"fcfs", "sjf", "credit"}

// The bounds of settings.
const (
	MaxVGPUs                  = 1024
	maxThreshold              = 1 << 20
	LeastProfiling            = 1.0
	MostProfiling     float64 = 60 * 60
	sharedOrExclusive         = Shared + " or " + Exclusive
)

// Check refuses what no node can be told.
func (s *NodeSettings) Check() error {
	switch {
	case s.VGPUs < 0 || s.VGPUs > MaxVGPUs:
		return fmt.Errorf("vgpus: %d virtual GPUs on a device: give 1 to %d", s.VGPUs, MaxVGPUs)
	case s.Sharing != "" && s.Sharing != Shared && s.Sharing != Exclusive:
		return fmt.Errorf("sharing: must be %s, not %.40q", sharedOrExclusive, s.Sharing)
	case s.Policy != "" && !slices.Contains(NodePolicies, s.Policy):
		return fmt.Errorf("policy: must be one of %s, not %.40q", strings.Join(NodePolicies, ", "), s.Policy)
	case s.Above < 0 || s.Above > maxThreshold:
		return fmt.Errorf("above: %d programs that wait: give 1 to %d", s.Above, maxThreshold)
	case s.Keep != nil && (*s.Keep < 0 || *s.Keep > maxThreshold):
		return fmt.Errorf("keep: %d virtual GPUs that are not lent: give 0 to %d", *s.Keep, maxThreshold)
	case s.Profiling != 0 && !(s.Profiling >= LeastProfiling && s.Profiling <= MostProfiling):
		return fmt.Errorf("profiling: a period of %g s: give %g s to %g s", s.Profiling, LeastProfiling, MostProfiling)
	}
	return nil
}

// Over is what others have said with what s says in its place: field by field, what s leaves out is as before.
func (s NodeSettings) Over(before NodeSettings) NodeSettings {
	if s.VGPUs != 0 {
		before.VGPUs = s.VGPUs
	}
	if s.Sharing != "" {
		before.Sharing = s.Sharing
	}
	if s.Policy != "" {
		before.Policy = s.Policy
	}
	if s.Above != 0 {
		before.Above = s.Above
	}
	if s.Keep != nil {
		before.Keep = s.Keep
	}
	if s.Profiling != 0 {
		before.Profiling = s.Profiling
	}
	return before
}

// Equal says whether both say the same.
func (s NodeSettings) Equal(o NodeSettings) bool {
	same := (s.Keep == nil) == (o.Keep == nil) && (s.Keep == nil || *s.Keep == *o.Keep)
	s.Keep, o.Keep = nil, nil
	return same && s == o
}

// IsZero says whether it says nothing.
func (s NodeSettings) IsZero() bool { return s == NodeSettings{} }

// String is the settings for people, as vgpus 2, policy sjf.
func (s NodeSettings) String() string {
	var words []string
	add := func(given bool, format string, value any) {
		if given {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(s.VGPUs != 0, "vgpus %d", s.VGPUs)
	add(s.Sharing != "", "%s", s.Sharing)
	add(s.Policy != "", "policy %s", s.Policy)
	add(s.Above != 0, "above %d", s.Above)
	if s.Keep != nil {
		add(true, "keep %d", *s.Keep)
	}
	add(s.Profiling != 0, "profiling %gs", s.Profiling)
	return strings.Join(words, ", ")
}
