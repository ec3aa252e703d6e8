# Millrace. Every target is one sentence; what is longer lives in a program.

SHELL := /bin/bash
GO ?= go
# Programs and tests are built alike, so that each package is compiled once.
export CGO_ENABLED := 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODULES := pkg/events services/watcher services/reconcilers services/writer cmd test
PACKAGES := $(addsuffix /...,$(addprefix ./,$(MODULES)))
# Modules that need k8s.io/kubernetes, Prometheus or Helm itself, outside go.work.
OUTSIDE := test/oracle test/observability/rules test/helm
LDFLAGS := -s -w -X github.com/millrace/millrace/cmd/internal/program.Version=$(VERSION)
IMAGE ?= millrace:dev
BINARY ?= bin/millrace
# What the program spends its time on at work, for the compiler; make profile takes it anew.
PROFILE := cmd/millrace/work.pgo
SEED ?=
N ?= 300
FAULTS ?= 500
TIME ?= 15m

# Runs tests as `go test` does, and keeps in bin/tests what each of them took.
GOTESTSUM := $(abspath bin/gotestsum)
TESTS := $(abspath bin/tests)
tests = mkdir -p $(TESTS) && $(GOTESTSUM) --format=$(or $(2),standard-quiet) --jsonfile=$(TESTS)/$(1).json --
# Packages that start goroutines; those whose day it is, each once in a week.
CONCURRENT = $(addprefix ./,$(sort $(dir $(shell grep -rlE --include='*.go' --exclude='*_test.go' '^[[:space:]]+go [[:alpha:]]|\.Go\b' pkg services cmd))))
DAY := $(shell expr $$(date -u +%s) / 86400 % 7)
# The levels of make test that run two at a time: those that mostly wait beside those that mostly compute.
# The promises and the control planes of system come before them, with the machine for themselves.
LEVELS := unit oracle sim chart observability ui fuzz-some mutants-some
# What rapid draws, other examples each day, as the worlds of sim: what passes once passes again that day.
export RAPID_SEED ?= $(shell expr $$(date -u +%s) / 86400)
# Tests of test/system whose records are in the corpus.
CORPUS := ^Test(Life|PodsFollowTheLoad|ThePastIsDecidedAgain|NamespacesGoWhenTheyAreKnownToBeEmpty|AClassThatIsUsed|APodsOwnVolume|PodsThatNobodyElseEnds|APIServersThatAreGone|ARangeThatServicesNeed|PoliciesWhoseExpressionsDoNotFit|ClaimsGoWithASetThatNeverGotReady|OldRequestsForCertificates|KubeletsGetTheirCertificates|TheRootCertificateInABundle|ATokensLife|DevicesOfPods|APodGroupThatPodsAreIn|OldRequestsForPodsCertificates|PodsLeaveTaintedDevices|RulesTaintDevices|PoolsOfDevicesAreCounted|ObjectsAreStoredInTheNewVersion|ClaimsGetVolumes|NodesGetRangesOfTheirOwn|AVolumeThatIsToBeLarger|VolumesFollowTheirPods|PodsWhoseLabelsConflict)$$
# Tests that hold a promise against a clock, or the whole machine's work: one after the other.
ALONE := ^Test(Failover|Stall|CutOff|Rescale|ThreeNodes|ATenantCannotFillTheBus|Torture|WatcherAgainstARealAPIServer)$$

.DEFAULT_GOAL := help
.PHONY: accounts chart corpus corpus-record dist help build older release sbom profile image images compose-test run demo tour programs test unit sim sim-evidence sieve oracle promises system rbac e2e observability ui torture bench fuzz fuzz-some mutants mutants-some race race-some check lint stories tidy clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/millrace, which is a plug-in of kubectl under another name
	@mkdir -p bin
	@ln -sf millrace bin/kubectl-millrace && ln -sf millrace bin/kubectl_complete-millrace
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/millrace ./cmd/millrace

