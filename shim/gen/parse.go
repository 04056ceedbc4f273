package main

import (
	"fmt"
	"strconv"
	"strings"

	"muster/shim/functions"
)

// result is one line of errors.txt.
type result struct {
	number     int
	name, text string
}

func parseResults(text string) ([]result, error) {
	var all []result
	err := functions.EachLine(text, func(line string) error {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 {
			return fmt.Errorf("%q: a number, a name and a text are wanted", line)
		}
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return fmt.Errorf("%q is no number", words[0])
		}
		all = append(all, result{n, "CUDA_" + words[1], words[2]})
		return nil
	})
	return all, err
}
