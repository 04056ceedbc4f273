package simt_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const poclRemedy = "to measure PoCL install it: apt-get install gcc libc6-dev pocl-opencl-icd ocl-icd-opencl-dev"

// BenchmarkPoCL reports what PoCL does of the same work, by the same kernels
// in OpenCL, on one and on two threads. The program times itself.
func BenchmarkPoCL(b *testing.B) {
	folder := b.TempDir()
	program := buildPoCLProgram(b, folder)
	for _, threads := range []string{"1", "2"} {
		rates := runPoCLProgram(b, program, folder, threads)
		for _, w := range benchmarkWorks {
			b.Run("threads="+threads+"/"+w.String(), func(b *testing.B) {
				rate, ok := rates[w]
				if !ok {
					b.Fatalf("the program printed no figure in %s", w.unit)
				}
				b.ReportMetric(rate[0], w.unit)
				b.ReportMetric(rate[1], w.unit[:len(w.unit)-1]+"cpu-s")
				b.ReportMetric(rate[2], "best-"+w.unit[:len(w.unit)-1]+"cpu-s")
				b.ReportMetric(0, "ns/op") // hides it: nothing runs here
			})
		}
	}
}

func buildPoCLProgram(b *testing.B, folder string) string {
	program := filepath.Join(folder, "bench")
	command := exec.Command("cc", "-O2", "-o", program, "testdata/pocl/bench.c", "-lOpenCL", "-lm")
	command.Env = append(os.Environ(), "LC_ALL=C")
	output, err := command.CombinedOutput()
	text := string(output)
	missing := regexp.MustCompile(`CL/cl\.h: No such file|'CL/cl\.h' file not found|find (library )?-lOpenCL`)
	switch {
	case errors.Is(err, exec.ErrNotFound), missing.MatchString(text):
		b.Skip(poclRemedy)
	case err != nil:
		b.Fatalf("cc: %v\n%s", err, text)
	}
	return program
}

// runPoCLProgram returns the rate of each work, a second of the clock and of processor
// time, and the best of the latter.
func runPoCLProgram(b *testing.B, program, folder, threads string) map[benchmarkWork][3]float64 {
	command := exec.Command(program, "testdata/pocl/kernels.cl", threads)
	command.Env = append(os.Environ(), "POCL_CACHE_DIR="+filepath.Join(folder, "cache"))
	command.Stderr = os.Stderr
	output, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		b.Skip(poclRemedy)
	}
	if err != nil {
		b.Fatalf("%s: %v", program, err)
	}
	rates := map[benchmarkWork][3]float64{}
	for line := range strings.Lines(string(output)) {
		name, n, rate, unit, processor, best := "", 0, 0.0, "", 0.0, 0.0
		if _, err := fmt.Sscanf(line, "%s n=%d %g %s %g %g", &name, &n, &rate, &unit, &processor, &best); err != nil {
			b.Fatalf("the program printed %q: %v", line, err)
		}
		for _, w := range benchmarkWorks {
			if w.name == name && w.n == n && w.unit == unit {
				rates[w] = [3]float64{rate, processor, best}
			}
		}
	}
	return rates
}
