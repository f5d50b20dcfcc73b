# Two commands matter: `make demo` and `make test`. Both install what they need (apt, as root or by sudo) and work from a clean clone.

CACHE := .cache
STACK := $(CACHE)/stack/cpu-slurm.toml
BUNDLE := $(CACHE)/stack/blobs
NODE := target/x86_64-unknown-linux-gnu/release/muster-node
export SQLX_OFFLINE := true

.PHONY: demo test deps build images stack e2e lint unit browser clean

demo: stack
	sudo -n true 2>/dev/null || [ $$(id -u) = 0 ] || sudo true
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) $(if $(ONCE),--once)

AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
DEMO_ARGS = --muster-node $(NODE) --stack $(STACK) --bundle $(BUNDLE) --port $(or $(PORT),8080)

deps:
	.ci/install

build: deps
	cargo build --locked -p muster -p muster-lab
	node/build-static

images: build
	images/ipxe/build
	images/live/build --muster-node $(NODE)
	images/debian-12/build

stack: images
	target/debug/muster stack lock --update --stack stacks/cpu-slurm.toml --image $(CACHE)/debian-12/manifest.json \
		--status $(CACHE)/debian-12/dpkg-status --cache $(CACHE)/stack/apt --out $(STACK) --blobs $(BUNDLE)

lint: deps
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

unit: deps
	cargo nextest run --locked --workspace

# The main job with the agent, the server and the database killed in the middle of it.
e2e: stack
	$(AS_ROOT) target/debug/muster-lab demo $(DEMO_ARGS) --dir .demo-e2e --port 0 --once --kills

test: lint unit e2e

clean:
	rm -rf target .cache .demo .demo-e2e
