package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/policy/priority"
	"muster/slurm/release"
)

// Site is the part of slurm.conf that matters for placing jobs.
type Site struct {
	Version string
	// Memory says that Slurm allocates memory as it does cores. DefaultMemory says that a job which
	// names none gets the default amount; otherwise it gets all memory of its nodes.
	Memory, DefaultMemory bool
	// WholeNodes says that Slurm allocates whole nodes only.
	WholeNodes bool
	// Accounting says that there is an accounting database.
	Accounting bool
	// Priority is how Slurm ranks jobs; nil if it serves them in the order of arrival.
	Priority *priority.Config
	// AgeFromSubmission says that a job's age counts from its submission, and not from when it
	// could first have started.
	AgeFromSubmission bool
	// PreemptType is by what Slurm decides which jobs preempt others, "" if none do; PreemptMode is
	// how.
	PreemptType, PreemptMode string
	// Ignored are priority settings that Muster does not follow.
	Ignored []string
}

// Follow sets the driver's configuration as a site and its release of Slurm require.
func (c *Config) Follow(s Site, r *release.Release) {
	c.Memory, c.WholeNodes, c.Balanced = s.Memory, s.WholeNodes, r.Balanced
	c.Priority, c.AgeFromSubmission = s.Priority, s.AgeFromSubmission
	c.ClassByPartition = s.PreemptType == "partition_prio"
}

// ReadSite parses the output of "scontrol show config".
func ReadSite(text string) (Site, error) {
	set := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			if value = strings.TrimSpace(value); value != "(null)" {
				set[strings.ToLower(strings.TrimSpace(key))] = value
			}
		}
	}
	selects := strings.ToUpper(set["selecttypeparameters"])
	unlimited := func(key string) bool { v := set[key]; return v == "" || v == "UNLIMITED" || v == "0" }
	s := Site{
		Version: set["slurm_version"],
		Memory:  strings.Contains(selects, "MEMORY"), DefaultMemory: !unlimited("defmempernode") || !unlimited("defmempercpu"),
		WholeNodes:  strings.HasSuffix(set["selecttype"], "linear"),
		Accounting:  set["accountingstoragetype"] == "accounting_storage/slurmdbd",
		PreemptMode: strings.ToLower(set["preemptmode"]),
	}
	if kind := strings.TrimPrefix(set["preempttype"], "preempt/"); kind != "none" {
		s.PreemptType = kind
	}
	if set["prioritytype"] == "priority/multifactor" {
		if err := s.readPriority(set); err != nil {
			return s, fmt.Errorf("the priorities of slurm.conf: %w", err)
		}
	}
	return s, nil
}

// readPriority reads the settings of multifactor priority.
func (s *Site) readPriority(set map[string]string) error {
	c := priority.Defaults()
	var err error
	weight := func(name string) (n int64) {
		if text := set["priorityweight"+name]; text != "" && err == nil {
			n, err = strconv.ParseInt(text, 10, 64)
		}
		return n
	}
	c.WeightAge, c.WeightFairshare, c.WeightJobSize = weight("age"), weight("fairshare"), weight("jobsize")
	c.WeightPartition, c.WeightQOS = weight("partition"), weight("qos")
	if weight("assoc") > 0 {
		s.Ignored = append(s.Ignored, "PriorityWeightAssoc")
	}
	if err != nil {
		return err
	}
	if c.WeightTRES, err = priority.ParseWeights(s.knownTRES(set["priorityweighttres"])); err != nil {
		return err
	}
	for key, to := range map[string]*time.Duration{"prioritymaxage": &c.MaxAge, "prioritycalcperiod": &c.CalcPeriod} {
		if text := set[key]; text != "" {
			if *to, err = slurmTime(text); err != nil {
				return err
			}
		}
	}
	c.FavorSmall = strings.EqualFold(set["priorityfavorsmall"], "yes")
	if set["prioritysitefactorplugin"] != "" {
		s.Ignored = append(s.Ignored, "PrioritySiteFactorPlugin")
	}
	for flag := range strings.SplitSeq(set["priorityflags"], ",") {
		switch strings.ToUpper(strings.TrimSpace(flag)) {
		case "", "NO_FAIR_TREE", "MAX_TRES", "MAX_TRES_GRES", "CALCULATE_RUNNING", "INCR_ONLY", "DEPTH_OBLIVIOUS":
			// They concern what Slurm computes itself: usage, and jobs that are not held.
		case "ACCRUE_ALWAYS":
			s.AgeFromSubmission = true
		default:
			s.Ignored = append(s.Ignored, "PriorityFlags="+strings.TrimSpace(flag))
		}
	}
	s.Priority = &c
	return c.Validate()
}

// knownTRES drops the resources that package priority does not know.
func (s *Site) knownTRES(text string) string {
	var known []string
	for item := range strings.SplitSeq(text, ",") {
		name, _, _ := strings.Cut(item, "=")
		switch strings.ToLower(name) {
		case "":
		case "cpu", "mem", "gres/gpu":
			known = append(known, item)
		default:
			s.Ignored = append(s.Ignored, "PriorityWeightTRES "+name)
		}
	}
	return strings.Join(known, ",")
}

// slurmTime parses 7-00:00:00 and 00:05:00.
func slurmTime(text string) (time.Duration, error) {
	days, clock, ok := strings.Cut(text, "-")
	if !ok {
		days, clock = "0", text
	}
	var h, m, sec int
	d, err := strconv.Atoi(days)
	if err == nil {
		_, err = fmt.Sscanf(clock, "%d:%d:%d", &h, &m, &sec)
	}
	if err != nil || d < 0 || d > 1<<20 {
		return 0, fmt.Errorf("%.40q is no time as 7-00:00:00", text)
	}
	return time.Duration(d)*24*time.Hour + time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec)*time.Second, nil
}
