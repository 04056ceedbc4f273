package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/cmd/muster/cli"
	"muster/internal/need"
	"muster/ptx/codefile"
	"muster/ptx/fatbin"
)

// compiled makes a shared library that asks for functions of the driver, with
// GPU code inside.
func compiled(t *testing.T, source, gpuCode string, options ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Missing(t, need.Compiler, "no gcc")
	}
	if gpuCode != "" {
		code, err := filepath.Abs(gpuCode)
		if err != nil {
			t.Fatal(err)
		}
		source += `__asm__(".pushsection .nv_fatbin,\"a\"\n.incbin \"` + code + `\"\n.popsection");` + "\n"
	}
	path := filepath.Join(t.TempDir(), "program.so")
	args := append([]string{"-shared", "-fPIC", "-nostdlib", "-o", path, "-x", "c", "-", "-x", "none"}, options...)
	command := exec.Command(gcc, args...)
	command.Stdin = strings.NewReader(source)
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return path
}

func check(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	status = run(append([]string{"check"}, args...), strings.NewReader(""), &out, &complaints, func(string) string { return "" })
	return status, out.String(), complaints.String()
}

func TestCheckFunctions(t *testing.T) {
	const good = "int cuInit(unsigned); int call(void) { return cuInit(0); }\n"
	const bad = good + "int cuMulticastCreate(void); int call2(void) { return cuMulticastCreate(); }\n" +
		`const char *const names[] = {"cuMemAlloc", "cuCoredumpGetAttribute", "cuNobodyKnows", "see cuGLInit"};` + "\n"
	const runtime = good + `const char *const names[] = {"cuCoredumpGetAttribute", "cuMemAlloc", "cudaErrorMissingConfiguration"};` + "\n"
	for _, tt := range []struct {
		name, source string
		status       int
		want         string
	}{
		{"good", good, cli.ExitDone, ": nothing is refused\n  functions: 1 function, 1 work\n  kernels: none\n"},
		{"bad", bad, cli.ExitFailed, ": 2 refused\n  functions: 4 functions, 2 work\n" +
			"    cuCoredumpGetAttribute  refused  core dumps of GPUs\n    cuMulticastCreate       refused  multicast over NVLink\n  kernels: none\n"},
		{"runtime", runtime, cli.ExitDone, ": nothing is refused\n  functions: 3 functions, 2 work; of the 1 refused that the CUDA runtime inside has the names of, it calls few\n  kernels: none\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := compiled(t, tt.source, "")
			status, stdout, stderr := check(t, path)
			if status != tt.status || stdout != path+tt.want {
				t.Errorf("status %d, want %d, printed\n%swant\n%s%s\n%s", status, tt.status, stdout, path, tt.want, stderr)
			}
		})
	}
}

func TestCheckKernels(t *testing.T) {
	const fatbins = "../../ptx/fatbin/testdata/"
	for _, tt := range []struct {
		name, code string
		options    []string
		status     int
		want       string
	}{
		{"with PTX", fatbins + "many.fatbin", nil, cli.ExitDone, "  kernels: 3 kernels; machine code for sm_120, sm_75, sm_90; PTX for sm_120, sm_80\n"},
		{"without", fatbins + "elf.fatbin", nil, cli.ExitFailed, "  kernels: 3 kernels; machine code for sm_90; PTX for none\n    saxpy: no PTX: real GPUs only\n"},
		{"for real GPUs", fatbins + "elf.fatbin", []string{"--real"}, cli.ExitDone, "    saxpy: no PTX: real GPUs only\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := check(t, append(tt.options, compiled(t, "", tt.code))...)
			if status != tt.status || !strings.Contains(stdout, tt.want) {
				t.Errorf("status %d, want %d, printed\n%swant\n%s\n%s", status, tt.status, stdout, tt.want, stderr)
			}
		})
	}
}

// A refused instruction is named with its line, of PTX text as of PTX in a program.
func TestCheckInstructions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.ptx")
	const text = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r<3>;\n\tmade.up.s32 %r1, %r2;\n\tret;\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, _ := check(t, path)
	if want := "    k: software GPUs cannot run it\n      sm_80:7:2: made.up.s32: this instruction is not supported\n"; status != cli.ExitFailed || !strings.Contains(stdout, want) {
		t.Errorf("status %d, printed\n%swant\n%s", status, stdout, want)
	}
}

