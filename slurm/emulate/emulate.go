// Package emulate starts a private Slurm cluster on this machine, for trying and testing: munged,
// slurmctld, any number of slurmd, and slurmrestd, of any release that package release knows. It
// needs no root, no container and no installed Slurm, and leaves nothing behind.
//
// # How it works
//
// A release is a whole system in a folder (package fetch). The cluster lives in namespaces whose
// root has that system's /usr beside this machine's other folders. /home, /tmp and others are where
// they were, so a job finds its files and its output under the same names inside and outside. The
// network is the machine's own. Root gets a mount, a PID and a UTS namespace; other users get a
// user namespace too, in which the cluster has one user.
//
// The first process in there is this program again (see init below). It mounts, starts the daemons,
// reaps processes that end, and runs commands for clients outside. Every process of the cluster is
// its descendant in the PID namespace, so all end with it, whatever they did to hide. It ends when
// the process that started it does, as a socket between them tells, and removes the folder. Only if
// both are killed at the same instant does the folder stay, until the next cluster starts.
//
// # Commands
//
// Slurm's commands must run inside, too: they need their own C library and munged. Command makes an
// exec.Cmd that runs this program a third time: it hands its arguments, environment, directory and
// open files to the first process and waits. The scripts in Cluster.Folder/bin do the same for
// shells and other programs; Environ has that folder in PATH.
//
// The package knows what Slurm needs to start, and nothing of policies or the driver.
package emulate

import (
	"os"
)

// The arguments that tell this program that it was started as a part of a cluster.
const (
	insideWord = "muster-slurm-inside" // as the first process of the namespaces
	enterWord  = "muster-slurm-enter"  // as a client that runs a command
)

// init takes over if the program was started as a part of a cluster. It is here and not in a main
// package, so that every program with this package, including tests, can start clusters.
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

// spec is the input of the first process.
type spec struct {
	Folder   string   `json:"folder"`
	Tree     string   `json:"tree"`
	Rootless bool     `json:"rootless"`
	UID      int      `json:"uid"`
	GID      int      `json:"gid"`
	User     string   `json:"user"`
	GPUs     int      `json:"gpus"`
	Nodes    []string `json:"nodes"`
	// Controller and REST are ports; REST is 0 if there is no slurmrestd.
	Controller  int    `json:"controller"`
	REST        int    `json:"rest"`
	RESTPlugins string `json:"rest_plugins"`
}

// started is the answer of the first process: an error, or a token for REST.
type started struct {
	Error string `json:"error,omitempty"`
	Token string `json:"token,omitempty"`
}

// The open files of the first process, after the three that every process has.
const (
	lifeFile   = 3 // the socket to the process that started it
	doorFile   = 4 // the listening socket for commands
	claimsFrom = 5 // the folder's lock and the claims of ports, which it must keep open
)

func (s *spec) path(name string) string { return s.Folder + "/" + name }
