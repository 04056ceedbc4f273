package program_test

import (
	"testing"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// A kernel becomes the same instructions each time, which say what to do and on which slots.
func TestAssemble(t *testing.T) {
	module, err := ptx.Parse("k.ptx", ".version 8.0\n.target sm_90\n.address_size 64\n"+
		".entry k(.param .u64 p)\n{\n\t.reg .b32 %r<3>; .reg .b64 %d<2>;\n"+
		"\tld.param.u64 %d0, [p];\n\tmov.u32 %r0, %tid.x;\n\tadd.u32 %r1, %r0, 1;\n\tst.global.u32 [%d0], %r1;\n\tret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	p, err := program.Load("k.ptx", module, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := p.Kernels()[0]
	m := k.Assemble(0, nil)
	if len(m.Code) != 4 || m.Code[0].Name != "add.b32" || m.Code[1].Do != program.OpStore || m.Code[2].Flow != program.FlowExit {
		t.Fatalf("got %+v", m.Code)
	}
	if add, store := m.Code[0], m.Code[1]; store.List[0] != add.D || !add.Private {
		t.Errorf("the sum is in slot %d (private: %v), and slot %d is stored", add.D, add.Private, store.List[0])
	}
	from := map[program.Source]bool{}
	for _, c := range m.Constants {
		from[c.From] = true
	}
	if !from[program.TidX] || !from[program.FromParam] || !from[program.FromLiteral] {
		t.Errorf("constants are %+v", m.Constants)
	}
	if again := k.Assemble(0, nil); len(again.Code) != len(m.Code) || again.Code[1].A != m.Code[1].A {
		t.Error("the second image is another than the first")
	}
}
