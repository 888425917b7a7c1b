# The two commands of the README, and those that developers use.
.PHONY: run test bench figures fuzz fsx lint deps tools install uninstall FORCE

# Try it: build, start a cell, copy real files in and out, show what happened.
# `make run FROM=dir` takes your own files.
run: deps
	cargo build --release --locked -p nasd
	./target/release/nasd demo $(if $(FROM),--from "$(FROM)")

# Everything that must hold, on the real binary, real sockets and a real mount.
test: deps tools lint
	scripts/run-tests

# Where things go. DESTDIR goes before all of it, for packages.
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
# mount(8) looks for its helpers here alone.
HELPERDIR ?= /sbin
BINARY ?= target/release/nasd
LIBRARY ?= target/release/libsmas.so
BULK_LIBRARY ?= target/release/libnasd_bulk.so
UNITS = nasd@.service nasd-drive@.service nasd-manager.service
COMPLETIONS = $(PREFIX)/share/bash-completion/completions/nasd \
	$(PREFIX)/share/zsh/site-functions/_nasd $(PREFIX)/share/fish/vendor_completions.d/nasd.fish

# The program, its man pages, completions, systemd units, what mount(8) calls, and the libraries.
install: $(BINARY) $(LIBRARY) $(BULK_LIBRARY)
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR) $(INCLUDEDIR) $(MANDIR)/man1 $(MANDIR)/man8 $(UNITDIR) \
		$(HELPERDIR) $(dir $(COMPLETIONS)))
	install -m 755 $(BINARY) $(DESTDIR)$(BINDIR)/nasd
	install -m 755 $(LIBRARY) $(DESTDIR)$(LIBDIR)/libsmas.so.1
	ln -sf libsmas.so.1 $(DESTDIR)$(LIBDIR)/libsmas.so
	install -m 644 crates/smas/include/smas.h $(DESTDIR)$(INCLUDEDIR)/smas.h
	install -m 755 $(BULK_LIBRARY) $(DESTDIR)$(LIBDIR)/libnasd_bulk.so
	install -m 644 crates/preload/include/nasd_bulk.h $(DESTDIR)$(INCLUDEDIR)/nasd_bulk.h
	set -e; pages=$$(mktemp -d); trap 'rm -rf "$$pages"' EXIT; $(BINARY) man --dir "$$pages"; \
		install -m 644 "$$pages"/*.1 $(DESTDIR)$(MANDIR)/man1; \
		install -m 644 "$$pages"/*.8 $(DESTDIR)$(MANDIR)/man8
	set -e; for shell in bash zsh fish; do for file in $(COMPLETIONS); do \
		case $$shell:$$file in bash:*/bash-*|zsh:*/zsh/*|fish:*/fish/*) \
		$(BINARY) completions $$shell > "$(DESTDIR)$$file";; esac; done; done
	set -e; for unit in $(UNITS); do sed 's|/usr/local/bin/nasd|$(BINDIR)/nasd|' \
		"packaging/systemd/$$unit" > "$(DESTDIR)$(UNITDIR)/$$unit"; done
	ln -sf $(BINDIR)/nasd $(DESTDIR)$(HELPERDIR)/mount.fuse.nasd
	ln -sf $(BINDIR)/nasd $(DESTDIR)$(HELPERDIR)/umount.fuse.nasd

uninstall:
	rm -f $(addprefix $(DESTDIR),$(BINDIR)/nasd $(LIBDIR)/libsmas.so $(LIBDIR)/libsmas.so.1 $(INCLUDEDIR)/smas.h \
		$(LIBDIR)/libnasd_bulk.so $(INCLUDEDIR)/nasd_bulk.h \
		$(HELPERDIR)/mount.fuse.nasd $(HELPERDIR)/umount.fuse.nasd $(COMPLETIONS) $(addprefix $(UNITDIR)/,$(UNITS)) \
		$(MANDIR)/man1/nasd.1 $(MANDIR)/man8/mount.fuse.nasd.8 $(MANDIR)/man8/umount.fuse.nasd.8)
	rm -f $(DESTDIR)$(MANDIR)/man1/nasd-*.1

# cargo knows what is old. Who installs for all what he has built as himself may have no cargo then, and is to leave nothing in his tree.
FORCE:
MAY_BUILD = command -v cargo >/dev/null && { [ "$$(id -u)" != 0 ] || [ "$$(stat -c %u .)" = 0 ]; }

target/release/nasd: FORCE
	if { $(MAY_BUILD); } || [ ! -e $@ ]; then cargo build --release --locked -p nasd; fi

target/release/libsmas.so: FORCE
	if { $(MAY_BUILD); } || [ ! -e $@ ]; then cargo build --release --locked -p nasd-smas; fi

target/release/libnasd_bulk.so: FORCE
	if { $(MAY_BUILD); } || [ ! -e $@ ]; then cargo build --release --locked -p nasd-preload; fi

# Every row beside its limit, measured in the same run.
bench: deps
	cargo build --release --locked -p nasd -p nasd-preload
	./target/release/nasd bench $(if $(DIR),--dir "$(DIR)")

# Rows of many clients and drives, each with a host and a link of its own, and their figures: as root; those of many clients take 25 minutes, those
# of pairs of client and drive 20.
figures: deps
	cargo build --release --locked -p nasd
	mkdir -p $(or $(DIR),docs/figures)
	./target/release/nasd bench --plot $(or $(DIR),docs/figures) \
		$(foreach n,1 2 4 8,scale-read-$(n) scale-forwarded-read-$(n) scale-search-$(n) \
		scale-forwarded-search-$(n)) $(foreach n,1 2 4 6 8 10,many-clients-$(n)) \
		$(foreach n,1 2 4 8,$(foreach job,scale agrep link,afs-$(job)-$(n) afs-$(job)-forwarded-$(n))) \
		$(foreach n,1 10 25 50 75 100,$(foreach k,select local,filter-$(k)-$(n) filter-$(k)-$(n)-small filter-$(k)-$(n)-large)) \
		$(foreach n,3 6 12 25,bulk-$(n)mb bulk-directory-$(n)mb)

# Each fuzzing target for so long: five minutes are an hour in all.
fuzz: deps
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd-drive --test fuzz -- \
		--nocapture --test-threads=1
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd-manager --test fuzz -- \
		--nocapture --test-threads=1
	NASD_FUZZ_SECONDS=$(or $(SECONDS),300) cargo test --locked -p nasd --bin nasd cell::fuzz -- \
		--nocapture --test-threads=1

# Each way of the data through a mount of either personality, eight seeds of so many operations: about two hours.
fsx: deps tools
	NASD_FSX_OPERATIONS=$(or $(OPERATIONS),100000) NASD_FSX_SEEDS=8 \
		cargo test --release --locked -p nasd --test suites fsx -- --nocapture --test-threads=1

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# What tests run beside our own: programs that test file systems, and DuckDB, which filters are compared with.
DUCKDB = 2.0.1
tools:
	cargo install --quiet --locked --root target/tools pjdfstest@0.2.2
	cargo install --quiet --locked --root target/tools fsx@0.3.2
	PYTHONPATH=target/tools/python python3 -c \
		'import duckdb, sys; sys.exit(duckdb.__version__ != "$(DUCKDB)")' 2>/dev/null || \
		python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
		--upgrade --target target/tools/python duckdb==$(DUCKDB)

deps:
	@scripts/install-deps
