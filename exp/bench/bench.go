// Package bench holds what experiments share that start Muster and programs on this machine and
// measure them: the Study that such an experiment is, finding the executables, starting nodes that
// stand in for the papers' GPUs, networks with a bandwidth, describing the machine, and detecting
// load from other processes. It knows no experiment.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"muster/internal/misuse"
	"muster/internal/units"
)

// Tools are the executables and libraries that an experiment runs.
type Tools struct {
	Muster   string // this program
	Lib      string // the folder of libcuda.so.1
	Programs string // the folder of the examples
}

// FindTools finds the files that belong to this executable: in its own folder or, for the library,
// in the folder that MUSTER_LIB names. programs names another folder for the example programs; ""
// selects the default. It returns an error if one of the wanted programs is missing.
func FindTools(programs string, wanted ...string) (Tools, error) {
	self, err := os.Executable()
	if err != nil {
		return Tools{}, fmt.Errorf("finding this program, to start nodes: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	here := filepath.Dir(self)
	if programs == "" {
		programs = filepath.Join(here, "examples")
	}
	return ToolsIn(self, []string{os.Getenv("MUSTER_LIB"), filepath.Join(here, "lib"), filepath.Join(here, "..", "lib", "muster")}, programs, wanted...)
}

// ToolsIn checks that all files exist. libs are the folders in which the library may be.
func ToolsIn(muster string, libs []string, programs string, wanted ...string) (Tools, error) {
	t := Tools{Muster: muster}
	at := slices.IndexFunc(libs, func(lib string) bool {
		_, err := os.Stat(filepath.Join(lib, "libcuda.so.1"))
		return lib != "" && err == nil
	})
	if at < 0 {
		return t, errors.New("libcuda.so.1 is not beside this program: build it with make build, or set MUSTER_LIB to its folder")
	}
	var err error
	if t.Lib, err = filepath.Abs(libs[at]); err != nil {
		return t, err
	}
	if t.Programs, err = filepath.Abs(programs); err != nil {
		return t, err
	}
	for _, p := range wanted {
		if _, err := os.Stat(filepath.Join(t.Programs, p)); err != nil {
			return t, fmt.Errorf("the programs to run are not in %s (%s is missing): make examples builds them, and --programs names another folder", t.Programs, p)
		}
	}
	return t, nil
}

// WithoutSettings removes from an environment the user's own Muster settings, and those of the job
// that this process may be part of. The daemons and programs of an experiment must see neither.
func WithoutSettings(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(s string) bool {
		return strings.HasPrefix(s, "MUSTER_") || strings.HasPrefix(s, "SLURM_")
	})
}

// Environment is that of daemons and programs: the user's own without any settings of Muster, and with more variables.
func (t *Tools) Environment(more ...string) []string {
	return append(append(WithoutSettings(os.Environ()), "MUSTER_LIB="+t.Lib), more...)
}

// Machine describes this machine, as far as it matters for measured times.
func Machine() string {
	text := units.Plural(runtime.NumCPU(), "processor")
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return text + ", " + strings.TrimSpace(value)
		}
	}
	return text
}

// Watch starts a goroutine that sleeps repeatedly and measures by how much the machine oversleeps.
// The function that it returns stops the goroutine and returns the mean delay in seconds: a measure
// of how busy the machine is. It must be called exactly once.
func Watch() func() float64 {
	const nap = 2 * time.Millisecond
	stop, answer := make(chan struct{}), make(chan float64)
	go func() {
		var over time.Duration
		for naps := 1; ; naps++ {
			start := time.Now()
			time.Sleep(nap)
			over += time.Since(start) - nap
			select {
			case <-stop:
				answer <- over.Seconds() / float64(naps)
				return
			default:
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-answer
	}
}

// Patience parses the flag for the total time that an experiment may wait for a quiet machine.
func Patience(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, misuse.Errorf("--patience %s: give a time from 0s to 24h, as 10m", text)
	}
	return d, nil
}

// Quietly calls try, which returns a result and the mean wake-up delay during it. While the delay
// exceeds late and patience is left, it tries again; the time of each repeated try is taken from
// patience. It returns the try with the smallest delay, and that delay. The choice depends only on
// the delay, never on the result, so it does not bias the measurement.
func Quietly[T any](patience *time.Duration, late float64, try func() (T, float64, error)) (best T, least float64, err error) {
	least = math.Inf(1)
	for {
		start := time.Now()
		out, by, err := try()
		if err != nil {
			return out, by, err
		}
		if by < least {
			best, least = out, by
		}
		if by <= late || *patience <= 0 {
			return best, least, nil
		}
		*patience -= time.Since(start)
	}
}

// AwaitQuiet waits until the machine's wake-up delay is at most late, or until patience is used up.
// It returns the rest of patience.
func AwaitQuiet(ctx context.Context, patience time.Duration, late float64) (time.Duration, error) {
	const look = 200 * time.Millisecond
	for patience > 0 {
		machine := Watch()
		if err := Pause(ctx, look); err != nil {
			return patience, err
		}
		if machine() <= late {
			return patience, nil
		}
		patience -= look
	}
	return patience, nil
}

// Pause waits, unless the context ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