release: ## build bin/millrace as its image has it, compiled with more care (some minutes), with its SBOM, licences and checksums
	@mkdir -p bin
	$(GO) build -pgo=$(PROFILE) -trimpath -ldflags '$(LDFLAGS)' -o bin/millrace ./cmd/millrace
	@$(MAKE) --no-print-directory sbom
	cp LICENSE bin/ && $(GO) run ./cmd/licenses ./cmd/millrace $$($(GO) env GOOS) > bin/THIRD_PARTY_LICENSES
	cd bin && sha256sum millrace millrace.cdx.json LICENSE THIRD_PARTY_LICENSES > SHA256SUMS

dist: ## build what a release consists of, for four platforms, into dist: make dist VERSION=v0.2.0; with VERIFY=1 twice, and compare the bytes
	$(GO) run ./cmd/dist --version='$(VERSION)' $(if $(VERIFY),--verify)

sbom: ## write the list of the modules that a program is built from (CycloneDX): make sbom BINARY=bin/millrace
	cd tools/sbom && GOWORK=off $(GO) tool cyclonedx-gomod bin -json -std -noserial -notimestamp -version '$(VERSION)' -output '$(abspath $(BINARY)).cdx.json' '$(abspath $(BINARY))'

profile: build ## find out anew what millrace does most: at work, on a local control plane
	$(GO) run ./cmd/bench --contenders=millrace --scenarios=burst,many,heal,job,statefulset,namespace --out=.millrace/bench/profiled.json --profile=$(PROFILE)

image: ## build the image of every service, and see that it starts (docker); with ARCH=arm64 for another architecture, without the latter
	@mkdir -p bin/linux
	GOOS=linux $(if $(ARCH),GOARCH=$(ARCH)) $(GO) build -pgo=$(PROFILE) -trimpath -ldflags '$(LDFLAGS)' -o bin/linux/millrace ./cmd/millrace
	$(GO) run ./cmd/licenses ./cmd/millrace linux > bin/linux/THIRD_PARTY_LICENSES
	docker build $(if $(ARCH),--platform linux/$(ARCH)) --file deployments/image/Dockerfile --tag $(IMAGE) .
	$(if $(filter-out $(shell $(GO) env GOARCH),$(ARCH)),,docker run --rm --network none $(IMAGE) --version)

images: image ## build that, and an image for each program of docker-compose.yaml
	$(GO) run ./cmd/images

compose-test: ## start the whole system in docker-compose and in Compose v2, use it, break it, scale it (installs and starts Docker where there is none)
	$(GO) run ./cmd/composetest

run: ## start a local control plane (or use KUBECONFIG) and Millrace on it
	@echo 'building bin/millrace (some minutes the first time) ...'
	@(while sleep 15; do echo "building bin/millrace: $${SECONDS}s so far"; done) & trap "kill $$!" EXIT; $(MAKE) --no-print-directory build
	@if [ -n "$$KUBECONFIG" ]; then exec bin/millrace run; else exec bin/millrace dev; fi

demo: ## play create, heal, roll, undo and delete against what `make run` started
	$(GO) run ./cmd/demo

tour: ## break a deployment of the cluster of `make run`, and ask the record why, since when, and what came of it
	$(GO) run ./cmd/demo --tour

