// Package emulate starts a private Slurm cluster on this machine, for trying and testing: munged,
// slurmctld, any number of slurmd and slurmrestd, of any release that package release knows. It
// needs no root, no container and no installed Slurm, and leaves nothing behind.
//
// # How
//
// A release is a whole system in a folder (package fetch). The cluster lives in namespaces whose
// root is that system's /usr beside this machine's other folders: /home, /tmp and the like are
// where they were, so a job finds its files and its output under the same names inside and
// outside. The network is the machine's own. Root gets a mount, a PID and a UTS namespace;
// everybody else a user namespace too, in which the cluster has one user.
//
// The first process in there is this program again (see init below): it mounts, starts the
// daemons, collects processes that end, and runs commands for those outside. Every process of the
// cluster is below it, so all end with it, whatever they did to hide. It ends when the process
// that started it does, which a socket between them tells, and removes the folder; only when both
// are killed at the same instant the folder stays, until the next cluster starts.
//
// # Commands
//
// Slurm's commands must run inside, too: they need their own C library and munged. Command makes
// an exec.Cmd that is this program a third time: it hands its arguments, environment, folder and
// open files to the first process and waits. In Cluster.Folder/bin are scripts that do so, for
// shells and other programs: Environ has that folder in PATH.
//
// Emulate knows what Slurm needs to start, and nothing of what it is for: no policy, no driver.
package emulate

import (
	"os"
)

// The words by which this program knows that it was started as a part of a cluster.
const (
	insideWord = "muster-slurm-inside" // the first process of the namespaces
	enterWord  = "muster-slurm-enter"  // a command for it
)

// init takes over when the program was started as a part of a cluster. It is here and not in a
// main so that every program with this package, tests among them, can start clusters.
func init() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case insideWord:
		os.Exit(inside())
	case enterWord:
		os.Exit(enter(os.Args[2:]))
	}
}

// spec is what the first process is told.
type spec struct {
	Folder   string   `json:"folder"`
	Tree     string   `json:"tree"`
	Rootless bool     `json:"rootless"`
	UID      int      `json:"uid"`
	GID      int      `json:"gid"`
	User     string   `json:"user"`
	GPUs     int      `json:"gpus"`
	Nodes    []string `json:"nodes"`
	// Controller and REST are ports; REST is 0 where there is no slurmrestd.
	Controller  int    `json:"controller"`
	REST        int    `json:"rest"`
	RESTPlugins string `json:"rest_plugins"`
}

// started is its answer: an error, or a token for REST.
type started struct {
	Error string `json:"error,omitempty"`
	Token string `json:"token,omitempty"`
}

// The open files that the first process finds, after the three that every process has.
const (
	lifeFile   = 3 // the socket to the process that started it
	doorFile   = 4 // the listening socket for commands
	claimsFrom = 5 // the folder's lock and the claims of ports: to be held
)

func (s *spec) path(name string) string { return s.Folder + "/" + name }
