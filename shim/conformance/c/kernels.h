// Kernels for the sequences and cases, in PTX.
static const char kernels[] =
	".version 6.4\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 counter[4] = {10, 20, 30, 40};\n"
	".visible .const .align 4 .u32 factors[4] = {3, 5, 7, 9};\n"
	".visible .entry nothing()\n{\n\tret;\n}\n"
	// at[i] = value + i for each i below count
	".visible .entry fill(.param .u64 at, .param .u32 count, .param .u32 value)\n{\n"
	"\t.reg .pred %p;\n\t.reg .u32 %i, %n, %v, %t;\n\t.reg .u64 %a, %o;\n"
	"\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %t, %ntid.x;\n\tmul.lo.u32 %i, %i, %t;\n\tmov.u32 %t, %tid.x;\n\tadd.u32 %i, %i, %t;\n"
	"\tld.param.u32 %n, [count];\n\tsetp.ge.u32 %p, %i, %n;\n\t@%p bra done;\n"
	"\tld.param.u64 %a, [at];\n\tld.param.u32 %v, [value];\n\tadd.u32 %v, %v, %i;\n"
	"\tmul.wide.u32 %o, %i, 4;\n\tadd.u64 %a, %a, %o;\n\tst.global.u32 [%a], %v;\n"
	"done:\n\tret;\n}\n"
	// at[0..4] are the parameters, of every size
	".visible .entry mixed(.param .u64 at, .param .u8 a, .param .u16 b, .param .align 8 .b8 s[12], .param .f32 f)\n{\n"
	"\t.reg .u32 %v;\n\t.reg .u64 %a;\n\tld.param.u64 %a, [at];\n"
	"\tld.param.u8 %v, [a];\n\tst.global.u32 [%a], %v;\n\tld.param.u16 %v, [b];\n\tst.global.u32 [%a+4], %v;\n"
	"\tld.param.u32 %v, [s];\n\tst.global.u32 [%a+8], %v;\n\tld.param.u32 %v, [s+8];\n\tst.global.u32 [%a+12], %v;\n"
	"\tld.param.u32 %v, [f];\n\tst.global.u32 [%a+16], %v;\n\tret;\n}\n"
	// at[i] = at[i + 1], round, through dynamic shared memory
	".extern .shared .align 4 .b8 room[];\n"
	".visible .entry rotate(.param .u64 at)\n{\n"
	"\t.reg .u32 %i, %n, %v, %o, %s;\n\t.reg .u64 %a, %w;\n"
	"\tld.param.u64 %a, [at];\n\tmov.u32 %i, %tid.x;\n\tmov.u32 %n, %ntid.x;\n\tmov.u32 %s, room;\n"
	"\tmul.wide.u32 %w, %i, 4;\n\tadd.u64 %a, %a, %w;\n\tld.global.u32 %v, [%a];\n"
	"\tmul.lo.u32 %o, %i, 4;\n\tadd.u32 %o, %o, %s;\n\tst.shared.u32 [%o], %v;\n\tbar.sync 0;\n"
	"\tadd.u32 %i, %i, 1;\n\trem.u32 %i, %i, %n;\n\tmul.lo.u32 %o, %i, 4;\n\tadd.u32 %o, %o, %s;\n"
	"\tld.shared.u32 %v, [%o];\n\tst.global.u32 [%a], %v;\n\tret;\n}\n"
	// at most 64 threads, and 1 KiB of static shared memory
	".visible .entry limited(.param .u64 at)\n.maxntid 64, 1, 1\n{\n"
	"\t.shared .align 4 .b8 own[1024];\n\t.reg .u32 %i, %o, %v;\n\t.reg .u64 %a, %w;\n"
	"\tld.param.u64 %a, [at];\n\tmov.u32 %i, %tid.x;\n\tmul.lo.u32 %o, %i, 4;\n\tmov.u32 %v, own;\n\tadd.u32 %o, %o, %v;\n"
	"\tst.shared.u32 [%o], %i;\n\tbar.sync 0;\n\tld.shared.u32 %v, [%o];\n"
	"\tmul.wide.u32 %w, %i, 4;\n\tadd.u64 %a, %a, %w;\n\tst.global.u32 [%a], %v;\n\tret;\n}\n"
	// counts in a variable, and reads a constant
	".visible .entry bump(.param .u64 at)\n{\n"
	"\t.reg .u32 %v, %f;\n\t.reg .u64 %a, %c;\n"
	"\tld.param.u64 %a, [at];\n\tmov.u64 %c, counter;\n\tld.global.u32 %v, [%c];\n\tadd.u32 %v, %v, 1;\n\tst.global.u32 [%c], %v;\n"
	"\tld.const.u32 %f, [factors+4];\n\tmad.lo.u32 %v, %v, %f, 0;\n\tst.global.u32 [%a], %v;\n\tret;\n}\n";
