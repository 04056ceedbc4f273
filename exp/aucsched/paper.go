package aucsched

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// paperText has Tables 5 to 8 as they are printed, slips included: the slowdown of
// V.2 in Table 8 is surely not 3.00, and the utilisations of I.1 in Table 6
// do not belong to the run times beside them.
//
//go:embed paper.tsv
var paperText string

// printed is one line of a table of the paper.
type printed struct {
	table, version string
	contiguous     int // per cent of the jobs
	method         string
	numbers
}

// method names of the paper.
const (
	aucschedMethod = "AUCSCHED"
	slurmMethod    = "SLURM/BF"
)

// paper are the lines of Tables 5 to 8, in their order.
var paper = readPaper(paperText)

// readPaper parses the transcript. The transcript is embedded in the program, so an error in it is
// a bug, and readPaper panics.
func readPaper(text string) []printed {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var list []printed
	for _, line := range lines[1:] {
		p, err := readPrinted(strings.Split(line, "\t"))
		if err != nil {
			panic(fmt.Sprintf("aucsched: paper.tsv: %q: %v", line, err))
		}
		list = append(list, p)
	}
	return list
}

func readPrinted(cells []string) (printed, error) {
	if len(cells) != 14 {
		return printed{}, fmt.Errorf("%d cells, want 14", len(cells))
	}
	var values [14]float64
	for i, cell := range cells {
		if i == 1 || i == 4 {
			continue
		}
		v, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			return printed{}, err
		}
		values[i] = v
	}
	return printed{
		table: cells[0], version: cells[1], contiguous: int(values[2]), method: cells[4],
		numbers: numbers{
			theoretical: values[3], utilization: values[5], runtime: values[6],
			wait: values[7], waitSTD: values[8], fragmentation: values[9], fragmentationSTD: values[10],
			slowdown: values[11], spread: values[12], spreadSTD: values[13],
		},
	}, nil
}

// inPaper finds a line of the tables.
func inPaper(table, version, method string) (*printed, bool) {
	for i := range paper {
		if p := &paper[i]; p.table == table && p.version == version && p.method == method {
			return p, true
		}
	}
	return nil, false
}
