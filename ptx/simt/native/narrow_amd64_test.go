//go:build linux && amd64

package native

import "testing"

// Everything that the compiler may emit for AVX-512 can be done with AVX2, in registers
// that are pairs and in registers that are not, and gives instructions of AVX2 alone.
func TestEveryInstructionByHalves(t *testing.T) {
	for c, name := range vectorNames {
		for _, registers := range [][3]int{{0, 1, 2}, {9, 10, 11}, {3, 20, zmmT1}, {zmmT0, zmmT0, zmmT0}} {
			a := assembler{narrow: true}
			p := inReg(registers[2])
			k, imm := masked{}, []byte(nil)
			switch name.name {
			case "vpgatherdd", "vpgatherdq", "vpgatherqd", "vpgatherqq", "vpscatterdd", "vpscatterdq", "vpscatterqd", "vpscatterqq":
				p, k.k = vectorIndexed(rax, registers[1], 0, 64), 7
			case "vpmovdb", "vpmovdw", "vpmovsxbd", "vpmovsxwd", "vpmovzxbd", "vpmovzxwd":
				p, k = at(rdi, 64), masked{1, true}
			case "vpbroadcastd", "vpbroadcastq":
				if name.operands == "v-v" {
					p = at(rdi, 64)
				}
			case "vmovdqu32", "vmovdqu64":
				if name.operands == "v-d" {
					p, k.k = at(rdi, 64), 1
				}
			case "vpblendmd", "vpblendmq":
				k.k = 5
			case "vpternlogq":
				imm = []byte{0xca}
			case "vpcmpd", "vpcmpud", "vpcmpq", "vpcmpuq", "vcmpps", "vcmppd", "vinserti64x4", "vextracti64x4":
				imm = []byte{1}
			}
			reg, length := registers[0], uint8(zmm)
			if name.operands == "kvv" {
				reg = 5
			}
			if name.name == "vptestmw" || name.name == "vpternlogq" {
				length = ymm
			}
			a.evex(c, length, reg, registers[1], p, k, imm...)
			if len(a.code) == 0 {
				t.Errorf("%s became nothing", name.name)
			}
			for i, b := range a.code {
				if b == 0x62 && i == 0 {
					t.Errorf("%s became an instruction of AVX-512: % x", name.name, a.code)
				}
			}
		}
	}
	for c, name := range shortNames {
		if c != (coding{0, 1, 0, 0x46}) && !isMaskOp(c) && name.operands != "" && name.operands[0] == 'k' {
			t.Errorf("%s is on masks, which AVX2 has not", name.name)
		}
	}
}

// Which code a processor gets can be said from outside.
func TestFindSupport(t *testing.T) {
	has := findSupport("")
	if got := findSupport("cpu.avx512f=off"); got.wide || got.narrow != has.narrow {
		t.Errorf("without AVX-512: %+v, with it %+v", got, has)
	}
	if got := findSupport("cpu.avx2=off"); got.wide || got.narrow {
		t.Errorf("without AVX2: %+v", got)
	}
}
