// Package release lists, in one place, what differs between the releases of Slurm that Muster works
// with: which distribution of Debian carries a release, which versions of REST it serves, how a
// placement is written there, which lines its configuration needs, and what a SPANK plug-in must
// heed. It is data with a few functions: it knows no cluster and touches nothing.
//
// A release that is not in the table is refused. Slurm's REST interface accepts fields that it does
// not know with a warning and does the rest, so a guess could start a job on a wrong node.
package release

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Release is one release of Slurm, named by year and month.
type Release struct {
	// Name is how versions of the release begin: "26.05".
	Name string
	// Suites are the distributions of Debian that carry it, the preferred one first.
	Suites []string
	// Extra are Debian packages that this release needs beside Slurm's own.
	Extra []string

	// APIs are the versions of REST that slurmrestd serves, oldest first; API is the one that
	// Muster uses.
	APIs []string
	API  string
	// RESTPlugins is the value of slurmrestd's option -s for serving jobs and nodes, without
	// accounting.
	RESTPlugins string
	// Words says how documents in API differ.
	Words Words

	// CgroupConf is the text of the cgroup.conf that a cluster without control groups needs beside
	// slurm.conf; "" if it needs none.
	CgroupConf string
	// Balanced says how Slurm divides the processors of a job with a node list and MinCPUsNode. If
	// it is true, tasks are spread as evenly as possible, the first nodes having one more: 5 tasks
	// on 2 nodes are 3 and 2. Otherwise every node gives MinCPUsNode: 3 and 3.
	Balanced bool
	// TellsOpenNodes says that a waiting job without -N can be distinguished from one that asks for
	// exactly the number of nodes that the first needs at least.
	TellsOpenNodes bool
	// LoadJobByStep says that slurm_load_job of libslurm takes a slurm_step_id_t, and that a job's
	// number is step_id.job_id; before, both are plain numbers. The SPANK plug-in checks
	// SLURM_VERSION_NUMBER for it.
	LoadJobByStep bool
}

// Words are the differences in REST's documents.
type Words struct {
	// NodeList is the field of an update that names a job's nodes; NodeListText says that its value
	// is a string with commas and not a list.
	NodeList     string
	NodeListText bool
	// AdminComment is the field for the comment that only administrators may write; "" if REST has
	// none and scontrol must write it.
	AdminComment string
	// WrappedNumbers says that numbers which may be absent or infinite are documents,
	// {"set","infinite","number"}.
	WrappedNumbers bool
	// StateList says that a job's state is a list of words and not one word.
	StateList bool
	// EnvironmentTable says that a submitted job's environment is {"NAME":"value"}, and not
	// ["NAME=value"].
	EnvironmentTable bool
	// UnknownIsError says that a field which slurmrestd does not know is an error, and nothing is
	// done. Otherwise it is a warning and the rest is done, so a warning must count as failure.
	UnknownIsError bool
	// HeldIsError says that the answer to the submission of a held job has an error (HeldError)
	// although the job exists; otherwise the same notice is two warnings.
	HeldIsError bool
}

// HeldError is the number of the notice that a submitted or changed job is held.
const HeldError = 2042

var all = []*Release{
	{
		Name:           "22.05",
		Suites:         []string{"bookworm"},
		APIs:           []string{"v0.0.36", "v0.0.37", "v0.0.38"},
		API:            "v0.0.38",
		RESTPlugins:    "openapi/v0.0.38",
		Words:          Words{NodeList: "nodelist", NodeListText: true, EnvironmentTable: true, UnknownIsError: true, HeldIsError: true},
		TellsOpenNodes: true,
	},
	{
		Name:        "24.11",
		Suites:      []string{"trixie"},
		Extra:       []string{"systemd-standalone-sysusers", "adduser"}, // otherwise all of systemd would be needed
		APIs:        []string{"v0.0.40", "v0.0.41", "v0.0.42"},
		API:         "v0.0.42",
		RESTPlugins: "slurmctld",
		Words: Words{NodeList: "required_nodes", AdminComment: "admin_comment",
			WrappedNumbers: true, StateList: true},
		CgroupConf: "CgroupPlugin=disabled\n",
		Balanced:   true,
	},
	{
		Name:        "26.05",
		Suites:      []string{"forky", "sid"},
		Extra:       []string{"systemd-standalone-sysusers", "adduser"},
		APIs:        []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"},
		API:         "v0.0.42",
		RESTPlugins: "slurmctld",
		Words: Words{NodeList: "required_nodes", AdminComment: "admin_comment",
			WrappedNumbers: true, StateList: true},
		CgroupConf:     "CgroupPlugin=disabled\n",
		Balanced:       true,
		TellsOpenNodes: true,
		LoadJobByStep:  true,
	},
}

// All returns the releases, oldest first.
func All() []*Release { return slices.Clone(all) }

// Newest returns the release that is used if none is named.
func Newest() *Release { return all[len(all)-1] }

// Names returns the names of the releases, oldest first.
func Names() []string {
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// version finds year and month in the version strings of Slurm and Debian: "slurm-wlm 22.05.8",
// "26.05.5-1", "24.11".
var version = regexp.MustCompile(`(?:^|[\s:])(\d\d\.\d\d)(?:[.~+-]|\s|$)`)

// Of returns the release that a version belongs to: "26.05", "26.05.5-1", or a line of "sinfo
// --version".
func Of(text string) (*Release, error) {
	found := version.FindStringSubmatch(strings.TrimSpace(text))
	if found == nil {
		return nil, fmt.Errorf("%.60q is no version of Slurm: give one as 26.05 or 26.05.5", text)
	}
	for _, r := range all {
		if r.Name == found[1] {
			return r, nil
		}
	}
	return nil, fmt.Errorf("Slurm %s is not known here: Muster works with %s, and would rather place nothing than misplace a job",
		found[1], strings.Join(Names(), ", "))
}

// Placement returns the document that, posted to /slurm/API/job/ID, gives a held job exactly these
// nodes and releases it, in one request. It pins the number of nodes, since a job submitted without
// -N could otherwise get more nodes than are named. If the release has no field for the
// administrators' comment (Words.AdminComment), the caller must write the comment in another way.
func (r *Release) Placement(nodes []string, comment string) map[string]any {
	w := r.Words
	update := map[string]any{"hold": false, "nodes": fmt.Sprint(len(nodes))}
	if w.NodeListText {
		update[w.NodeList] = strings.Join(nodes, ",")
	} else {
		update[w.NodeList] = nodes
	}
	if w.AdminComment != "" && comment != "" {
		update[w.AdminComment] = comment
	}
	return update
}

// Serves says whether slurmrestd of this release serves a version of REST.
func (r *Release) Serves(api string) bool { return slices.Contains(r.APIs, api) }
