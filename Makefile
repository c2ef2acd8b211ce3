# make demo   the whole story on the bundled etcd: nothing else to install
# make test   the tests of every promise, with the real servers that they need
# make help   the rest

GO      ?= go
BIN     := .cache/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# What is compiled for the binary is there for tests and linters too, and in another folder.
export CGO_ENABLED := 0
override export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
# Forty test binaries to link, without the tables of debuggers; make lint vets. Tests wait for
# servers more than they compute: three packages with six tests each at once, on two cores.
TEST    := $(GO) test -p 3 -parallel 6 -vet=off -ldflags='-s -w'

.PHONY: help build demo test test-long servers lint fmt bench soak fuzz mutate images clean

help:
	@echo 'make build   the requorum binary, in $(BIN)'
	@echo 'make demo    three members, a backup, a lost quorum, a new cluster with the same data'
	@echo 'make test    the tests of every promise; builds etcd 3.5, 3.6, 3.7 and an S3 server first'
	@echo 'make test-long  the tests that have longer forms, in those: more versions, kills and hosts'
	@echo 'make lint    format, vet, golangci-lint, known vulnerabilities'
	@echo 'make bench   side by side with etcdctl and etcdutl; rewrites docs/benchmarks.md'
	@echo "             a part of it: make bench BENCH='-skip-snapshots -skip-log', -skip-verify, -skip-agent, -skip-recover"
	@echo 'make soak    the longest forms of the tests: more kills, bigger loads, all versions; keeps docs/soak.md'
	@echo '             a part of them: make soak RUN=TestLog PKG=./cmd/requorum/e2e'
	@echo 'make images  the pictures of the status page in docs/images, by a headless Chromium'
	@echo 'make mutate  change rules one at a time, to see that a test fails: PKG=./walreplay/segment FILES=walreplay/segment/view.go'
	@echo 'make fuzz    a minute for each parser of bytes that come from outside; keeps docs/soak.md'

build:
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/requorum ./cmd/requorum

demo: build
	$(BIN)/requorum demo

# The servers that every test run needs. Tests that want more (minio,
# rclone, root) say so and are skipped where it is missing.
servers:
	.tools/build etcd-3.5 etcd-3.6 etcd-3.7 versitygw

test: servers
	$(TEST) -short -timeout 14m ./...

# What does the same with -short and without it has been run by `make test`.
test-long: servers
	long=$$($(GO) run ./.tools/longtests) && $(TEST) -timeout 30m $$long

lint:
	.tools/build lint
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) build ./... # what users have on their desks; tests are for Linux
	cd .tools/depguard && $(GO) test -count 1 ./... # that the rules about imports trip
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	.tools/vulnerabilities

fmt:
	gofmt -w $$(git ls-files '*.go')

bench: build
	.tools/build etcd-3.7 versitygw
	cd .tools/bench && $(GO) run . -bin ../../$(BIN) -out ../../docs/benchmarks.md $(BENCH)

# The report keeps what other parts have shown: make soak RUN=TestLog PKG=./cmd/requorum/e2e
# One package at a time: they want the machine alone.
soak: servers $(BIN)/soak
	.tools/build minio rclone kube-apiserver
	REQUORUM_SOAK=1 $(GO) test -json -p 1 -parallel 4 -count 1 -timeout 8h $(if $(RUN),-run '$(RUN)') $(or $(PKG),./...) | \
		$(BIN)/soak -out docs/soak.md $(if $(RUN)$(PKG),,-whole)

# Needs chromium. Look at them before they are committed.
images:
	$(GO) test ./schedule/web -count 1 -run TestPageImages -update-images

fuzz: $(BIN)/soak
	.tools/fuzz $(or $(FUZZTIME),60s) -json | $(BIN)/soak -out docs/soak.md

# Changes rules one at a time; each change has to fail a test:
# make mutate PKG=./walreplay/segment FILES=walreplay/segment/view.go COUNT=50
mutate:
	$(GO) run ./.tools/mutate -count $(or $(COUNT),20) -test '$(PKG)' $(FILES)

$(BIN)/soak: $(wildcard .tools/soak/*)
	cd .tools/soak && $(GO) test ./... && $(GO) build -o ../../$@ .

clean:
	rm -rf .cache
