# Two commands matter: `make demo` and `make test`. Both install what they need (apt, as root or by sudo) and work from a clean clone.

CACHE := .cache
STACK := $(CACHE)/stack/cpu-slurm.toml
BUNDLE := $(CACHE)/stack/blobs
NODE := target/x86_64-unknown-linux-gnu/release/muster-node
export SQLX_OFFLINE := true

.PHONY: look demo test deps static build terraform images recipes modules packages prepare compile stack fleet recoveries fabric pins cuda rollout e2e lint previous unit \
	strangers schedulers fuzz slow bench documents clean

# `make test` compiles every crate once, for tests and lints: clippy's driver stands in the compiler's place, and a warning is an error. A part of it that
# is run alone with CHECKS=1 uses what was compiled then.
ifdef CHECKS
export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/.ci/driver
export CLIPPY_ARGS := -Dwarnings__CLIPPY_HACKERY__
export CARGO_INCREMENTAL := 0
# Panics name file and line without debug information.
export CARGO_PROFILE_DEV_DEBUG := 0
endif

# The console over 200 simulated nodes. Needs cargo, a C compiler and PostgreSQL; installs nothing.
look:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
		{ echo "PostgreSQL is missing. Install it with: apt install postgresql" >&2; exit 1; }
	cargo build --locked --workspace --bin muster --bin muster-lab
	target/debug/muster-lab look --port $(or $(PORT),8080) $(if $(NODES),--nodes $(NODES))

demo: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --port $(or $(PORT),8080) $(if $(ONCE),--once)

AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
DEMO_ARGS = --muster-node $(NODE) --stack $(STACK) --bundle $(BUNDLE)

deps:
	.ci/install

static: deps
	node/build-static

# `make test` has both programs already from its part `prepare`.
build: static
	$(if $(PREPARED),,cargo build --locked --workspace --bin muster --bin muster-lab)

# The Terraform provider, as people install it: see docs/terraform.md.
terraform: deps
	cargo build --locked --release -p terraform-provider-muster

images: static recipes

# After `static`.
recipes:
	mkdir -p $(CACHE)/stack
	$(AS_ROOT) images/ipxe/build
	$(AS_ROOT) images/live/build --muster-node $(NODE)
	$(AS_ROOT) images/debian/build 12
	$(AS_ROOT) images/live/check

# Prebuilt kernel modules of NVIDIA's driver for the kernel of an image: stacks/modules/README.md. Some minutes of both cores, so not in `make test`.
modules: deps
	$(AS_ROOT) stacks/modules/build --image $(or $(IMAGE),$(CACHE)/debian-13/manifest.json) \
		--driver $(or $(DRIVER),$(error name the driver, for example DRIVER=nvidia-kernel-dkms=550.163.01-2)) --out $(or $(OUT),$(error name the folder for package and key by OUT))

# A package that no archive has: stacks/packages/README.md. Gigabytes and minutes, so not in `make test`.
packages: deps
	$(AS_ROOT) stacks/packages/build --package $(or $(PACKAGE),$(error name the package, for example PACKAGE=gpu-burn)) \
		$(if $(SOURCE),--source $(SOURCE)) $(if $(SHA256),--sha256 $(SHA256)) --out $(or $(OUT),$(error name the folder for the package by OUT))

# `make test` has built the images in its part `prepare`; each run of the recipes asks apt anew what they would hold.
stack: build $(if $(PREPARED),,recipes)
	target/debug/muster stack lock --update --stack stacks/cpu-slurm.toml --with stacks/parts/nfs.toml --image $(CACHE)/debian-12/manifest.json \
		--status $(CACHE)/debian-12/dpkg-status --cache $(CACHE)/stack/apt --out $(STACK) --blobs $(BUNDLE)

# What is linted while it compiles is in `compile`: `cargo clippy --workspace --all-targets` alone.
lint: deps
	cargo fmt --all --check
	docker-compose --file docker-compose.yml config --quiet
	cargo fetch --locked --quiet
	deny/check
	PATH="$(CURDIR)/.cache/checkers/bin:$$PATH" cargo shear --locked

# Every program and test, linted; and beside it, what compiles nothing: the images.
prepare: static
	$(MAKE) --jobs 2 --output-sync=line compile recipes

compile:
	cargo build --locked --workspace --all-targets

# Programs of the version before, for `tests/it/previous`: built once for each commit that tests/previous/COMMIT names.
previous: deps
	tests/previous/build

# Half of the time a test waits: for a timer, a process, the database.
TEST_THREADS ?= $(shell expr 2 \* $$(nproc))

unit: deps previous
	tests/bmcs/install
	npm ci --prefix tests/oidc --no-audit --no-fund --silent
	cargo nextest run --locked --workspace --test-threads $(TEST_THREADS)

# Schemathesis against the server's own description of its contract. `EXAMPLES=50` for more of each operation.
strangers: deps
	tests/api/install
	cargo nextest run --locked --workspace --run-ignored only -E 'test(/^strangers::/)'

# The Slurm driver against a real Slurm of another Debian release, 24.11 of Debian 13 unless `RELEASE=` names one. `make unit` has that of Debian 12.
schedulers: deps
	$(AS_ROOT) tests/slurm/run $(RELEASE)

