// Command gen makes the parts of the shim that follow from its description of
// CUDA's driver interface: cuda.h, the exported functions, the table of
// cuGetProcAddress, and what is said of each function in docs/compatibility.md and
// by `muster check`. What is in C is made by `make`, and not kept. It knows what
// functions look like, and not what they do.
package main

//go:generate go run . ..

import (
	"fmt"
	"os"
	"path/filepath"

	"muster/internal/wholefile"
	"muster/shim/functions"
)

func main() {
	dir := "shim"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	files, err := generate(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "shim/gen:", err)
		os.Exit(1)
	}
	for name, text := range files {
		if err := wholefile.Replace(filepath.Join(dir, name), text, 0o644); err != nil { // somebody may be compiling
			fmt.Fprintln(os.Stderr, "shim/gen:", err)
			os.Exit(1)
		}
	}
}

// generate returns the files to be, by their paths below dir.
func generate(dir string) (map[string][]byte, error) {
	entries, err := functions.Parse(functions.API)
	if err == nil {
		err = checkHandles(entries)
	}
	if err != nil {
		return nil, fmt.Errorf("api.txt: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "errors.txt"))
	if err != nil {
		return nil, err
	}
	results, err := parseResults(string(list))
	if err != nil {
		return nil, fmt.Errorf("errors.txt: %w", err)
	}
	types, err := os.ReadFile(filepath.Join(dir, "types.h"))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"include/cuda.h":           publicHeader(entries, results, types),
		"lib/memory/api_gen.h":     bodiesHeader(entries),
		"lib/entry/api_gen.c":      exports(entries, results),
		"../docs/compatibility.md": page(entries),

		"../device/curesult/curesult_gen.go": goResults(results),
	}, nil
}
