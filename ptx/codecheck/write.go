package codecheck

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"muster/report"
	"muster/shim/functions"
)

// Write prints what was found, for people.
func (p *Program) Write(w, stderr io.Writer) error {
	if p.Error != "" {
		if _, err := fmt.Fprintln(stderr, p.Error); err != nil {
			return err
		}
	}
	var b strings.Builder
	switch {
	case p.Error != "" && len(p.Functions) == 0 && len(p.Kernels) == 0:
		return nil
	case p.Refused > 0:
		fmt.Fprintf(&b, "%s: %d refused\n", p.File, p.Refused)
	default:
		fmt.Fprintf(&b, "%s: nothing is refused\n", p.File)
	}
	p.writeFunctions(&b)
	p.writeKernels(&b)
	p.writeLibraries(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFunctions names those that do not work, and counts the others.
func (p *Program) writeFunctions(b *strings.Builder) {
	if len(p.Functions) == 0 {
		fmt.Fprintln(b, "  functions: none of CUDA's driver")
		return
	}
	works, passed := 0, 0
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	var rows []string
	for _, f := range p.Functions {
		switch {
		case f.state == functions.Works:
			works++
		case p.Runtime && !f.Imported && f.state != functions.Partly:
			passed++
		default:
			rows = append(rows, fmt.Sprintf("    %s\t%s\t%s", f.Name, f.State, f.Why))
		}
	}
	fmt.Fprintf(b, "  functions: %s, %d work", report.Plural(len(p.Functions), "function"), works)
	if passed > 0 {
		fmt.Fprintf(b, "; of the %d refused that the CUDA runtime inside has the names of, it calls few", passed)
	}
	fmt.Fprintln(b)
	for _, row := range rows {
		fmt.Fprintln(table, row)
	}
	_ = table.Flush() // to memory
}

func (p *Program) writeKernels(b *strings.Builder) {
	if len(p.Kernels) == 0 {
		fmt.Fprintln(b, "  kernels: none")
		return
	}
	var code, texts []string
	for i := range p.Kernels {
		code, texts = append(code, p.Kernels[i].Targets...), append(texts, p.Kernels[i].PTX...)
	}
	fmt.Fprintf(b, "  kernels: %s; machine code for %s; PTX for %s\n", report.Plural(len(p.Kernels), "kernel"), distinct(code), distinct(texts))
	for i := range p.Kernels {
		k := &p.Kernels[i]
		if len(k.PTX) == 0 {
			fmt.Fprintf(b, "    %s: no PTX: real GPUs only\n", k.Name)
		} else if len(k.Errors) > 0 {
			fmt.Fprintf(b, "    %s: software GPUs cannot run it\n", k.Name)
			writeErrors(b, "      ", k.place, k.Errors)
		}
	}
}

// distinct joins names without repetition: "sm_80, sm_90".
func distinct(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// writeLibraries names those of CUDA and those that are not found.
func (p *Program) writeLibraries(b *strings.Builder) {
	for _, l := range p.Libraries {
		switch {
		case l.Path == "":
			fmt.Fprintf(b, "  library %s: not found: a program that loads it itself may know where\n", l.Name)
		case ofCUDA(l.Name):
			fmt.Fprintf(b, "  library %s: %s\n", l.Name, l.Path)
		}
	}
}

// ofCUDA says whether a library is one of NVIDIA's, by its name.
func ofCUDA(name string) bool {
	for _, prefix := range []string{"libcu", "libnv", "libnccl", "libnpp"} {
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "libcurl") && !strings.HasPrefix(name, "libcups") {
			return true
		}
	}
	return false
}
