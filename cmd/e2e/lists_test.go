package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

var here = provenance{by: "millrace", version: "abc1234", date: "2026-11-23T20:00:00Z"}

func TestReportCountsWhatDidNotRunAsFailed(t *testing.T) {
	var out strings.Builder
	file := filepath.Join(t.TempDir(), "results.tsv")
	tests := []string{"[sig-apps] good", "[sig-apps] bad", "[sig-auth] absent"}
	err := report(&out, file, here, tests, []test{{"[sig-auth] left", "no cloud"}}, map[string]result{
		"[sig-apps] good": {state: "passed", took: 1500 * time.Millisecond},
		"[sig-apps] bad":  {state: "failed", failure: "it broke"},
	})
	if !errors.Is(err, errFailed) {
		t.Errorf("error is %v, want %v", err, errFailed)
	}
	if !strings.HasSuffix(out.String(), "\n1 passed, 2 failed\n") {
		t.Errorf("closing line is wrong:\n%s", out.String())
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# run\tmillrace\tabc1234\t2026-11-23T20:00:00Z\n", "passed\t1.5\t[sig-apps] good\t\n", "failed\t0.0\t[sig-apps] bad\tit broke\n", "missing\t0.0\t[sig-auth] absent\t", "left out\t\t[sig-auth] left\tno cloud\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("results lack %q:\n%s", want, data)
		}
	}
}

func TestReportOfSuccessIsNoError(t *testing.T) {
	var out strings.Builder
	err := report(&out, filepath.Join(t.TempDir(), "results.tsv"), here, []string{"[sig-apps] good"}, nil, map[string]result{"[sig-apps] good": {state: "passed"}})
	if err != nil || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed\n") {
		t.Errorf("error %v, output:\n%s", err, out.String())
	}
}

