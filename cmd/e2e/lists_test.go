package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

func checkout(t *testing.T) string {
	t.Helper()
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// keptOf reads the results of a runner that test/e2e keeps.
func keptOf(t *testing.T, by string) results {
	t.Helper()
	for _, r := range runners {
		if r.by == by {
			kept, err := kept(filepath.Join(checkout(t), "test", "e2e", r.file))
			if err != nil {
				t.Fatal(err)
			}
			return kept
		}
	}
	t.Fatalf("no results of %s are kept", by)
	return results{}
}

// disagreements compares the lists with the recorded runs. A test that is run can pass on this cluster: it
// ran in the baseline, and passed there or, where a busy machine was too slow in the baseline, with Millrace.
// A test of not-yet.tsv passed in the baseline. A test of left-out.tsv ran there and did not pass. Every test
// that passed there is in a list, and not left out.
func disagreements(l lists, baseline, millrace results) []string {
	var all []string
	newer := func(name string) bool { return slices.Contains(l.newer, test{name, "kcm"}) }
	left, notYet := namesOf(l.left), namesOf(l.notYet)
	run := l.whole("millrace")
	for _, name := range slices.Concat(run, notYet) {
		state := baseline.result(name).state
		slow := state == "failed" && slices.Contains(run, name) && millrace.result(name).state == "passed"
		if state != "passed" && !slow && !newer(name) {
			all = append(all, "listed as one that passes, and in the baseline it is "+state+": "+name)
		}
	}
	for _, name := range left {
		switch state := baseline.result(name).state; {
		case newer(name):
		case state == "failed", state == "timedout", state == "skipped":
		default:
			all = append(all, "left out as one that cannot pass, and in the baseline it is "+state+": "+name)
		}
	}
	for name := range baseline.rows {
		if !slices.Contains(l.whole("kcm"), name) {
			all = append(all, "in no list: "+name)
		}
	}
	return all
}

func TestListsAgree(t *testing.T) {
	l, err := readLists(checkout(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disagreements(l, keptOf(t, "kcm"), keptOf(t, "millrace")) {
		t.Error(d)
	}
	for _, test := range l.notYet {
		i := slices.IndexFunc(controllers.Catalog(), func(e controllers.Entry) bool { return e.Name == test.about })
		switch {
		case i < 0:
			t.Errorf("not-yet.tsv: kube-controller-manager has no %q, either: %s", test.about, test.name)
		case controllers.Catalog()[i].Exists():
			t.Errorf("not-yet.tsv: Millrace has %s by now, so that tests.txt is to have %s", test.about, test.name)
		}
	}
}

func TestListsThatDisagreeAreFound(t *testing.T) {
	rows := func(text string) results {
		r := results{rows: map[string]string{}}
		for line := range strings.Lines(text) {
			r.rows[strings.Split(strings.TrimSpace(line), "\t")[2]] = line
		}
		return r
	}
	l := lists{tests: []string{"run", "left"}, left: []test{{"left", "no cloud"}}, notYet: []test{{"later", "a-controller"}}}
	good := "passed\t1.0\trun\t\nfailed\t1.0\tleft\tno\npassed\t1.0\tlater\t\n"
	if all := disagreements(l, rows(good), rows("")); len(all) > 0 {
		t.Errorf("lists that agree: %q", all)
	}
	for what, text := range map[string]string{
		"a test that is run failed":              strings.Replace(good, "passed\t1.0\trun", "failed\t1.0\trun", 1),
		"a test that is run has no row":          strings.Replace(good, "passed\t1.0\trun\t\n", "", 1),
		"one of a controller to come failed":     strings.Replace(good, "passed\t1.0\tlater", "failed\t1.0\tlater", 1),
		"one of a controller to come has no row": strings.Replace(good, "passed\t1.0\tlater\t\n", "", 1),
		"one that is left out passed":            strings.Replace(good, "failed", "passed", 1),
		"one that is left out has no row":        strings.Replace(good, "failed\t1.0\tleft\tno\n", "", 1),
		"one that is left out was not run":       strings.Replace(good, "failed", "left out", 1),
		"one that passed is in no list":          good + "passed\t1.0\tother\t\n",
	} {
		if all := disagreements(l, rows(text), rows("")); len(all) != 1 {
			t.Errorf("%s: %q", what, all)
		}
	}
	slow := strings.Replace(good, "passed\t1.0\trun", "failed\t1.0\trun", 1)
	for _, ours := range []string{"passed", "failed"} {
		if all := disagreements(l, rows(slow), rows(ours+"\t1.0\trun\t\n")); (len(all) == 0) != (ours == "passed") {
			t.Errorf("a test that failed in the baseline and %s with Millrace: %q", ours, all)
		}
	}
	l.newer = []test{{"left", "kcm"}}
	if all := disagreements(l, rows(strings.Replace(good, "failed\t1.0\tleft\tno\n", "", 1)), rows("")); len(all) > 0 {
		t.Errorf("a test that is newer than the baseline: %q", all)
	}
}

// write makes a checkout with these lists; the others are empty.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, name := range []string{"docs/conformance.md", "test/e2e/tests.txt", "test/e2e/left-out.tsv", "test/e2e/not-yet.tsv", "test/e2e/newer.tsv"} {
		if _, ok := files[name]; !ok {
			put(t, filepath.Join(root, name), "")
		}
	}
	for name, text := range files {
		put(t, filepath.Join(root, name), text)
	}
	return root
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSelection(t *testing.T) {
	root := write(t, map[string]string{
		"test/e2e/tests.txt":    "# all\n[a] one\n[a] two\n[b] three\n",
		"test/e2e/left-out.tsv": "[a] two\tneeds a cloud\n",
		"test/e2e/not-yet.tsv":  "[c] four\tsome-controller\n",
		"some.txt":              "[a] two\n",
	})
	l, err := readLists(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    options
		want []string
	}{
		{options{by: "millrace"}, []string{"[a] one", "[b] three"}},
		{options{by: "none"}, []string{"[a] one", "[b] three"}},
		{options{by: "kcm"}, []string{"[a] one", "[a] two", "[b] three", "[c] four"}},
		{options{by: "millrace", all: true}, []string{"[a] one", "[a] two", "[b] three", "[c] four"}},
		{options{by: "millrace", focus: "[a]"}, []string{"[a] one"}},
		{options{by: "millrace", list: filepath.Join(root, "some.txt")}, []string{"[a] two"}},
	} {
		if got, err := l.selection(c.o); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("selection of %+v = %q, %v; want %q", c.o, got, err, c.want)
		}
	}
	if _, err := l.selection(options{by: "millrace", focus: "five"}); err == nil {
		t.Error("a focus that selects nothing was accepted")
	}
}

func TestListsAreRefused(t *testing.T) {
	for what, files := range map[string]map[string]string{
		"left out without a reason": {"test/e2e/tests.txt": "one\n", "test/e2e/left-out.tsv": "one\t\n"},
		"left out of nothing":       {"test/e2e/tests.txt": "one\n", "test/e2e/left-out.tsv": "two\tno cloud\n"},
		"run and not yet":           {"test/e2e/tests.txt": "one\n", "test/e2e/not-yet.tsv": "one\tsome-controller\n"},
		"run twice":                 {"test/e2e/tests.txt": "one\ntwo\none\n"},
	} {
		if _, err := readLists(write(t, files)); err == nil {
			t.Errorf("lists were accepted in which a test is %s", what)
		}
	}
}
