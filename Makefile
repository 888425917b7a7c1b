# The two commands of the README, and those that developers use.
.PHONY: run test bench fuzz lint deps

# Try it: build, start a cell, copy real files in and out, show what happened.
# `make run FROM=dir` takes your own files.
run: deps
	cargo build --release --locked -p nasd
	./target/release/nasd demo $(if $(FROM),--from "$(FROM)")

# Everything that must hold, on the real binary, real sockets and a real mount.
test: deps lint
	cargo test --workspace --locked

# Every row beside its limit, measured in the same run.
bench: deps
	cargo build --release --locked -p nasd
	./target/release/nasd bench $(if $(DIR),--dir "$(DIR)")

# Each fuzzing target for so long: five minutes are an hour in all.
fuzz: deps
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd-drive --test fuzz -- \
		--nocapture --test-threads=1
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd-manager --test fuzz -- \
		--nocapture --test-threads=1
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd --bin nasd cell::fuzz -- \
		--nocapture --test-threads=1

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

deps:
	@scripts/install-deps
