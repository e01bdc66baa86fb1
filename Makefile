# Everything a developer and the continuous integration run. Needs Go, git, make, and a C compiler for the race detector; every
# other tool is built from its pin (tools/) into bin/tools.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
FUZZTIME ?= 30s
TESTTIME ?= 10m
# The measuring programs are run by `make bench`, not tested; polyglot and crash have lines of their own, see test.
PACKAGES = $$(go list ./... | grep -vE '/(bench|crash|internal/polyglot)$$')
GO_FILES = $$(git ls-files -co --exclude-standard -- '*.go' ':!gen' | while read -r f; do [[ -f $$f ]] && echo "$$f"; done)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: all
all: build lint test ## build, lint and test: what make does by itself

.PHONY: build
build: ## build bin/sallyport, one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/sallyport ./cmd/sallyport

# Of polyglot, -v prints why a language was skipped; -count=1, since the go command would remember a skip when what was missing has
# come. Of crash, it prints the seeds; what it does is drawn anew each time.
.PHONY: test
test: compiler tools-jaeger ## vet, and all tests under the race detector
	go vet ./...
	SALLYPORT_REQUIRE_JAEGER=1 go test -race -pgo=off -timeout $(TESTTIME) $(PACKAGES)
	go test -race -pgo=off -timeout $(TESTTIME) -v -count=1 ./internal/polyglot
	go test -race -pgo=off -timeout $(TESTTIME) -v -count=1 ./crash

# The race detector links C; without this the message would be about cgo and not about what is missing.
.PHONY: compiler
compiler:
	@command -v "$$(go env CC | cut -d' ' -f1)" >/dev/null || { \
	  echo "no C compiler ($$(go env CC)): the race detector needs one, install gcc or clang" >&2; exit 1; }
	@[[ "$$(CGO_ENABLED= go env CGO_ENABLED)" == 1 && "$${CGO_ENABLED:-1}" == 1 ]] || { \
	  echo "CGO_ENABLED=0: the race detector needs cgo, unset it" >&2; exit 1; }

.PHONY: lint
lint: tools ## every linter, formatting, house rules, wire compatibility, generated code up to date
	scripts/check.sh
	@unformatted=$$(bin/tools/gofumpt -l $(GO_FILES)); [[ -z $$unformatted ]] || { \
	  echo "not formatted, run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; }
	bin/tools/buf lint
	bin/tools/buf format proto --diff --exit-code
	bin/tools/buf breaking proto --against proto/baseline.binpb
	scripts/generated.sh
	bin/tools/golangci-lint run ./...

.PHONY: fmt
fmt: tools ## format Go and protobuf sources in place
	bin/tools/gofumpt -w $(GO_FILES)
	bin/tools/buf format proto --write

.PHONY: man
man: build ## write the man pages into bin/man
	bin/sallyport man bin/man

.PHONY: generate
generate: tools-proto ## generate gen/ from proto/
	bin/tools/buf generate

# Run at a release only: what is in the image is promised from then on.
.PHONY: baseline
baseline: tools-proto ## make the wire of today the one that must not break
	bin/tools/buf build proto --exclude-source-info -o proto/baseline.binpb

.PHONY: tools
tools: ## install the pinned tools into bin/tools
	@scripts/tools.sh proto lint

.PHONY: tools-proto
tools-proto:
	@scripts/tools.sh proto

.PHONY: tools-jaeger
tools-jaeger:
	@scripts/tools.sh jaeger

# Every listener is named: some would take all interfaces. Jaeger's own spans are switched off, so that it shows ours alone.
.PHONY: jaeger
jaeger: tools-jaeger ## run Jaeger on loopback: it takes traces at port 4317 and shows them at port 16686
	OTEL_TRACES_SAMPLER=always_off bin/tools/all-in-one --log-level=warn \
	  --collector.otlp.grpc.host-port=127.0.0.1:4317 --collector.otlp.http.host-port=127.0.0.1:4318 \
	  --query.http-server.host-port=127.0.0.1:16686 --query.grpc-server.host-port=127.0.0.1:16685 \
	  --collector.grpc-server.host-port=127.0.0.1:14250 --collector.http-server.host-port=127.0.0.1:14268 \
	  --admin.http.host-port=127.0.0.1:14269

# As they are shipped: the broker with its profile, what a service would write without one.
.PHONY: bench
bench: build ## measure (figures in docs)
	go build -pgo=off -o bin/bench-bare ./bench
	go build -pgo=cmd/sallyport/default.pgo -o bin/bench ./bench
	bin/bench -bare bin/bench-bare
	bin/bench -operations
	bin/bench -deferred
	bin/bench -stream 2048

# The compiler reads it when the program is built (https://go.dev/doc/pgo). Once a release, on a quiet machine.
.PHONY: profile
profile: ## measure anew where the broker spends its time, for the compiler: cmd/sallyport/default.pgo
	go run -pgo=off ./bench -rounds 4 -seconds 5 -concurrency 64 -rate 0 -profile cmd/sallyport/default.pgo

.PHONY: crash
crash: ## audit of effects: kill the broker under load for minutes and count what was done twice (docs/crash.md)
	go run ./crash
	go run ./crash -deferred

.PHONY: demo
demo: build ## a broker and a flaky upstream in one process, and a few calls that show what it is for
	bin/sallyport demo

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s), one after another
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

.PHONY: clean
clean: ## remove the program and its man pages; the tools stay, they take minutes to build
	rm -rf bin/sallyport bin/man
