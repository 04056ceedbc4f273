package lab

import (
	"github.com/spf13/cobra"
)

const ptxHelp = `Run and check GPU kernels on a machine without a GPU.

FILE is PTX text, as nvcc -ptx or clang -S write it; a fat binary, as nvcc
-fatbin writes it; or a program, library or object that holds fat binaries, as
nvcc makes them. - is standard input. Machine code (a cubin) is for real GPUs
only. PTX text may have 256 MiB, GPU code in a program 4 GiB, and what is no
ordinary file 64 MiB. docs/software-gpu.md tells what the software GPU can do.`

func NewPtx() *cobra.Command {
	c := &cobra.Command{
		Use:   "ptx",
		Short: "Run and check GPU kernels without a GPU",
		Long:  ptxHelp,
		Example: `  muster ptx check kernels.ptx
  muster ptx run vecadd.ptx --grid 4 --block 256 --arg 'f32[1024]=iota' --arg 'f32[1024]=1' --arg 'out:f32[1024]' --arg s32:1024`,
	}
	c.AddCommand(newPtxRun(), newPtxCheck())
	return c
}
