package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// nodes is the number of nodes of the cluster: enough to spread pods, and few enough for the tests that
// refuse large clusters.
const nodes = 6

// result is the result of one test.
type result struct {
	state   string
	took    time.Duration
	failure string
}

// failed reports whether the test ran and did not pass.
func (r result) failed() bool {
	return !slices.Contains([]string{"passed", "skipped", absent, missing, ""}, r.state)
}

// missing is the state of a test without a result: it was not begun or was interrupted, or the suite does not
// know it.
const missing = "missing"

// absent is the state of a test that the suite of an older version of Kubernetes does not have.
const absent = "absent"

// testsOf returns the names of the tests that a suite has.
func testsOf(ctx context.Context, suite string) (map[string]bool, error) {
	out, err := exec.CommandContext(ctx, suite, "--list-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its tests: %w", suite, err)
	}
	has := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		// A line is the place of a test, and its name.
		if _, name, is := strings.Cut(strings.TrimSpace(line), ": "); is {
			has[name] = true
		}
	}
	return has, nil
}

// suite runs each of Kubernetes' tests in a process of its own, so that each has its own limit, the longest
// can begin first, and an interrupted run keeps the results that it has.
type suite struct {
	cluster *localcluster.Cluster
	out     string
	limit   func(test string) time.Duration
}

// one runs one test.
func (s *suite) one(ctx context.Context, name string) result {
	dir := filepath.Join(s.out, "tests", fileName(name))
	log, err := create(filepath.Join(dir, "log.txt"))
	if err != nil {
		return result{state: missing, failure: err.Error()}
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, s.cluster.Programs.Path("e2e.test"), s.args(dir, name)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the suite cleans up after itself
	cmd.WaitDelay = time.Minute
	failure := cmd.Run()
	report := filepath.Join(dir, "report.json")
	results, err := readReport(report)
	err = errors.Join(err, os.RemoveAll(report)) // 13 MB, about all tests that were skipped
	r, ran := results[name]
	if before, failed := results[beforeAll]; failed {
		r, ran = before, true
	}
	switch {
	case ctx.Err() != nil:
		return result{state: missing, failure: "the run was interrupted"}
	case err != nil:
		return result{state: missing, failure: errors.Join(failure, err).Error()}
	case !ran:
		return result{state: missing, failure: "the suite does not know it: " + log.Name()}
	}
	return r
}

func create(file string) (*os.File, error) {
	dir := filepath.Dir(file)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("make directory of a test: %w", err)
	}
	log, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("create log of a test: %w", err)
	}
	return log, nil
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9]+`)

// fileName is the directory name of a test's files. The hash separates tests whose names differ only in
// characters that a file name cannot have.
func fileName(test string) string {
	name := strings.Trim(unfit.ReplaceAllString(test, "-"), "-")
	return fmt.Sprintf("%.150s-%x", name, sha256.Sum256([]byte(test)))[:min(len(name), 150)+1+8]
}

func (s *suite) args(dir, name string) []string {
	return []string{
		"--ginkgo.focus=^Kubernetes e2e suite " + regexp.QuoteMeta(name) + " *$", // some names end with a space
		"--ginkgo.timeout=" + s.limit(name).String(), "--ginkgo.grace-period=20s",
		"--ginkgo.json-report=" + filepath.Join(dir, "report.json"),
		"--ginkgo.no-color", "--ginkgo.silence-skips", "--ginkgo.poll-progress-after=0",
		"--provider=skeleton", "--kubeconfig=" + s.cluster.Kubeconfig(localcluster.Admin),
		"--kubectl-path=" + s.cluster.Programs.Path("kubectl"), "--host=" + s.cluster.Server,
		fmt.Sprintf("--num-nodes=%d", nodes), "--minStartupPods=0", "--allowed-not-ready-nodes=0",
		"--disable-log-dump=true", "--dump-logs-on-failure=false",
		"--delete-namespace=true", "--delete-namespace-on-failure=true", "--prepull-images=false", "--report-dir=",
	}
}

// beforeAll stands for the name of the suite's set-up, where that failed.
const beforeAll = ""

// readReport reads ginkgo's report, by test name.
func readReport(file string) (map[string]result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText            string
			LeafNodeType            string
			State                   string
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	results := map[string]result{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if strings.HasSuffix(spec.LeafNodeType, "BeforeSuite") && spec.State != "passed" {
				results[beforeAll] = result{state: "failed", took: spec.RunTime, failure: "the suite could not begin: " + firstWords(spec.Failure.Message)}
			}
			skippedByFilter := spec.State == "skipped" && spec.Failure.Message == ""
			if spec.LeafNodeType != "It" || skippedByFilter {
				continue
			}
			name := strings.TrimSpace(strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "))
			results[name] = result{state: spec.State, took: spec.RunTime, failure: firstWords(spec.Failure.Message)}
		}
	}
	return results, nil
}

// firstWords is the beginning of a failure's message, in one line.
func firstWords(message string) string {
	words := strings.Join(strings.Fields(message), " ")
	if len(words) > 300 {
		return words[:300] + "..."
	}
	return words
}
