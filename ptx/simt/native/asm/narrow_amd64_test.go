//go:build linux && amd64

package asm

import "testing"

// Everything that the compiler may emit for AVX-512 can be done with AVX2, in registers
// that are pairs and in registers that are not, and gives instructions of AVX2 alone.
func TestEveryInstructionByHalves(t *testing.T) {
	for c, name := range vectorNames {
		for _, registers := range [][3]int{{0, 1, 2}, {9, 10, 11}, {3, 20, 29}, {28, 28, 28}} {
			a := Assembler{Narrow: true, Room: At(RBX, 0)}
			p := InReg(registers[2])
			k, imm := Masked{}, []byte(nil)
			switch name.name {
			case "vpgatherdd", "vpgatherdq", "vpgatherqd", "vpgatherqq", "vpscatterdd", "vpscatterdq", "vpscatterqd", "vpscatterqq":
				p, k.K = VectorIndexed(RAX, registers[1], 0, 64), 7
			case "vpmovdb", "vpmovdw", "vpmovsxbd", "vpmovsxwd", "vpmovzxbd", "vpmovzxwd":
				p, k = At(RDI, 64), Masked{1, true}
			case "vpbroadcastd", "vpbroadcastq":
				if name.operands == "v-v" {
					p = At(RDI, 64)
				}
			case "vmovdqu32", "vmovdqu64":
				if name.operands == "v-d" {
					p, k.K = At(RDI, 64), 1
				}
			case "vpblendmd", "vpblendmq":
				k.K = 5
			case "vpternlogq":
				imm = []byte{0xca}
			case "vpcmpd", "vpcmpud", "vpcmpq", "vpcmpuq", "vcmpps", "vcmppd", "vinserti64x4", "vextracti64x4":
				imm = []byte{1}
			}
			reg, length := registers[0], uint8(ZMM)
			if name.operands == "kvv" {
				reg = 5
			}
			if name.name == "vptestmw" || name.name == "vpternlogq" {
				length = YMM
			}
			a.EVEX(c, length, reg, registers[1], p, k, imm...)
			if len(a.Code) == 0 {
				t.Errorf("%s became nothing", name.name)
			}
			for i, b := range a.Code {
				if b == 0x62 && i == 0 {
					t.Errorf("%s became an instruction of AVX-512: % x", name.name, a.Code)
				}
			}
		}
	}
	for c, name := range shortNames {
		if c != (Coding{0, 1, 0, 0x46}) && !isMaskOp(c) && name.operands != "" && name.operands[0] == 'k' {
			t.Errorf("%s is on masks, which AVX2 has not", name.name)
		}
	}
}
