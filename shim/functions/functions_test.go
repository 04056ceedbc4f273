package functions

import (
	"testing"
)

func TestRefusedFunctionsHaveReasons(t *testing.T) {
	for _, f := range table() {
		if (f.State == Works) != (f.Why == "") {
			t.Errorf("%s %v: %q", f.Name, f.State, f.Why)
		}
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ asked, exported, named string }{
		{"cuMemAlloc", "cuMemAlloc", "cuMemAlloc_v2"},
		{"cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemAlloc_v2"},
		{"cuLaunchKernel_ptsz", "cuLaunchKernel_ptsz", "cuLaunchKernel_ptsz"},
		{"cuNobodyKnows", "", ""},
	} {
		exported, _ := Exported(tt.asked)
		named, _ := Named(tt.asked)
		if exported.Name != tt.exported || named.Name != tt.named {
			t.Errorf("%s: exported %q, named %q, want %q and %q", tt.asked, exported.Name, named.Name, tt.exported, tt.named)
		}
	}
	if f, _ := Exported("cuMemAlloc"); f.State != Refused {
		t.Errorf("cuMemAlloc of CUDA 2 is %v", f.State)
	}
	if f, _ := Named("cuMemAlloc"); f.State != Works {
		t.Errorf("cuMemAlloc of today is %v", f.State)
	}
}
