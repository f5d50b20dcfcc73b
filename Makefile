# Two commands matter: `make demo` and `make test`. Both install what they need (apt, as root or by sudo) and work from a clean clone.

CACHE := .cache
STACK := $(CACHE)/stack/cpu-slurm.toml
BUNDLE := $(CACHE)/stack/blobs
NODE := target/x86_64-unknown-linux-gnu/release/muster-node
export SQLX_OFFLINE := true

.PHONY: demo test deps build terraform images stack fleet recoveries fabric pins e2e lint previous unit strangers fuzz bench clean

demo: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --port $(or $(PORT),8080) $(if $(ONCE),--once)

AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
DEMO_ARGS = --muster-node $(NODE) --stack $(STACK) --bundle $(BUNDLE)

deps:
	.ci/install

build: deps
	cargo build --locked --workspace --bin muster --bin muster-lab
	node/build-static

# The Terraform provider, as people install it: see docs/terraform.md.
terraform: deps
	cargo build --locked --release -p terraform-provider-muster

images: build
	mkdir -p $(CACHE)/stack
	$(AS_ROOT) images/ipxe/build
	$(AS_ROOT) images/live/build --muster-node $(NODE)
	$(AS_ROOT) images/debian-12/build
	$(AS_ROOT) images/live/check

stack: images
	target/debug/muster stack lock --update --stack stacks/cpu-slurm.toml --with stacks/parts/nfs.toml --image $(CACHE)/debian-12/manifest.json \
		--status $(CACHE)/debian-12/dpkg-status --cache $(CACHE)/stack/apt --out $(STACK) --blobs $(BUNDLE)

lint: deps
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	docker-compose --file docker-compose.yml config --quiet

# Programs of the version before, for `tests/it/previous`: built once for each commit that tests/previous/COMMIT names.
previous: deps
	tests/previous/build

unit: deps previous
	tests/bmcs/install
	npm ci --prefix tests/oidc --no-audit --no-fund --silent
	cargo nextest run --locked --workspace

# Schemathesis against the server's own description of its contract. `EXAMPLES=50` for more of each operation.
strangers: deps
	tests/api/install
	cargo nextest run --locked -p muster-tests --run-ignored only strangers

# Simulated nodes through their whole lives, behind the real agents' protocol, while server and agent are killed every few seconds. `NODES=2000` for more.
fleet: build
	target/debug/muster-lab fleet --nodes $(or $(NODES),60) --speed 100 --failures 1 --kills

# Nodes in service that fail: a rack of six small virtual machines, in which a service dies, five of six disks turn bad at once, one stays bad, a machine
# stands still and one does not come back from its reboot. Not in `make test`, whose hour is full.
recoveries: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-recoveries --port 0 --only-recoveries --once

# The same machines measure what lies between them, over TCP and RDMA, while it is well and while it is not.
fabric: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-fabric --port 0 --only-fabric --once

# One such machine keeps the packages of its stack, whoever would move them.
pins: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-pins --port 0 --only-pins --once

# The main job on real parts, from powered-off machines to a Slurm node and back, with the agent, the server and the database killed in the middle
# of it, a node that boots with both dead, and a BMC that turns bad; a machine that somebody else built is adopted with a job on it; then every page
# of the console in a browser. That adoption alone: `muster-lab demo --only-adopt --once`.
e2e: stack
	npm ci --prefix tests/browser --no-audit --no-fund --silent
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-e2e --port 0 --browser tests/browser --once --kills --adopt

# Every parser of what strangers send, for a bounded time each, from kept inputs: fuzz/run says how it works. Its programs are compiled anew for it:
# five minutes of two cores, once.
fuzz: deps
	fuzz/run $(or $(SECONDS_EACH),8) $(FUZZ)

# Against the programs that people use today, which are installed first; docs/benchmarks.md is written anew. `BENCH=dhcp` runs one alone;
# `BENCH=ironic`, which brings a database with it, runs only so.
bench: deps
	$(AS_ROOT) bench/peers $(BENCH)
	cargo build --locked --release -p muster-bench -p muster -p muster-lab
	$(AS_ROOT) env MUSTER_NODE="$$(node/build-static)" bench/run $(BENCH)

test: lint unit strangers fuzz fleet e2e

clean:
	$(AS_ROOT) rm -rf target .cache .demo .demo-e2e .demo-recoveries .demo-fabric .demo-pins .fleet