// TestListsAgree reads the lists that are run: what is left out is a test of the
// list, has a reason, and failed in the recorded baseline too, in which everything
// else passed.
func TestListsAgree(t *testing.T) {
	root, err := localcluster.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	o := options{by: "millrace"}
	o.complete(root)
	run, left, err := selection(o, filepath.Join(root, "test", "e2e", "left-out.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	excluded, err := lines(filepath.Join(root, "test", "e2e", "left-out.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(excluded) {
		t.Errorf("%d of %d tests that are left out are in the list", len(left), len(excluded))
	}
	recorded, err := lines(filepath.Join(root, "test", "e2e", "baseline.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	baseline := map[string]string{}
	for _, line := range recorded {
		fields := strings.SplitN(line, "\t", 4)
		baseline[fields[2]] = fields[0]
	}
	for _, name := range run {
		if baseline[name] != "passed" {
			t.Errorf("%s is run, but the baseline says %q", name, baseline[name])
		}
	}
	for _, l := range left {
		if state := baseline[l.name]; state == "passed" {
			t.Errorf("%s is left out, but passed in the baseline", l.name)
		}
	}
}

// TestRowsAreOfOneRun: what is kept of Millrace is one run of all tests, of a commit.
func TestRowsAreOfOneRun(t *testing.T) {
	root, err := localcluster.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "test", "e2e", recorded["millrace"])
	of, rows, err := readRun(file)
	if err != nil {
		t.Fatal(err)
	}
	o := options{by: "millrace", record: file}
	if err := whole(root, o, of, rows); err != nil {
		t.Errorf("the recorded run: %v", err)
	}
	dirty, foreign := of, of
	dirty.version += "-dirty"
	foreign.by = "kcm"
	for what, p := range map[string]provenance{"uncommitted changes": dirty, "another runner": foreign} {
		if err := whole(root, o, p, rows); err == nil {
			t.Errorf("a run of %s is taken over", what)
		}
	}
	for test := range rows {
		delete(rows, test)
		break
	}
	if err := whole(root, o, of, rows); err == nil || !strings.Contains(err.Error(), "make e2e") {
		t.Errorf("a run that lacks a test: %v", err)
	}
}

// TestConformanceIsUpToDate holds the page against the lists that it is written
// from, and Millrace against the baseline: what passes there passes here.
func TestConformanceIsUpToDate(t *testing.T) {
	root, err := localcluster.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	want, err := conformance(root)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/conformance.md is not what the lists in test/e2e say: go run ./cmd/e2e --by=millrace --record=test/e2e/millrace.tsv")
	}
	baseline, err := outcomes(filepath.Join(root, "test", "e2e", recorded["kcm"]))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := outcomes(filepath.Join(root, "test", "e2e", recorded["millrace"]))
	if err != nil {
		t.Fatal(err)
	}
	for test := range baseline {
		if state := stateOf(ours, test); stateOf(baseline, test) == "passed" && state != "passed" {
			t.Errorf("%s passes with kube-controller-manager, and with Millrace it is %q", test, state)
		}
	}
}

// TestRecordKeepsRuns: of Millrace a run of all tests replaces the one before, and a run of
// some is refused; of the baseline, a run of some tests replaces their rows.
func TestRecordKeepsRuns(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kept := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		_, rows, _ := strings.Cut(string(text), "\n")
		return rows
	}
	ran := func(by string) string {
		return provenance{by: by, version: "abc1234", date: "2026-11-23T20:00:00Z"}.String() + "\n"
	}
	write("docs/conformance.md", "")
	write("test/e2e/tests.txt", "[sig-apps] Job a\n[sig-apps] Job b|c\n[sig-auth] left\n")
	write("test/e2e/left-out.tsv", "[sig-auth] left\tno cloud\n")
	write("test/e2e/baseline.tsv", "passed\t1.0\t[sig-apps] Job a\t\nskipped\t1.0\t[sig-auth] left\tno cloud\n")
	before := "passed\t1.0\t[sig-apps] Job a\t\npassed\t1.0\t[sig-apps] no more\t\n"
	write("test/e2e/millrace.tsv", ran("millrace")+before)
	some := "failed\t2.0\t[sig-apps] Job b|c\tit broke\nleft out\t\t[sig-auth] left\tno cloud\n"
	part := write("part.tsv", ran("millrace")+some)
	if err := record(root, options{by: "millrace", record: part}); err == nil || kept("test/e2e/millrace.tsv") != before {
		t.Errorf("a run of some tests of Millrace: %v, and the file has\n%s", err, kept("test/e2e/millrace.tsv"))
	}
	all := write("all.tsv", ran("millrace")+"passed\t1.0\t[sig-apps] Job a\t\n"+some)
	if err := record(root, options{by: "millrace", record: all}); err != nil {
		t.Fatal(err)
	}
	if rows := kept("test/e2e/millrace.tsv"); rows != ran("millrace")+"passed\t1.0\t[sig-apps] Job a\t\nfailed\t2.0\t[sig-apps] Job b|c\tit broke\n" {
		t.Errorf("what is recorded is\n%s", rows)
	}
	if err := record(root, options{by: "kcm", record: write("kcm.tsv", ran("kcm")+"passed\t2.0\t[sig-apps] Job b|c\t\n")}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"abc1234, begun at 2026-11-23T20:00:00Z", "| [sig-apps] Job | 2 | 2 | 1 |\n", "| a | passed | passed |\n", "| b\\|c | passed | failed |\n", "| [sig-auth] left | skipped | no cloud |\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for what, o := range map[string]options{
		"the negative control":           {by: "nobody", record: all},
		"another runner":                 {by: "kcm", record: all},
		"a file that is none of results": {by: "kcm", record: write("odd.tsv", ran("kcm")+"what?\n")},
		"a file that names no run":       {by: "millrace", record: write("bare.tsv", some)},
	} {
		if err := record(root, o); err == nil {
			t.Errorf("taken over: %s", what)
		}
	}
}

func TestSelectionWantsReasons(t *testing.T) {
	dir := t.TempDir()
	tests, left := filepath.Join(dir, "tests.txt"), filepath.Join(dir, "left.tsv")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(tests, "# all\n[a] one\n[a] two\n")
	write(left, "[a] two\t\n")
	if _, _, err := selection(options{tests: tests}, left); err == nil {
		t.Error("a test was left out without a reason")
	}
	write(left, "[a] two\tneeds a cloud\n")
	run, out, err := selection(options{tests: tests}, left)
	if err != nil || len(run) != 1 || run[0] != "[a] one" || len(out) != 1 {
		t.Errorf("selection = %v, %v, %v", run, out, err)
	}
	if run, _, err := selection(options{tests: tests, all: true}, left); err != nil || len(run) != 2 {
		t.Errorf("selection of all = %v, %v", run, err)
	}
	if _, _, err := selection(options{tests: tests, focus: "three"}, left); err == nil {
		t.Error("a focus that selects nothing was accepted")
	}
}

func TestReadReportKeepsOnlyWhatRan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	text := `[{"SpecReports":[
	  {"ContainerHierarchyTexts":["[sig-apps] A","b"],"LeafNodeText":"c","LeafNodeType":"It","State":"passed","RunTime":2000000000},
	  {"ContainerHierarchyTexts":["[sig-apps] A"],"LeafNodeText":"filtered","LeafNodeType":"It","State":"skipped"},
	  {"ContainerHierarchyTexts":["[sig-apps] A"],"LeafNodeText":"gave up","LeafNodeType":"It","State":"skipped","Failure":{"Message":"needs\n  a cloud"}},
	  {"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}]}]`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["[sig-apps] A b c"].took != 2*time.Second || got["[sig-apps] A gave up"].failure != "needs a cloud" {
		t.Errorf("results are %+v", got)
	}
}