# Simulated nodes through their whole lives, behind the real agents' protocol, while server and agent are killed every few seconds. `NODES=2000` for more.
# `ROLLOUT=1`: afterwards the fleet, in service with jobs, moves to another revision and back; an observer in the database checks every commit.
fleet: build
	target/debug/muster-lab fleet --nodes $(or $(NODES),60) --speed 100 --kills $(if $(ROLLOUT),--rollout --kill-every 20 --timeout-s 3600,--failures 1)

# Nodes in service that fail: a rack of six small virtual machines, in which a service dies, five of six disks turn bad at once, one stays bad, a machine
# stands still and one does not come back from its reboot. Not in `make test`, whose hour is full.
recoveries: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-recoveries --port 0 --only-recoveries --once

# The same machines measure the network between them over TCP and RDMA, first healthy, then with faults.
fabric: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-fabric --port 0 --only-fabric --once

# One such machine keeps the packages of its stack against every program that upgrades packages. Rollouts of its pool move the packages, with a power cut,
# a full disk and a held lock.
pins: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-pins --port 0 --only-pins --once

# The GPU stack of Debian 13 on a machine without a GPU: installed, gated, admitted to a Slurm of Debian 13, moved to the other branch of the driver and
# back under a kill and a power cut; a kernel without its modules is refused; changes by hand are found. About an hour and a half on emulated processors.
# The first run also builds the modules of both branches (6 to 12 minutes each) and unpacks Debian 13's Slurm. Needs sources of apt, or MIRROR=.
CUDA := $(CACHE)/stack/cuda
cuda: build
	mkdir -p $(CUDA)
	$(AS_ROOT) images/ipxe/build
	$(AS_ROOT) images/live/build --muster-node $(NODE)
	$(AS_ROOT) images/debian/build 13
	$(AS_ROOT) tests/slurm/unpack
	$(AS_ROOT) lab/cuda/build target/debug/muster
	$(AS_ROOT) target/debug/muster-lab demo --muster-node $(NODE) --stack $(CUDA)/550.toml --bundle $(CUDA)/blobs --suite suites/software-gpu.toml \
		--dir .demo-cuda --port 0 --only-cuda --once

# A pool of such machines, in service with jobs, moves to new revisions in waves: with four kills and an upgrade of server and agent, halted by a failing
# gate, back again, beside a person's drain and a dead machine, with firmware, and with a reinstall. Six machines, or `MACHINES=4`. The upgrade is from
# the commit in `UPGRADE_FROM`, which has rollouts already.
UPGRADE_FROM ?= 2cd374908a000eacc01b5aefead7a1e5e770e387
rollout: stack
	before=$$(tests/previous/build $(UPGRADE_FROM)) && $(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-rollout --port 0 \
		--only-rollouts --machines $(or $(MACHINES),6) --before $$before/muster --once

# The main job on real parts, from powered-off machines to a Slurm node and back, with the agent, the server and the database killed in the middle
# of it, a node that boots with both dead, and a BMC that turns bad; a machine installed without Muster is adopted with a job on it; then every page
# of the console in a browser. That adoption alone: `muster-lab demo --only-adopt --once`.
e2e: stack
	npm ci --prefix tests/browser --no-audit --no-fund --silent
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-e2e --port 0 --browser tests/browser --once --kills --adopt

# Every parser of what strangers send, for a bounded time each, from kept inputs: fuzz/run says how it works. Its programs are compiled anew for it:
# five minutes of two cores, once.
fuzz: deps
	fuzz/run $(or $(SECONDS_EACH),8) $(FUZZ)

# Against the programs that people use today, which are installed first; docs/benchmarks.md is rewritten. `BENCH=dhcp` runs one alone;
# `BENCH=ironic`, which brings a database with it, runs only so.
bench: deps
	$(AS_ROOT) bench/peers $(BENCH)
	cargo build --locked --release -p muster-bench -p muster -p muster-lab
	$(AS_ROOT) env MUSTER_NODE="$$(node/build-static)" bench/run $(BENCH)

# Compiling begins while packages are fetched and installed, if there are compilers; the first call of rustc installs the toolchain. The virtual
# machines of the main job leave a fifth of the time idle, which is enough for the fuzzers.
test:
	CHECKS=1 .ci/checks deps$(if $(shell command -v cc && command -v c++ && rustc --version),+compile) lint prepare previous unit strangers fleet e2e+fuzz

# The tests beside a load that wants both cores and the disk, as on a slow day: five times, and the main job once. Hours; not in `make test`.
slow:
	CHECKS=1 .ci/slow $(or $(RUNS),5)

# The documents that tests write: docs/cli.md, docs/openapi.json, docs/lifecycle.md, docs/parsers.md, docs/stacks.md, and the answers shown in the
# description of the API. The answers first, because the description contains them.
DOCUMENTS = test(reference) or test(/^openapi/) or test(the_document_is_the_table) or test(document) or test(the_page)
documents:
	-UPDATE_EXAMPLES=1 cargo nextest run --locked --workspace -E 'test(/^openapi::examples/)'
	UPDATE_CLI=1 UPDATE_OPENAPI=1 UPDATE_DOCS=1 cargo nextest run --locked --workspace -E '$(DOCUMENTS)'
	git status --short docs server/src/http/answers.json

clean:
	$(AS_ROOT) rm -rf target .cache .demo .demo-e2e .demo-recoveries .demo-fabric .demo-pins .demo-cuda .demo-rollout .look .fleet