// Programs may have PTX as text among their constants; pieces of it say nothing.
func TestCheckTexts(t *testing.T) {
	const source = `const char *const texts[] = {
		"// a module\n.version 7.0\n.target sm_80\n.address_size 64\n.visible .entry good()\n{\n\tret;\n}\n",
		".version 7.0\n.target sm_90\n.address_size 64\n.visible .entry bad()\n{\n\t.reg .b32 %r<3>;\n\tmade.up.s32 %r1, %r2;\n\tret;\n}\n",
		".version %d.%d\n.target sm_%d\n"};` + "\n"
	status, stdout, _ := check(t, compiled(t, source, ""))
	const want = "  kernels: 2 kernels; machine code for none; PTX for sm_80, sm_90\n" +
		"    bad: software GPUs cannot run it\n      sm_90:7:2: made.up.s32: this instruction is not supported\n"
	if status != cli.ExitFailed || !strings.HasSuffix(stdout, want) {
		t.Errorf("status %d, printed\n%swant\n%s", status, stdout, want)
	}
}

// Libraries are looked for where the loader does, Muster's folder and the
// program's own included.
func TestCheckLibraries(t *testing.T) {
	needed := compiled(t, "int needed;\n", "", "-Wl,-soname,libcublas.so.99")
	folder := filepath.Dir(needed)
	if err := os.Rename(needed, filepath.Join(folder, "libcublas.so.99")); err != nil {
		t.Fatal(err)
	}
	const source = "extern int needed; int call(void) { return needed; }\n"
	options := []string{filepath.Join(folder, "libcublas.so.99"), "-Wl,--no-as-needed"}
	lost := compiled(t, source, "", options...)
	found := compiled(t, source, "", append(options, "-Wl,-rpath,"+folder)...)
	if status, stdout, _ := check(t, found); status != cli.ExitDone || !strings.Contains(stdout, "  library libcublas.so.99: "+folder+"/libcublas.so.99\n") {
		t.Errorf("status %d, printed\n%s", status, stdout)
	}
	if status, stdout, _ := check(t, lost); status != cli.ExitDone || !strings.Contains(stdout, "  library libcublas.so.99: not found") {
		t.Errorf("status %d, printed\n%s", status, stdout)
	}
}

// What cannot be read is told, and the other files are checked all the same.
func TestCheckBadFiles(t *testing.T) {
	folder := t.TempDir()
	cut := filepath.Join(folder, "cut")
	if err := os.WriteFile(cut, []byte("\x7fELF\x02\x01\x01"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := compiled(t, "int nothing;\n", "")
	status, stdout, stderr := check(t, cut, filepath.Join(folder, "missing"), folder, "/dev/zero", good)
	for _, want := range []string{cut + ": ", "missing: no such file", folder + ": this is no ordinary file\n", "/dev/zero: this is no ordinary file\n", "in 4 of 5 files something is refused, or cannot be read\n"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	if status != cli.ExitFailed || !strings.HasPrefix(stdout, good+": nothing is refused\n") {
		t.Errorf("status %d, printed\n%s", status, stdout)
	}
	if status, _, _ := check(t); status != cli.ExitUsage {
		t.Errorf("status %d without a program", status)
	}
	if status, stdout, _ := check(t, "--json", good); status != cli.ExitDone || !strings.Contains(stdout, "\"refused\": false") {
		t.Errorf("status %d, printed\n%s", status, stdout)
	}
}

// Cubins of CUDA 13 have a version of their own in their header.
func TestCubinsAreRecognised(t *testing.T) {
	image, err := os.ReadFile("../../device/cuda/testdata/cubin.fatbin")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fatbin.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "k.cubin")
	cubin := bytes.Clone(entries[0].Data)
	cubin[20] = 0x82 // as nvcc 13 does
	if err := os.WriteFile(path, cubin, 0o644); err != nil {
		t.Fatal(err)
	}
	if images, err := codefile.Read(nil, path); err != nil || len(images) != 1 || images[0].Kind != fatbin.ELF {
		t.Errorf("%v: %+v", err, images)
	}
	if status, stdout, stderr := check(t, "--real", path); status != cli.ExitDone || !strings.Contains(stdout, "  kernels: 1 kernel; machine code for one GPU; PTX for none\n") {
		t.Errorf("status %d, printed\n%s%s", status, stdout, stderr)
	}
}

// A fat binary by itself is looked at as one in a program is.
func TestCheckFatbin(t *testing.T) {
	for _, c := range []struct {
		file string
		exit int
		want string
	}{
		{"elf.fatbin", cli.ExitFailed, "  kernels: 3 kernels; machine code for sm_90; PTX for none\n    saxpy: no PTX: real GPUs only\n"},
		{"many.fatbin", cli.ExitDone, "  kernels: 3 kernels; machine code for sm_120, sm_75, sm_90; PTX for sm_120, sm_80\n"},
	} {
		exit, out, _ := check(t, "../../ptx/fatbin/testdata/"+c.file)
		if exit != c.exit || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d\n%s\nwant %d and\n%s", c.file, exit, out, c.exit, c.want)
		}
	}
}
