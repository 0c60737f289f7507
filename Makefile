# Every command a user or contributor needs. Each target sets up what it needs by itself.

.PHONY: quickstart setup test check fmt bench help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: ## libtorch 2.11, found or downloaded once
	@python3 scripts/setup/libtorch.py

check: setup ## formatting, lints, layering
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	python3 scripts/check/layering.py

test: setup ## every test that needs no GPU, no large download and no real model
	cargo test --workspace --locked

fmt: ## format the code
	cargo fmt --all

bench: ## criterion benches
	cargo bench --workspace
