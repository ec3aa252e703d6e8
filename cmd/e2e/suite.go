package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// nodes is how many nodes the suite finds: enough to spread over, and few enough
// for its tests that refuse large clusters.
const nodes = 6

// test is a test that is left out, and why.
type test struct{ name, reason string }

// selection reads which tests are to run and which are left out.
func selection(o options, leftOut string) (tests []string, left []test, err error) {
	names, err := lines(o.tests)
	if err != nil {
		return nil, nil, err
	}
	reasons := map[string]string{}
	if !o.all {
		excluded, err := lines(leftOut)
		if err != nil {
			return nil, nil, err
		}
		for _, line := range excluded {
			name, reason, ok := strings.Cut(line, "\t")
			if !ok || strings.TrimSpace(reason) == "" {
				return nil, nil, fmt.Errorf("read %s: %q is left out without a reason", leftOut, name)
			}
			reasons[name] = reason
		}
	}
	for _, name := range names {
		if !strings.Contains(name, o.focus) {
			continue
		}
		if reason, out := reasons[name]; out {
			left = append(left, test{name, reason})
			continue
		}
		tests = append(tests, name)
	}
	if len(tests) == 0 {
		return nil, nil, fmt.Errorf("select tests from %s: none is named like %q", o.tests, o.focus)
	}
	return tests, left, nil
}

// lines are the lines of a file that say something; '#' begins a comment line.
func lines(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read list of tests: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n ")
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all, nil
}

// play runs the suite. That tests fail is no error; that the suite could not be
// run is.
func play(ctx context.Context, cluster *localcluster.Cluster, o options, tests []string) (map[string]result, error) {
	reportFile := filepath.Join(o.out, "report.json")
	if err := os.RemoveAll(reportFile); err != nil {
		return nil, fmt.Errorf("drop earlier report: %w", err)
	}
	log, err := os.Create(filepath.Join(o.out, "log.txt"))
	if err != nil {
		return nil, fmt.Errorf("create log of the suite: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, cluster.Programs.Path("ginkgo"), suiteArgs(cluster, o, tests)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.out, log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up after itself
	cmd.WaitDelay = time.Minute
	fmt.Fprintf(os.Stderr, "running %d tests, %d at a time; the log is %s\n", len(tests), o.procs, log.Name())
	failure := cmd.Run()
	results, err := readReport(reportFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run the suite: %w", err), failure)
	}
	return results, nil
}

func suiteArgs(cluster *localcluster.Cluster, o options, tests []string) []string {
	quoted := make([]string, len(tests))
	for i, name := range tests {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return []string{
		"run", "--no-color", fmt.Sprintf("--procs=%d", o.procs), "--timeout=" + o.timeout.String(),
		"--focus=^Kubernetes e2e suite (" + strings.Join(quoted, "|") + ")$",
		"--output-dir=" + o.out, "--json-report=report.json", "--junit-report=junit.xml",
		"--silence-skips", "--keep-going", "--poll-progress-after=0", "--grace-period=20s",
		cluster.Programs.Path("e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig=" + cluster.Kubeconfig(localcluster.Admin),
		"--kubectl-path=" + cluster.Programs.Path("kubectl"), "--host=" + cluster.Server,
		fmt.Sprintf("--num-nodes=%d", nodes), "--minStartupPods=0", "--allowed-not-ready-nodes=0",
		"--disable-log-dump=true", "--dump-logs-on-failure=false",
		"--delete-namespace=true", "--delete-namespace-on-failure=true", "--prepull-images=false", "--report-dir=",
	}
}

// result is what became of one test.
type result struct {
	state   string
	took    time.Duration
	failure string
}

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
			skippedByFilter := spec.State == "skipped" && spec.Failure.Message == ""
			if spec.LeafNodeType != "It" || skippedByFilter {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
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
