# What a fresh machine needs: git, Go, gcc and make.

GO ?= go

# What is run is said in a short line each; V=1 shows the commands.
Q := $(if $(filter 1,$(V)),,@)
MAKEFLAGS += --no-print-directory

# Tests are built as bin/muster is, so that the go command builds everything once.
export GOFLAGS := $(strip $(GOFLAGS) $(if $(findstring -trimpath,$(GOFLAGS)),,-trimpath))

# Without a usable git (a source archive, a folder of another user) the build
# does without the commit in `muster version`.
VCS := -buildvcs=$(shell git status >/dev/null 2>&1 && git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)

.PHONY: help build install uninstall deb release demo test race lint bench browser referee criu examples tryexamples valgrind soak clean

help: ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

# Where the image of a worker lies, below 2 GiB: programs that are linked to a fixed address have their
# variables in the first megabytes, and kernels reach them there once they are registered.
APART = $(shell if echo 'int main(void) { return 0; }' | $(CC) -no-pie -Wl,-Ttext-segment=0x70000000 -x c -o /dev/null - 2>/dev/null; then \
	echo '-extldflags=-Wl,-Ttext-segment=0x70000000'; fi)

build: bin/lib/libcuda.so.1 bin/lib/libnvidia-ml.so.1 bin/lib/libmuster-mpi.so bin/lib/libmuster-ivm.so ## bin/muster, and bin/lib with the libraries that programs load
	@echo "  build bin/muster"
	$(Q)$(GO) build $(VCS) -ldflags "$(GO_LDFLAGS) $(APART)" -o bin/muster ./cmd/muster
	$(Q)ln -sf muster bin/muster-rsh # for MPI launchers: muster exec --rsh

CFLAGS ?= -O2 -g
SHIM_CFLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread
# nodelete: threads of programs may be inside when they close the library.
SHIM_LDFLAGS := -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-z,nodelete

