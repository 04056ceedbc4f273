package chaos

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// command is a program to run, with its correct output and exit status.
type command struct {
	words  []string // the name of an example, and its options
	line   string   // its output without times
	status int      // its exit status
}

func (c command) String() string { return strings.Join(c.words, " ") }

// examples are typical programs with their output. The memory for a single kernel fits on the
// smallest device of any plan.
var examples = []struct{ words, line string }{
	{"bp --size 4k --repeat 20", "bp: 20 networks of 4096 inputs right"},
	{"bfs --size 128k", "bfs: 1 searches of 131072 nodes in 22 calls right"},
	{"hotspot --size 256", "hotspot: 4 steps of 256 x 256 cells right"},
	{"nw --size 1k", "nw: 1 alignments of 1024 letters right"},
	{"sp --size 2k", "sp: 512 products of 2048 elements right"},
	{"mt --size 128 --repeat 800", "mt: 800 transposes of 128 x 128 right"},
	{"pr --size 64k --repeat 400", "pr: 400 sums of 65536 elements right"},
	{"sc --size 8k --repeat 300", "sc: 300 scans of 8192 elements right"},
	{"bs --size 16k --repeat 200", "bs: 200 pricings of 16384 options right"},
	{"va --size 512k", "va: 1 additions of 524288 elements right"},
	{"mm --size 96 --repeat 100 --cpu 0.5", "mm: 100 products of 96 x 96 right"},
	{"mm --size 64 --repeat 60 --cpu-ms 5 --cpu-sleep", "mm: 60 products of 64 x 64 right"},
	{"nested --size 64k --repeat 12", "nested: 6 tables of 4 rows right"},
	{"procs --processes 2 --iterations 6 --kernels 20 --pattern alltoall --mpi-bytes 3000", "procs: 2 processes, 6 iterations of 1 phases of 20 kernel calls right"},
}

// maxHeld is the maximum of additional memory that a program holds, in words.
const maxHeld = 2 << 20

// drawCommand draws a program. Half are weave, which uses most features of the API; one in six of
// these makes a deliberate error.
func drawCommand(r *rand.Rand) command {
	held := 4 * r.IntN(maxHeld)
	if r.IntN(2) == 0 {
		e := examples[r.IntN(len(examples))]
		return command{words: append(strings.Fields(e.words), "--memory", fmt.Sprint(held)), line: e.line}
	}
	w := weave{size: 1 << (10 + r.IntN(5)), every: 1 + r.IntN(24), seed: uint32(r.IntN(1 << 20))}
	w.rounds = 100 + r.IntN(400)
	if w.size > 1<<12 {
		w.rounds /= 2
	}
	words := []string{"weave", "--size", fmt.Sprint(w.size), "--repeat", fmt.Sprint(w.rounds), "--compare", fmt.Sprint(w.every),
		"--seed", fmt.Sprint(w.seed), "--memory", fmt.Sprint(held)}
	if r.IntN(6) == 0 {
		words = append(words, "--beyond")
	}
	if r.IntN(6) == 0 {
		poke := 1 + r.IntN(w.rounds)
		return command{words: append(words, "--poke", fmt.Sprint(poke)), line: fmt.Sprintf("weave: an illegal address in round %d, as asked", poke), status: 3}
	}
	return command{words: words, line: fmt.Sprintf("weave: %d rounds of 3 x %d words, checksum %08x right", w.rounds, w.size, w.checksum())}
}

var times = regexp.MustCompile(`, [0-9.]+ s \(.*\)`)

// result is a program's output without times.
func result(output string) string {
	return strings.TrimSuffix(times.ReplaceAllString(output, ""), "\n")
}

// weave is a second implementation of the computation of examples/cuda/weave.c.
type weave struct {
	size, rounds, every int
	seed                uint32
}

func mix(x uint32) uint32 {
	x = (x ^ x>>16) * 0x7feb352d
	x = (x ^ x>>15) * 0x846ca68b
	return x ^ x>>16
}

const strands = 3

func (w weave) checksum() uint32 {
	var strand, braided [strands][]uint32
	for s := range strands {
		strand[s], braided[s] = make([]uint32, w.size), make([]uint32, w.size)
	}
	var salt [strands + 1]uint32
	blocks := uint32(0)
	for round := uint32(1); round <= uint32(w.rounds); round++ {
		for s := range uint32(strands) {
			for i, old := range strand[s] {
				x := old ^ mix(w.seed*0x9e3779b9+round*0x85ebca6b+s*0xc2b2ae35+uint32(i))
				strand[s][i] = (x<<7 | x>>25) + salt[s]
			}
		}
		for s := range strands {
			next := strand[(s+1)%strands]
			for i, old := range strand[s] {
				braided[s][i] = old + mix(next[(i+int(round))%w.size])
			}
		}
		strand, braided = braided, strand
		for s := range strands {
			salt[s] = mix(salt[s] ^ strand[s][int(round)%w.size])
		}
		if int(round)%w.every == 0 || int(round) == w.rounds {
			salt[strands] += uint32(w.size/4) * round
			for _, x := range strand[0][w.size/4:] {
				salt[strands] += x
			}
			blocks += uint32((w.size + 255) / 256)
		}
	}
	sum := blocks
	for s := range strands {
		for _, x := range strand[s] {
			sum = mix(sum ^ x)
		}
	}
	for _, x := range salt {
		sum = mix(sum ^ x)
	}
	return sum
}
