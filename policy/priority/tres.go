package priority

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// TRES is an amount of trackable resources, as Slurm calls them.
type TRES struct {
	Cores  int64 `json:"cores,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
	// MicroGPUs counts GPUs in millionths: a share of a device is the part of
	// its memory that it takes (see GPUShare).
	MicroGPUs int64 `json:"micro_gpus,omitempty"`
}

// Million is one GPU in TRES.MicroGPUs, and a weight of 1 in Billing.
const Million = 1_000_000

// GPUShare is the part of a device that memory bytes of it are, in millionths,
// rounded to the nearest.
func GPUShare(memory, whole int64) int64 {
	if whole <= 0 || memory >= whole {
		return Million
	}
	return mulDiv(memory, Million, whole)
}

// mulDiv is a x b / c to the nearest integer, for values that are not negative;
// what would not fit an int64 is its largest value.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, a)), uint64(max(0, b)))
	lo, carry := bits.Add64(lo, uint64(c)/2, 0)
	hi += carry
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// Billing says what a second of each resource costs, in millionths: per core,
// per GiB of memory, per GPU. Slurm calls it TRESBillingWeights.
type Billing struct {
	CPU int64 `json:"cpu"`
	Mem int64 `json:"mem"`
	GPU int64 `json:"gpu"`
	// Max charges the most expensive resource of a job alone, not the sum of
	// all: Slurm's PriorityFlags=MAX_TRES.
	Max bool `json:"max,omitempty"`
}

const gib = 1 << 30

// maxRate bounds what one job is charged per second, so that sums of many fit.
const maxRate = 1 << 50

// rate is what a job that holds t is charged per second, in millionths.
func (b *Billing) rate(t TRES) int64 {
	parts := [...]int64{mulDiv(t.Cores, b.CPU, 1), mulDiv(t.Memory, b.Mem, gib), mulDiv(t.MicroGPUs, b.GPU, Million)}
	sum := int64(0)
	for _, p := range parts {
		p = min(p, maxRate)
		if b.Max {
			sum = max(sum, p)
		} else {
			sum = min(sum+p, maxRate)
		}
	}
	return sum
}

// Weights are Slurm's PriorityWeightTRES: what a job gets for asking for all
// that the cluster has of a resource.
type Weights struct {
	CPU int64 `json:"cpu,omitempty"`
	Mem int64 `json:"mem,omitempty"`
	GPU int64 `json:"gpu,omitempty"`
}

// ParseWeights reads PriorityWeightTRES, as CPU=1000,Mem=2000,GRES/gpu=3000.
func ParseWeights(text string) (Weights, error) {
	var w Weights
	err := parseTRES(text, func(name, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > MaxWeight {
			return fmt.Errorf("%s must be a whole number from 0 to %d, not %q", name, int64(MaxWeight), value)
		}
		*pick(name, &w.CPU, &w.Mem, &w.GPU) = n
		return nil
	})
	return w, err
}

// ParseBilling reads TRESBillingWeights, as CPU=1.0,Mem=0.25G,GRES/gpu=2.0. The
// unit of the memory is K, M, G or T; without one it is M, as in Slurm.
func ParseBilling(text string) (Billing, error) {
	var b Billing
	err := parseTRES(text, func(name, value string) error {
		unit := 30
		if name == "Mem" {
			value, unit = memoryUnit(value)
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil || !(x >= 0 && x <= 1e9) {
			return fmt.Errorf("%s must be a number from 0 to 1e9, not %q", name, value)
		}
		n := math.Ldexp(math.Round(float64(x*Million)), 30-unit)
		if n > 1e15 {
			return fmt.Errorf("%s: %s is too large", name, value)
		}
		*pick(name, &b.CPU, &b.Mem, &b.GPU) = int64(math.Round(n))
		return nil
	})
	return b, err
}

// memoryUnit cuts the unit off a weight of memory; it is a power of two.
func memoryUnit(text string) (number string, unit int) {
	for i, letter := range "KMGT" {
		for _, s := range []string{string(letter), strings.ToLower(string(letter))} {
			if rest, ok := strings.CutSuffix(text, s); ok {
				return rest, 10 * (i + 1)
			}
		}
	}
	return text, 20
}

var tresNames = []string{"CPU", "Mem", "GRES/gpu"}

func pick(name string, cpu, mem, gpu *int64) *int64 {
	switch name {
	case "CPU":
		return cpu
	case "Mem":
		return mem
	}
	return gpu
}

// parseTRES reads NAME=VALUE,NAME=VALUE with Slurm's names of resources, each once.
func parseTRES(text string, set func(name, value string) error) error {
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		word, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return fmt.Errorf("%q: write NAME=VALUE with commas between, as CPU=1,Mem=0.25G,GRES/gpu=10", item)
		}
		name := ""
		for _, known := range tresNames {
			if strings.EqualFold(word, known) {
				name = known
			}
		}
		switch {
		case name == "":
			return fmt.Errorf("there is no resource %q here: there are %s", word, strings.Join(tresNames, ", "))
		case seen[name]:
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if err := set(name, value); err != nil {
			return err
		}
	}
	return nil
}
