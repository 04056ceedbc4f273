package program_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// unsupportedForms are what PTX has and the engine does not, by the word that
// the documentation lists them with.
var unsupportedForms = map[string][]string{
	"`.channel_order`":       {"txq.channel_order.b32 %r0, [%d0]", "suq.channel_data_type.b32 %r0, [%d0]"},
	"`.2dms`":                {"tex.2dms.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%d0, {%r0, %r1, %r2, %r3}]"},
	"offsets of `tex`":       {"tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d0, {%f0, %f1}], {%r0, %r1}", "tld4.r.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d0, {%f0, %f1}], {%r0, %r1}"},
	"`sust.p`":               {"sust.p.2d.b32.trap [%d0, {%r0, %r1}], {%r2}", "suld.p.2d.b32.trap {%r0}, [%d0, {%r0, %r1}]"},
	"`sured`":                {"sured.b.1d.add.u32.trap [%d0, %r0], %r1"},
	"`istypep`":              {"istypep.texref %p0, %d0"},
	"`tcgen05`":              {"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%d0], 32"},
	"`.m8n8k4` halves":       {"mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r2, %r3}, {%r0, %r1, %r2, %r3}"},
	"`wgmma` of bits":        {"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r0, %r1, %r2, %r3}, %d0, %d1, %p0"},
	"with scales":            {"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, %f1, %f2, %f3}, %r0, {0, 0}, %r1, {0, 0}"},
	"f6 and f4":              {"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m3.e2m1.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, %f1, %f2, %f3}"},
	"`stmatrix` of 8-bit":    {"stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%d0], {%r0}", "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%d0]"},
	"`clusterlaunchcontrol`": {"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%d0], [%d1]"},
	"`.im2col::w`":           {"cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%d0], [%d1, {%r0, %r1, %r2}], [%d2], {%h0, %h1}", "cp.async.bulk.tensor.2d.cta_group::1.shared::cluster.global.mbarrier::complete_tx::bytes [%d0], [%d1, {%r0, %r1}], [%d2]"},
	"`.cp_mask`":             {"cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d0], [%d1], 16, %h0"},
	"`.swizzle_atomicity`":   {"tensormap.replace.tile.swizzle_atomicity.shared::cta.b1024.b32 [%d0], 1", "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%d0], 13"},
	"`multimem`":             {"multimem.red.relaxed.sys.global.add.f32 [%d0], %f0", "multimem.st.weak.global.f32 [%d0], %f0"},
	"128-bit registers":      {"mov.b128 %d0, {%d1, %d2}", "atom.global.exch.b128 %d0, [%d1], %d2"},
	"`.u2`":                  {"cvt.pack.sat.u2.s32.b32 %r0, %r1, %r2, %r3"},
	"f32 mixed with f16":     {"add.f32.f16 %f0, %h0, %f1", "sub.f32.bf16 %f0, %h0, %f1", "fma.rn.f32.f16 %f0, %h0, %h1, %f1"},
	"`.rs`":                  {"cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1", "cvt.rs.satfinite.e4m3x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1"},
	"`.oob`":                 {"fma.rn.oob.f16 %h0, %h1, %h2, %h3"},
	"`vadd`":                 {"vadd.u32.u32.u32 %r0, %r1, %r2", "vset4.u32.u32.eq %r0, %r1, %r2, %r3", "vmad.s32.s32.s32 %r0, %r1, %r2, %r3"},
	"`alloca`":               {"alloca.u64 %d0, %d1, 16"},
	"`stacksave`":            {"stacksave.u64 %d0"},
	"`stackrestore`":         {"stackrestore.u64 %d0"},
}

// What PTX has and the engine does not is refused by name and line, and the
// documentation lists it.
func TestUnsupportedFormsAreListed(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/software-gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(docs), "\nNot supported, and refused")
	list, _, _ = strings.Cut(list, "`muster ptx check` has the last word")
	for word, forms := range unsupportedForms {
		if !strings.Contains(list, word) {
			t.Errorf("docs/software-gpu.md does not list %s among what is not supported", word)
		}
		for _, form := range forms {
			checkRefused(t, form)
		}
	}
}

func checkRefused(t *testing.T, form string) {
	t.Helper()
	const head = ".version 9.0\n.target sm_100a\n.address_size 64\n.entry k()\n{\n" +
		"\t.reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .pred %p<4>;\n"
	module, err := ptx.Parse("form.ptx", head+"\t"+form+";\n\tret;\n}\n")
	if err != nil {
		t.Errorf("%s: %v", form, err)
		return
	}
	_, err = program.Load("form.ptx", module, nil)
	name, _, _ := strings.Cut(form, " ")
	var errs ptx.Errors
	if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Line != 7 || !strings.HasPrefix(errs[0].Msg, name+": ") {
		t.Errorf("%s: got %v, want an error at line 7 that names it", form, err)
	}
}

// Forms that PTX does not have are refused.
func TestAtomicFormsOfPTXOnly(t *testing.T) {
	for _, form := range strings.Split(`red.global.min.v2.f32 [%d0], {%f0, %f1}
red.shared.add.v2.f32 [%d0], {%f0, %f1}
red.global.add.v8.f32 [%d0], {%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3}
red.global.add.v2.u32 [%d0], {%r0, %r1}
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u64 [%d0], %d1, [%d2]`, "\n") {
		checkRefused(t, form)
	}
}
