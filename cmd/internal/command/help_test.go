package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// help is what millrace prints with these arguments.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	ok(t, root.Execute())
	return out.String()
}

// TestCommandsAreInGroups: the help of millrace shows each command in a group, and each command of
// a group exists.
func TestCommandsAreInGroups(t *testing.T) {
	root, grouped := newRoot(), map[string]bool{}
	for _, g := range commandGroups {
		for _, name := range g.commands {
			grouped[name] = true
		}
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && (c.GroupID == "" || !grouped[c.Name()]) {
			t.Errorf("%s is in no group", c.Name())
		}
		delete(grouped, c.Name())
	}
	if len(grouped) > 0 {
		t.Errorf("these commands do not exist: %v", grouped)
	}
	text := help(t, "--help")
	run, read := strings.Index(text, "Run the controllers:"), strings.Index(text, "Read the record:")
	if run < 0 || read < run || !strings.Contains(text[run:read], "\n  reconcilers ") || !strings.Contains(text[read:], "\n  why-not ") {
		t.Errorf("the help is\n%s", text)
	}
}

// TestFlagsAreInSections: the help of a program has every flag that is not hidden, once, in the section
// of what it is about.
func TestFlagsAreInSections(t *testing.T) {
	for _, name := range []string{"run", "dev", "watcher", "reconcilers", "writer", "bus", "doctor"} {
		text := help(t, name, "--help")
		cmd, _, err := newRoot().Find([]string{name})
		ok(t, err)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			want := 1
			if f.Hidden || f.Deprecated != "" {
				want = 0
			}
			if got := strings.Count(text, " --"+f.Name+" ") + strings.Count(text, " --"+f.Name+"["); got < want || want == 0 && got > 0 {
				t.Errorf("%s --help has --%s %d times, want %d", name, f.Name, got, want)
			}
		})
	}
	text := help(t, "run", "--help")
	for title, flag := range map[string]string{
		"Controller flags:": "--controllers ", "Bus flags:": "--stream-max-age ", "Writer flags:": "--max-requests-in-flight ",
		"API server flags:": "--kubeconfig ", "Tracing flags:": "--tracing-endpoint ", "Logs flags:": "--logging-format ", "Global flags:": "--config ",
	} {
		_, rest, found := strings.Cut(text, "\n"+title+"\n\n")
		if in, _, _ := strings.Cut(rest, "\n\n"); !found || !strings.Contains(in, flag) {
			t.Errorf("section %q has no %s:\n%s", title, flag, in)
		}
	}
	if last := strings.LastIndex(text, " flags:\n\n"); !strings.HasSuffix(text[:last], "\nGlobal") {
		t.Errorf("the last section is not that of the global flags")
	}
}
