package codecheck

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/wholefile"
	"muster/ptx"
	"muster/ptx/codefile"
	"muster/ptx/fatbin"
	"muster/shim/functions"
)

// readFunctions lists the driver's functions that a program imports or names, and
// the kernels that it has as text.
func (p *Program) readFunctions(f *elf.File, kernels *kernelsFound) error {
	imported, err := f.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("its dynamic symbols: %w", err)
	}
	seen := map[string]bool{}
	for _, s := range imported {
		if function, known := functions.Exported(s.Name); known && !seen[s.Name] {
			seen[s.Name] = true
			p.addFunction(function, true)
		}
	}
	inside, err := textsInside(f)
	if err != nil {
		return err
	}
	p.Runtime = inside.runtime
	for _, text := range inside.ptx {
		kernels.add(&codefile.Image{Name: p.File, Kind: fatbin.PTX, Text: text})
	}
	for _, name := range inside.names {
		function, known := functions.Named(name)
		if !known || seen[function.Name] {
			continue
		}
		seen[function.Name] = true
		p.addFunction(function, false)
	}
	slices.SortFunc(p.Functions, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (p *Program) addFunction(f functions.Function, imported bool) {
	p.Functions = append(p.Functions, Function{f.Name, imported, f.State.String(), f.Why, f.State})
}

// runtimeMark is a text that the CUDA runtime answers with, and that nothing else has.
const runtimeMark = "cudaErrorMissingConfiguration"

// texts are what a program has among its constants.
type texts struct {
	names   []string // that may be functions
	ptx     []string // that can be read
	runtime bool     // the CUDA runtime is inside
}

func textsInside(f *elf.File) (*texts, error) {
	found := &texts{}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Name != ".rodata" && !strings.HasPrefix(s.Name, ".rodata.") {
			continue
		}
		if s.Size > codefile.MaxCode {
			return nil, fmt.Errorf("section %s has %d bytes, at most %d are read", s.Name, s.Size, int64(codefile.MaxCode))
		}
		content, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
		for len(content) > 0 {
			var text []byte
			text, content, _ = bytes.Cut(content, []byte{0})
			switch {
			case string(text) == runtimeMark:
				found.runtime = true
			case isDriverName(text):
				found.names = append(found.names, string(text))
			case isPTX(text):
				found.ptx = append(found.ptx, string(text))
			}
		}
	}
	return found, nil
}

// isPTX says whether a text is a whole module: programs that put modules together
// when they run have pieces, of which nothing can be said.
func isPTX(text []byte) bool {
	const mark = ".version"
	at := bytes.Index(text[:min(len(text), codefile.Head)], []byte(mark)) // comments come first
	if at < 0 || len(text) > codefile.MaxText || !bytes.Contains(text, []byte(".target")) {
		return false
	}
	_, err := ptx.Parse("", string(text))
	return err == nil
}

// isDriverName says whether a text looks like a function of the driver: cuInit.
func isDriverName(text []byte) bool {
	const longest = 80
	return len(text) > 3 && len(text) <= longest && text[0] == 'c' && text[1] == 'u' && text[2] >= 'A' && text[2] <= 'Z'
}

// readLibraries lists the libraries that a program needs, and where the loader
// will find them under muster run.
func (p *Program) readLibraries(path string, f *elf.File) {
	needed, err := f.ImportedLibraries()
	if err != nil {
		return // it is linked statically
	}
	folders := loaderFolders(path, p.lib, f)
	for _, name := range needed {
		found := Library{Name: name}
		for _, folder := range folders {
			if sameMachine(filepath.Join(folder, name), f.Machine) {
				found.Path = filepath.Join(folder, name)
				break
			}
		}
		p.Libraries = append(p.Libraries, found)
	}
}

// sameMachine says whether a file is a library that the loader would take.
func sameMachine(path string, machine elf.Machine) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // it was only read
	return f.Machine == machine
}

// loaderFolders are the folders in which the loader looks, in its order: Muster's,
// as under muster run, those of LD_LIBRARY_PATH, those that the program names, and
// the system's.
func loaderFolders(path, lib string, f *elf.File) []string {
	var folders, before []string
	add := func(list string) {
		for _, folder := range strings.Split(list, ":") {
			folder = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(folder)
			if folder != "" {
				folders = append(folders, folder)
			}
		}
	}
	runPath, _ := f.DynString(elf.DT_RUNPATH) // nothing, if it cannot be read
	if rPath, err := f.DynString(elf.DT_RPATH); err == nil && len(runPath) == 0 {
		before = rPath
	}
	for _, list := range before {
		add(list)
	}
	add(lib)
	add(os.Getenv("LD_LIBRARY_PATH"))
	for _, list := range runPath {
		add(list)
	}
	folders = append(folders, configuredFolders("/etc/ld.so.conf", 0)...)
	return append(folders, "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// configuredFolders reads what ldconfig does. What cannot be read is passed over.
func configuredFolders(path string, depth int) []string {
	const deepest = 4
	text, err := wholefile.Limit{Bytes: 1 << 20, Remedy: "name fewer folders in it"}.ReadFile(path)
	if err != nil || depth > deepest {
		return nil
	}
	var folders []string
	for _, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "include":
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, _ := filepath.Glob(pattern) // a bad pattern names no file
			for _, file := range files {
				folders = append(folders, configuredFolders(file, depth+1)...)
			}
		case len(words) == 1:
			folders = append(folders, words[0])
		}
	}
	return folders
}
