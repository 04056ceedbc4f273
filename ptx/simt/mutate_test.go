package simt_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var operandPattern = regexp.MustCompile(`[%\w$.!|+-]+|\[[^\]]*\]|\{[^}]*\}`)

// mutator makes kernels of the pieces of others: a byte fuzzer hardly ever
// finds something that can be parsed.
type mutator struct {
	rng      *rand.Rand
	sources  []string
	opcodes  []string
	operands []string
}

func newMutator(t *testing.T, seed uint64) *mutator {
	t.Helper()
	m := &mutator{rng: rand.New(rand.NewPCG(seed, 77))}
	files, err := filepath.Glob("testdata/instructions/*.ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m.sources = append(m.sources, string(source))
		for _, line := range strings.Split(string(source), "\n") {
			if opcode, rest, ok := instructionOf(line); ok {
				m.opcodes = append(m.opcodes, opcode)
				m.operands = append(m.operands, operandPattern.FindAllString(rest, -1)...)
			}
		}
	}
	m.operands = append(m.operands, "0", "1", "-1", "0x7fffffff", "0xffffffffffffffff", "WARP_SZ", "%laneid", "%clock", "{}", "[0]", "[%in]", "[%out]", "[%out+4092]", "[in+8]", "_")
	return m
}

// instructionOf takes a line apart: opcode with modifiers, and operands.
func instructionOf(line string) (opcode, operands string, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasSuffix(line, ";") || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "//") {
		return "", "", false
	}
	opcode, operands, _ = strings.Cut(strings.TrimSuffix(line, ";"), " ")
	return opcode, operands, true
}

func (m *mutator) pick(from []string) string { return from[m.rng.IntN(len(from))] }

// mutate changes some instructions of a source.
func (m *mutator) mutate() string {
	lines := strings.Split(m.pick(m.sources), "\n")
	for range 1 + m.rng.IntN(4) {
		at := m.rng.IntN(len(lines))
		opcode, operands, ok := instructionOf(lines[at])
		if !ok {
			continue
		}
		all := operandPattern.FindAllString(operands, -1)
		switch m.rng.IntN(8) {
		case 0:
			opcode = m.pick(m.opcodes)
		case 1: // a modifier goes, or comes from elsewhere
			parts := strings.Split(opcode, ".")
			i := m.rng.IntN(len(parts))
			if others := strings.Split(m.pick(m.opcodes), "."); m.rng.IntN(2) == 0 {
				parts[i] = m.pick(others)
			} else if i > 0 {
				parts = append(parts[:i], parts[i+1:]...)
			}
			opcode = strings.Join(parts, ".")
		case 2:
			if len(all) > 0 {
				all = all[:len(all)-1]
			}
		case 3:
			all = append(all, m.pick(m.operands))
		case 4:
			other := m.rng.IntN(len(lines))
			lines[at], lines[other] = lines[other], lines[at]
			continue
		case 5:
			if len(all) > 1 { // of the same kernel
				i, j := m.rng.IntN(len(all)), m.rng.IntN(len(all))
				all[i] = all[j]
			}
		case 6:
			if len(all) > 0 {
				all[m.rng.IntN(len(all))] = strconv.FormatInt(int64(m.rng.Uint64()>>m.rng.IntN(64)), 10)
			}
		default:
			if len(all) > 0 {
				all[m.rng.IntN(len(all))] = m.pick(m.operands)
			}
		}
		lines[at] = "\t" + opcode + " " + strings.Join(all, ", ") + ";"
	}
	return strings.Join(lines, "\n")
}

// Kernels that were tampered with are refused, or run without harm.
func TestMutatedKernels(t *testing.T) {
	n := 500
	switch {
	case testing.Short():
		n = 300
	case soak:
		n = 30_000
	}
	runMutated(t, n, 1)
}

// runMutated tries n kernels that a seed gives.
func runMutated(t *testing.T, n int, seed uint64) {
	t.Helper()
	m := newMutator(t, seed)
	regions := fencedMemory(t)
	loaded := 0
	for i := range n {
		source, how := m.mutate(), uint16(m.rng.Uint32())
		if !t.Run("", func(t *testing.T) {
			harmless := false
			defer func() { // also if the engine panics
				if !harmless {
					t.Logf("seed %d, kernel %d, launch %#x:\n%s", seed, i, how, source)
				}
			}()
			memory := &testMemory{}
			if program := fuzzLoad(t, source, memory); program != nil && len(program.Kernels()) > 0 {
				loaded++
				runInWays(t, program, memory, regions, how)
			}
			harmless = !t.Failed()
		}) {
			return
		}
	}
	if loaded < n/10 {
		t.Errorf("only %d of %d kernels could be loaded", loaded, n)
	}
}