# The sources in C are compiled side by side, also where make itself was not told to.
PROCESSORS := $(shell nproc 2>/dev/null || echo 2)
SHIM_OBJECTS := $(patsubst %.c,bin/obj/%.o,$(sort $(wildcard shim/lib/*/*.c) shim/lib/entry/api_gen.c))
NVML_OBJECTS := $(patsubst %.c,bin/obj/%.o,$(wildcard nvml/*.c))

# What follows in C from the descriptions of the driver's interface and of the messages is made, and not kept.
GENERATED := shim/include/cuda.h shim/lib/memory/api_gen.h shim/lib/entry/api_gen.c shim/lib/transport/wire_gen.h

.PHONY: generated
generated: $(GENERATED)

shim/include/cuda.h shim/lib/memory/api_gen.h shim/lib/entry/api_gen.c &: shim/functions/api.txt shim/functions/parse.go shim/errors.txt shim/types.h $(wildcard shim/gen/*.go)
	$(Q)$(GO) generate ./shim/gen

shim/lib/transport/wire_gen.h: wire/messages.txt $(wildcard wire/gen/*.go)
	$(Q)$(GO) generate ./wire

bin/obj/%.o: %.c $(wildcard shim/*.h shim/lib/*/*.h shim/include/*.h nvml/*.h) | $(GENERATED)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SHIM_CFLAGS) $(CFLAGS) -c -o $@ $<

bin/lib/libcuda.so.1: $(wildcard shim/*.h shim/lib/*/*.c shim/lib/*/*.h shim/include/*.h) $(GENERATED)
	@echo "  build $@"; mkdir -p bin/lib
	$(Q)$(MAKE) $(if $(Q),-s) -j$(PROCESSORS) $(SHIM_OBJECTS)
	$(Q)$(CC) $(SHIM_LDFLAGS) -o $@ $(SHIM_OBJECTS)
	$(Q)ln -sf libcuda.so.1 bin/lib/libcuda.so

bin/lib/libnvidia-ml.so.1: $(wildcard nvml/*.c nvml/*.h) shim/nodesocket.h
	@echo "  build $@"; mkdir -p bin/lib
	$(Q)$(MAKE) $(if $(Q),-s) -j$(PROCESSORS) $(NVML_OBJECTS)
	$(Q)$(CC) -shared -pthread -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs -o $@ $(NVML_OBJECTS)

bin/lib/libmuster-mpi.so: shim/mpi/collectives.c
	@echo "  build $@"; mkdir -p bin/lib
	$(Q)$(CC) $(SHIM_CFLAGS) $(CFLAGS) -shared -o $@ $< -ldl

# What programs with elements link, and its header beside it: -Ibin/include -Lbin/lib -lmuster-ivm.
bin/lib/libmuster-ivm.so: $(wildcard ivm/c/*.c ivm/c/*.h)
	@echo "  build $@"; mkdir -p bin/lib bin/include
	$(Q)$(CC) $(SHIM_CFLAGS) $(CFLAGS) -shared -Wl,-soname,libmuster-ivm.so -Wl,-z,defs -o $@ $(filter %.c,$^) -ldl
	$(Q)cp ivm/c/ivm.h bin/include/ivm.h

# Where make install puts things: below PREFIX, all of it below DESTDIR if that is set. The units of
# systemd say /usr, and are changed if PREFIX is another.
PREFIX ?= /usr/local
UNITS ?= $(if $(filter /usr,$(PREFIX)),/usr/lib/systemd/system,/etc/systemd/system)
INTO = $(DESTDIR)$(PREFIX)

install: build ## muster with its libraries, manual pages, completion and units, below PREFIX (/usr/local)
	@echo "  install into $(INTO)"
	$(Q)install -d $(INTO)/bin $(INTO)/include $(INTO)/lib/muster $(INTO)/share/man/man1 $(INTO)/share/doc/muster $(INTO)/share/bash-completion/completions $(INTO)/share/zsh/site-functions $(DESTDIR)$(UNITS)
	$(Q)install bin/muster $(INTO)/bin/ && ln -sf muster $(INTO)/bin/muster-rsh
	$(Q)cp -P bin/lib/*.so* $(INTO)/lib/muster/ && chmod 644 $(INTO)/lib/muster/*.so* && install -m 644 bin/include/ivm.h shim/include/muster.h $(INTO)/include/
	$(Q)bin/muster man $(INTO)/share/man/man1 && gzip -nf $(INTO)/share/man/man1/muster*.1
	$(Q)bin/muster completion bash > $(INTO)/share/bash-completion/completions/muster
	$(Q)bin/muster completion zsh > $(INTO)/share/zsh/site-functions/_muster
	$(Q)install -m 644 README.md LICENSE dist/*.yaml dist/*.json dist/*.env $(INTO)/share/doc/muster/
	$(Q)for unit in dist/*.service; do sed 's,/usr/bin/muster,$(PREFIX)/bin/muster,' $$unit > $(DESTDIR)$(UNITS)/$${unit##*/}; done

uninstall: ## take away what make install put below PREFIX
	rm -rf $(INTO)/bin/muster $(INTO)/bin/muster-rsh $(INTO)/include/ivm.h $(INTO)/include/muster.h $(INTO)/lib/muster $(INTO)/share/doc/muster $(INTO)/share/bash-completion/completions/muster $(INTO)/share/zsh/site-functions/_muster
	rm -f $(INTO)/share/man/man1/muster.1.gz $(INTO)/share/man/man1/muster-*.1.gz $(patsubst dist/%,$(DESTDIR)$(UNITS)/%,$(wildcard dist/*.service))

deb: build ## bin/muster_VERSION_ARCH.deb, a package for Debian and Ubuntu
	@scripts/package deb

release: build ## bin/muster-VERSION-ARCH.tar.gz, to unpack anywhere
	@scripts/package archive

demo: build examples ## a cluster of three nodes on this machine: CUDA and MPI jobs borrow, share and swap; one node is killed
	@bin/muster demo

# Packages that start goroutines, or are used by many at a time: make race runs their quick tests under
# the race detector, for which all of muster is compiled once more, and which makes everything five to ten
# times as slow. internal/archtest finds packages that are missing here; make soak runs the others.
RACED := node/worker node/worker/answers node/worker/kernellimit node/worker/line node/worker/sharing internal/mailbox node node/lending node/loop node/mps node/recording node/requests node/spares node/statefolder node/stock node/survival node/workers node/gateway node/inventory head/daemon head/quorum device/soft wire/client device/remote device/cuda device/cuda/sieve agent slurm/driver slurm/lenders ivm ivm/daemon wire wire/lanes node/journal node/programs node/launch head/client wire/dial wire/sessions head/store internal/door internal/delay internal/parallel internal/recordfile internal/confine internal/service internal/together internal/screen

# The packages whose tests take longest begin first, so that none of them is left over at the end.
LONGEST := ./campaign/stack ./ptx/simt ./node/worker ./shim/shimtest ./node ./campaign/chaos/... ./head/daemon ./cmd/muster ./exp/aucsched ./node/gateway ./exp/gremm ./slurm/...

# Tests often wait for processes: twice as many packages as there are processors.
JOBS := -p $(shell expr 2 \* $(PROCESSORS))

# What this machine has must be tested: a test that is skipped for lack of it fails. MUSTER_REQUIRE adds
# to it; internal/need has the names.
HAS = $(shell command -v chromium >/dev/null && command -v chromedriver >/dev/null && echo browser; \
	[ -x bin/examples/phases ] && echo examples; command -v valgrind >/dev/null && echo valgrind; \
	[ -x bin/criu/criu ] && bin/criu/criu check >/dev/null 2>&1 && echo criu)

# lint has vetted the tests. The software GPU's arithmetic exists twice on amd64; both must be the same, and a
# build with both must do without vectors. make soak tests a build without them.
GOTEST = $(GO) test -vet=off -timeout 60m
AMD64 = $(filter amd64,$(shell $(GO) env GOARCH))
TESTRUN = $(if $(Q),,set -x;) MUSTER_REQUIRE="$(HAS) $(MUSTER_REQUIRE)" \
	MUSTER_TEST_BIN=$(CURDIR)/bin \
	$(GO) run ./internal/testrun

test: lint browser valgrind referee criu build tryexamples ## everything that must hold: format, vet, architecture, tests
	@$(TESTRUN) \
		"all" $(GOTEST) $(JOBS) $(LONGEST) ./... \
		--- $(if $(wildcard /usr/include/coin/Cbc_C_Interface.h),"the auction's solver beside CBC" $(GOTEST) -tags cbc ./policy/winner/cbc) \
		--- $(if $(AMD64),"the software GPU compiled for AVX2" GODEBUG=cpu.avx512f=off $(GOTEST) -count=1 -short -run 'Instructions|GPUForms|Corpus$$' ./ptx/simt/...)

# A process sleeps for a second before it ends under the race detector if it is not told otherwise.
race: build ## the quick tests of what has threads, under the race detector
	@$(TESTRUN) "the quick ones, with the race detector" GORACE=atexit_sleep_ms=10 $(GOTEST) -race -short $(JOBS) $(RACED:%=./%)

lint: generated ## format, vet and the import rules
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "run gofmt -w on:" >&2; echo "$$unformatted" >&2; exit 1; \
	fi
	@echo "  vet ./..."
	$(Q)$(GO) vet ./...
	$(Q)$(GO) test ./internal/archtest

bench: build bin/bench/node ## the benchmarks; docs/benchmarks.md says what they mean
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./...
	@echo "the node runtime, as programs see it:"
	shim/bench/run.sh bin/muster bin/bench/node

bin/bench/node: shim/bench/bench.c shim/include/cuda.h bin/lib/libcuda.so.1
	@echo "  build $@"; mkdir -p bin/bench
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror $(CFLAGS) -Ishim/include -o $@ $< -Lbin/lib -lcuda

# The library in C runs under valgrind too. Root may install it; others are told.
valgrind:
	@if command -v valgrind >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing valgrind for the tests of the library in C" >&2; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind; } >/dev/null || \
		echo "that failed: the library in C will not be run under it" >&2; \
	else \
		echo "the library in C is not run under valgrind: install it to do so" >&2; \
	fi

# The auction's solver is held to CBC. Root may install it; others are told.
referee:
	@if [ -e /usr/include/coin/Cbc_C_Interface.h ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing coinor-libcbc-dev, the referee of the auction's solver" >&2; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends coinor-libcbc-dev g++; } >/dev/null || \
		echo "that failed: the auction's solver will not be compared with CBC" >&2; \
	else \
		echo "the auction's solver is not compared with CBC: install coinor-libcbc-dev to do so" >&2; \
	fi

# Whole programs are saved and restored with CRIU, as root. Nothing is installed; others are told.
criu:
	@if [ -x bin/criu/criu ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "getting CRIU into bin/criu for the tests of checkpoints" >&2; \
		scripts/get-criu bin/criu >/dev/null 2>&1 || \
		echo "that failed: the tests of whole programs will be skipped" >&2; \
	else \
		echo "the tests of whole programs are skipped: they need root, and CRIU (scripts/get-criu bin/criu)" >&2; \
	fi

# Reports are tested in a real browser. Root may install one; others are told.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium and chromium-driver for the tests of reports" >&2; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null || \
		echo "that failed: the tests of reports in a browser will be skipped" >&2; \
	else \
		echo "the tests of reports in a browser are skipped: install chromium and chromium-driver to run them" >&2; \
	fi

# The examples are run by tests, which are skipped where they cannot be built.
tryexamples:
	@if $(MAKE) -C examples/cuda tools; then $(MAKE) examples; \
	else echo "the tests that run the examples are skipped" >&2; fi

examples: bin/lib/libcuda.so.1 bin/lib/libmuster-ivm.so ## bin/examples: CUDA programs to run; examples/README.md
	@$(MAKE) -C examples/cuda tools
	@$(MAKE) -q -C examples/cuda || { echo "  build bin/examples" && $(MAKE) -C examples/cuda; }
	@$(MAKE) -C examples/mpi tools
	@$(MAKE) -C examples/mpi
	@$(MAKE) -q -C examples/ivm || $(MAKE) -C examples/ivm

soak: ## 10,000 faults against running nodes, 1,000 and 10,000 with content against clusters, more than an hour; 100,000 and more random kernels on both engines, a million hours of simulated clusters, some more; docs/chaos.md
	scripts/chaos --faults 10000 --seed $(or $(SEED),1)
	scripts/chaos --cluster --faults 1000 --seed $(or $(SEED),1)
	scripts/chaos --content --faults 10000 --seed $(or $(SEED),1)
	scripts/chaos --put-back
	$(GO) test -race -short -vet=off -timeout 4h $(JOBS) ./...
	MUSTER_SOAK=1 MUSTER_SEED=random $(GO) test -vet=off ./... -timeout 8h
	MUSTER_SOAK=1 MUSTER_SEED=random go test ./node/worker -run "TestPrograms$$" -count 50
	MUSTER_SOAK=1 MUSTER_SEED=random go test ./campaign/stack -run 'Storm' -timeout 1h
	MUSTER_SOAK=1 MUSTER_SEED=random go test ./campaign/stack ./slurm/driver -run 'Slurm|Killed' -count 5 -timeout 2h
	go test ./ptx/simt -run 'TestRandomPrograms|TestRandomEngines' -random-count 10000 -random-first $(or $(SEED),0) -timeout 24h
	GODEBUG=cpu.avx512f=off MUSTER_SOAK=1 go test ./ptx/simt -timeout 2h # compiled for AVX2
	go test ./campaign/world -run TestWorld -v -timeout 24h -first $(or $(SEED),1) -hours 200 -seeds 5000

clean: ## remove what make made
	rm -rf bin $(GENERATED)
