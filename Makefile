# The two commands that a newcomer needs: `make demo` and `make test`. Both install what is missing (see scripts/setup.sh).
SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
PACKAGED := $(TARGET)/dist/programs
# A Rust that scripts/setup.sh has just installed is not on the caller's PATH yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# Results say of which tree the program is that made them.
build deb static small demo demo-cluster bench-quick: export DORMOUSE_COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

.PHONY: demo demo-cluster test build deb static small setup install uninstall lint unit interop test-long bench bench-quick docs clean

demo: setup-demo
	$(CARGO) build --release --locked -p dormouse -p dormoused
	./scripts/as-root $(TARGET)/release/dormouse demo --html $(TARGET)/demo.html

# Three gateways that share a database, of which one is pulled out.
demo-cluster: setup-demo-cluster
	$(CARGO) build --release --locked -p dormouse -p dormoused -p dormouse-benches --bin dormouse --bin dormoused --bin failover
	./scripts/as-root $(TARGET)/release/failover --demo

test: setup-test
	./scripts/test

setup-%:
	./scripts/setup.sh $*

build:
	$(CARGO) build --release --locked -p dormouse -p dormoused -p dormouse-nm

# Below /usr/local, unless PREFIX says otherwise.
install: setup-build build
	./scripts/as-root env PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" BIN="$${CARGO_TARGET_DIR:-target}/release" ./scripts/install

uninstall:
	./scripts/as-root env PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" ./scripts/install --remove

# Debian packages, in target/deb (docs/packager.md): the device's programs and NetworkManager's plug-in, then the one that has the lab.
deb: setup-deb
	$(CARGO) build --profile dist --locked --no-default-features --features dormouse/page,dormouse/full,dormouse/daemon -p dormouse -p dormouse-nm
	install -D -t $(PACKAGED) $(TARGET)/dist/dormouse $(TARGET)/dist/dormouse-nm
	$(CARGO) build --profile dist --locked --no-default-features --features lab,page,full -p dormouse
	install $(TARGET)/dist/dormouse $(PACKAGED)/dormouse-lab
	BIN=$(PACKAGED) ./scripts/deb $(TARGET)/deb

# Statically linked programs for any Linux, in target/static, and the small daemon, in target/small (docs/packager.md). As root they are tried too.
static: setup-static
	./scripts/static $(TARGET)/static

small: setup-static
	./scripts/small $(TARGET)/small

lint:
	./scripts/test lint

unit:
	./scripts/test unit

interop: setup-test
	./scripts/test interop

# Before a release: hours.
test-long: setup-long
	./scripts/test long

bench: setup-bench
	./scripts/bench

# What each security setting costs on this machine, in less than three minutes: the results are for `dormouse advise`.
bench-quick: setup-build
	$(CARGO) build --release --locked -p dormouse
	./scripts/as-root $(TARGET)/release/dormouse bench --quick --out $${DORMOUSE_RESULTS:-bench-quick.json}

docs:
	$(CARGO) run -q --locked -p dormouse -- reference > docs/configuration.md

clean:
	$(CARGO) clean
