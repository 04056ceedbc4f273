package ptx_test

import (
	"fmt"

	"muster/ptx"
)

func ExampleParse() {
	m, err := ptx.Parse("scale.ptx", `
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 data, .param .f32 factor)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .f32 %f<4>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %tid.x;
	setp.gt.u32 %p1, %r1, 31;
	@%p1 bra done;
	ld.param.u64 %rd1, [data];
	ld.param.f32 %f1, [factor];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	ld.global.f32 %f2, [%rd3];
	mul.f32 %f3, %f2, %f1;
	st.global.f32 [%rd3], %f3;
done:
	ret;
}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	f := m.Function("scale")
	fmt.Println(f.Name, "takes", f.ParamSize, "bytes and uses", len(f.Registers), "registers")
	branch := f.Code[2]
	fmt.Println(branch, "goes to", f.Code[branch.Operands[0].Symbol.(*ptx.Label).Target])
	load := f.Code[7]
	fmt.Println(load.Opcode, load.Space(), load.Type(0), load.Operands[1].Register.Index)

	_, err = ptx.Parse("bad.ptx", ".version 7.0\n.target sm_70\n.func f() { add.s32 %r1, %r2 3; }")
	fmt.Println(err)
	// Output:
	// scale takes 12 bytes and uses 8 registers
	// @%p1 bra done goes to ret
	// ld global f32 5
	// bad.ptx:3:30: expected "," or ";", found "3"
}
