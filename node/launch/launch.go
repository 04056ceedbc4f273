// Package launch has what it takes to start a program whose CUDA calls Muster serves: where Muster's
// libraries are, what the program's environment says of its wishes, and who serves it: a node that is
// there, one that is started for the program alone, or a process that passes its calls on to a node
// elsewhere.
//
// It starts nodes for a program, by the flags of muster node, but not the program, and knows neither
// the flags of the command that does nor exit codes. Names of flags stand in its errors, since these
// are what users typed.
package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/internal/misuse"
	"muster/internal/passthrough"
	"muster/internal/units"
	"muster/mapping"
	"muster/node/settings"
)

// Find finds a program as a shell does.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // the user named it
	}
	return path, err
}

// Libraries finds the folder of Muster's libcuda.so.1: where $MUSTER_LIB says, or beside this program.
func Libraries() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return librariesOf(self, os.Getenv("MUSTER_LIB"))
}

func librariesOf(self, first string) (string, error) {
	here := filepath.Dir(self)
	places := []string{filepath.Join(here, "lib"), filepath.Join(here, "..", "lib", "muster")}
	if first != "" {
		places = append([]string{first}, places...)
	}
	for _, place := range places {
		if _, err := os.Stat(filepath.Join(place, "libcuda.so.1")); err == nil {
			return filepath.Abs(place)
		}
	}
	return "", fmt.Errorf("libcuda.so.1 is in none of %s: build it with make build, or set MUSTER_LIB", strings.Join(places, ", "))
}

// Wishes are what a user may ask for a program. Each is left to the node where it is zero.
type Wishes struct {
	// Memory is how much device memory the program sees, a size; Share is a part of a GPU's
	// multiprocessors, as 25%.
	Memory, Share string
	Class         string
	Weight        int
	Mapping       string
	// GPUs is how many devices the program sees, Explain of how many launches the mapper tells why.
	GPUs, Explain int
	// Nodes are those on which the program may have elements, with commas between.
	Nodes string
	// MPI has the program announce MPI's collective operations to the node.
	MPI bool
}

// minMemory is the least device memory that a program can be given: less is most
// likely a size without its unit.
const minMemory = 1 << 20

// The largest values of wishes that are numbers.
const maxWeight, maxGPUs, maxExplain = 1000, 16, 1000

// Environment is the environment of a program with these wishes that finds Muster's libraries in a
// folder, but for the socket.
func (w *Wishes) Environment(base []string, libraries string) ([]string, error) {
	environment := passthrough.Prepend(base, "LD_LIBRARY_PATH", libraries)
	set := func(variable, value string) { environment = passthrough.Set(environment, variable, value) }
	if w.Memory != "" {
		size, err := units.ParseSize(w.Memory)
		if err != nil {
			return nil, misuse.Errorf("--memory: %v", err)
		}
		if size < minMemory {
			return nil, misuse.Errorf("--memory %s is %s: give %s or more, with a unit, as 2GiB; leave it out for as much as the largest device has",
				w.Memory, units.BriefSize(uint64(size)), units.BriefSize(minMemory))
		}
		set("MUSTER_MEMORY", strconv.FormatInt(size, 10))
	}
	if w.Class != "" {
		if w.Class != string(settings.ClassLatency) && w.Class != string(settings.ClassBatch) {
			return nil, misuse.Errorf("--class %s: use latency or batch", w.Class)
		}
		set("MUSTER_CLASS", w.Class)
	}
	if w.Mapping != "" {
		if err := mapping.CheckSetting(w.Mapping); err != nil {
			return nil, misuse.Errorf("--mapping: %v", err)
		}
		set("MUSTER_MAPPING", w.Mapping)
	}
	for _, n := range []struct {
		flag, variable string
		value, most    int
	}{{"weight", "MUSTER_WEIGHT", w.Weight, maxWeight}, {"gpus", "MUSTER_GPUS", w.GPUs, maxGPUs}, {"explain", "MUSTER_EXPLAIN", w.Explain, maxExplain}} {
		if n.value < 0 || n.value > n.most {
			return nil, misuse.Errorf("--%s %d: give a number from 1 to %d", n.flag, n.value, n.most)
		}
		if n.value > 0 {
			set(n.variable, strconv.Itoa(n.value))
		}
	}
	if w.Share != "" {
		percent, err := settings.ParseShare(w.Share)
		if err != nil {
			return nil, misuse.Errorf("--share %v", err)
		}
		set("MUSTER_SHARE", strconv.Itoa(percent))
	}
	if w.Nodes != "" {
		set("MUSTER_IVM_NODES", w.Nodes)
	}
	if w.MPI {
		library := filepath.Join(libraries, "libmuster-mpi.so")
		if _, err := os.Stat(library); err != nil {
			return nil, fmt.Errorf("--mpi needs a library that is not there: %w", err)
		}
		environment = passthrough.Prepend(environment, "LD_PRELOAD", library)
	}
	return environment, nil
}

// copyThreads is how many threads help a program with copies if its node is another machine: more
// would copy faster than the network carries, and take the processors on which the relay encrypts.
const copyThreads = 2

// FewerCopyThreads limits these threads on a machine with so many processors that the library would
// take more, unless the user says how many there are to be.
func FewerCopyThreads(environment []string, processors int) []string {
	const name = "MUSTER_COPY_THREADS"
	chosen := slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, name+"=") && v != name+"=" })
	if chosen || processors/2-1 <= copyThreads {
		return environment
	}
	return passthrough.Set(environment, name, strconv.Itoa(copyThreads))
}