test: build programs $(GOTESTSUM) ## everything but the slow levels: unit, laws, oracle, simulation, a real control plane
	@rm -rf $(TESTS)
	$(MAKE) --no-print-directory promises
	@$(MAKE) --no-print-directory system; system=$$?; $(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target $(LEVELS) && exit $$system
	@echo "played again, in all tests: $$(cat $(TESTS)/*.json | grep -cE 'once more(, the [0-9]+\. of at most| after [0-9]+ of at most)')"
	@echo 'the slowest ten tests:' && cat $(TESTS)/*.json | $(GOTESTSUM) tool slowest --num=10

programs: ## build what tests run beside Millrace: control plane, Jaeger, Prometheus, kubectl (a quarter of an hour the first time)
	$(GO) run ./cmd/localcluster build etcd kube-apiserver kube-scheduler kube-controller-manager kwok fakelet fakecsi kubectl jaeger prometheus

$(GOTESTSUM): tools/tests/go.mod
	cd tools/tests && GOWORK=off $(GO) build -o $@ gotest.tools/gotestsum

# Tests with servers, disks and clocks wait more than they work: many of them at a time.
unit: $(GOTESTSUM) ## stories, laws, conformance, architecture, the bugs of history, the Helm chart, and a bus that is damaged or loses things
	cd test/helm && export GOWORK=off && $(call tests,$@-helm) -timeout 20m .
	$(call tests,$@) -p 4 -parallel 8 -timeout 20m $(filter-out ./test/...,$(PACKAGES)) $(addprefix ./test/,$(addsuffix /...,arch corpus history manifests integrity turns notary))

sim: $(GOTESTSUM) ## the whole system in virtual time, N worlds of each shape, others each day: make sim SEED=7 N=100000
	set -o pipefail; $(call tests,$@,standard-verbose) ./test/sim -v -sim.seed=$(or $(SEED),0) -sim.n=$(N) -timeout 12h | grep -Ev '^(=== |    --- PASS|PASS)'

sim-evidence: ## ALL worlds of all shapes together, and what came of them in EVIDENCE: make sim-evidence ALL=100000 EVIDENCE=docs/evidence/sim.json
	set -o pipefail; $(GO) test ./test/sim -run 'TestWorlds$$' -v -count=1 -sim.seed=$(or $(SEED),0) -sim.all=$(or $(ALL),100000) -sim.evidence=$(abspath $(or $(EVIDENCE),docs/evidence/sim.json)) -timeout 3h | grep -Ev '^(=== |    --- PASS|PASS)'

sieve: ## every fault at every point of every scenario: crashes, stale views, unseen changes, losses, restores
	set -o pipefail; $(GO) test ./test/sim -run 'TestSieve|TestRestores' -v -sieve.share=1 -timeout 12h | grep -Ev '^(=== |    --- PASS|PASS)'

corpus: ## decide every turn of recorded runs again: those of test/corpus, and others in DIR: make corpus DIR=.millrace/corpus
	$(GO) test ./test/corpus -count=1 -v $(if $(DIR),-corpus.dir=$(abspath $(DIR)))

corpus-record: ## make the records of test/corpus anew, where decisions are meant to change
	$(GO) test ./test/sim -run 'TestWorlds$$' -count=1 -sim.seed=7 -sim.n=6 -sim.export=$(abspath test/corpus/testdata/sim.zip)
	$(GO) test ./test/system -run '$(CORPUS)' -count=1 -system.export=$(abspath test/corpus/testdata) -timeout 30m
	$(GO) test ./test/corpus -count=1 -corpus.update

oracle: $(GOTESTSUM) ## the same decisions as upstream's own controllers
	cd test/oracle && export GOWORK=off && $(call tests,$@) -timeout 40m ./...

rbac: ## write the roles under deployments and the generated files of the chart anew, from what the controllers read and promise
	UPDATE_ROLES=1 $(GO) test ./cmd/internal/command -run TestRolesAreGenerated -count=1

# Levels that build programs of ours run each time (-count=1): go test knows what a test imports, not what it runs.
promises: build $(GOTESTSUM) ## what is promised in seconds when a process dies, stops or is cut off; with the machine for itself
	$(call tests,$@) -count=1 ./test/system -run '$(ALONE)' -timeout 30m

system: build $(GOTESTSUM) ## real etcd, kube-apiserver and JetStream, built on first use: all but the promises
	$(call tests,$@) -count=1 ./test/system/... ./test/rights/... ./test/trace/... ./test/shadow/... -skip '$(ALONE)' -p 1 -parallel 4 -timeout 50m

older: build $(GOTESTSUM) ## the system tests on the older minor versions of Kubernetes, built on first use
	for minor in 1.35 1.34; do \
		export MILLRACE_KUBERNETES=$$minor; $(call tests,$@-$$minor) -count=1 ./test/system/... ./test/trace/... ./test/shadow/... -skip '$(ALONE)' -p 1 -parallel 4 -timeout 50m || exit 1; \
	done

chart: build $(GOTESTSUM) ## install, upgrade and remove the Helm chart against a real API server
	cd test/helm && export GOWORK=off && $(call tests,$@) -count=1 -timeout 30m ./cluster

observability: $(GOTESTSUM) ## what an operator sees: metrics of the running services, rules, dashboards, runbook
	cd test/observability/rules && GOWORK=off $(GO) test -timeout 20m ./...
	$(call tests,$@) -count=1 ./test/observability/... -timeout 40m

ui: $(GOTESTSUM) ## the web page of the record in a browser (installs Debian's chromium where there is none)
	$(call tests,$@) -count=1 ./test/ui/... -timeout 20m

# TestEachRuleCounts plays one story five hundred times, with other accounts.
RACE = CGO_ENABLED=1 $(GO) test -race -p 4 -parallel 8 -timeout 30m -skip '^TestEachRuleCounts$$'

race: ## packages that start goroutines, watched for data races
	$(RACE) $(CONCURRENT)

race-some: ## the same for those whose day it is, each once a week
	$(RACE) $(shell echo $(CONCURRENT) | tr ' ' '\n' | awk 'NR % 7 == $(DAY)')

e2e: build ## Kubernetes' own e2e tests for our controllers
	$(GO) run ./cmd/e2e

torture: ## kill, stop and cut off real processes under load, and judge what came of it: make torture SEED=7 FAULTS=1000 EVIDENCE=docs/evidence/torture.json
	$(GO) run ./cmd/torture --seed=$(or $(SEED),1) --faults=$(FAULTS) $(if $(filter file,$(origin TIME)),,--time=$(TIME)) --evidence=$(EVIDENCE)

bench: release ## compare with the real kube-controller-manager on this machine, and write docs/benchmarks.md
	$(GO) run ./cmd/bench --doc=docs/benchmarks.md

fuzz: ## throw made-up messages at what reads them, every target for a share of TIME: make fuzz TIME=30m EVIDENCE=docs/evidence/fuzz.json
	$(GO) run ./cmd/fuzz --time=$(TIME) --evidence=$(EVIDENCE)

fuzz-some: ## the same for a minute, with the targets whose day it is
	$(GO) run ./cmd/fuzz --time=60s --slice=6

mutants: ## break the code in every small way that people and operators know, one at a time: what does no test notice? (hours)
	@nice $(GO) run ./cmd/mutants --evidence=docs/evidence/mutants-written.json; written=$$?; nice $(GO) run ./cmd/mutants --generated --evidence=docs/evidence/mutants.json && exit $$written

mutants-some: ## some of those that were killed once, others each day: is each noticed still?
	$(GO) run ./cmd/mutants --since=docs/evidence/mutants.json --sample=20 --time=90s

check: lint unit ## what a commit must pass

lint: ## gofmt, vet, and golangci-lint where it is installed
	@out=$$(gofmt -l $(MODULES) $(OUTSIDE)); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet $(PACKAGES)
	@if command -v golangci-lint >/dev/null; then for m in $(MODULES); do (cd $$m && golangci-lint run ./...) || exit 1; done; fi

stories: ## rewrite the golden part of every story
	$(GO) test ./services/reconcilers/controllers/... -update

accounts: ## rewrite who may do what on the bus, deployments/nats/accounts.conf
	mkdir -p bin && go run ./cmd/millrace bus accounts > bin/accounts.conf && mv bin/accounts.conf deployments/nats/accounts.conf && cp deployments/nats/accounts.conf deployments/helm/millrace/files/

tidy: ## sync the workspace and tidy every module, in this order: each builds without the workspace too
	$(GO) work sync
	@for m in $(MODULES) $(OUTSIDE); do (cd $$m && $(GO) mod tidy) || exit 1; done

clean: ## remove what make built here (the cache of control plane programs stays)
	rm -rf bin .millrace
