package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/cmd/internal/localcluster"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// TestAToolThatCannotBeHadIsToldOnce: with what to do, and the next tool is built nevertheless.
func TestAToolThatCannotBeHadIsToldOnce(t *testing.T) {
	var told bytes.Buffer
	bring(t.Context(), &told, []tool{
		{name: "kubectl", bring: func(context.Context) error { return errors.New("no space left") }, there: "kubectl is there", without: "install it"},
		{name: "Jaeger", bring: func(context.Context) error { return nil }, there: "Jaeger is there", without: "do without it"},
	})
	want := "millrace: there is no kubectl: no space left\nmillrace: install it\nmillrace: Jaeger is there\n"
	if told.String() != want {
		t.Errorf("a person is told\n%swant\n%s", told.String(), want)
	}
}

func TestAToolThatIsInterruptedIsNotComplainedOf(t *testing.T) {
	var told bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	bring(ctx, &told, []tool{
		{name: "kubectl", bring: func(context.Context) error { cancel(); return ctx.Err() }},
		{name: "Jaeger", bring: func(context.Context) error { t.Error("brought although all has ended"); return nil }},
	})
	if told.Len() > 0 {
		t.Errorf("a person is told %q", told.String())
	}
}

func TestKubectlIsBroughtWhereThereIsNone(t *testing.T) {
	programs, err := binaries.Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	with, without := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, "kubectl"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{with: "", without: "kubectl is at " + programs.Path("kubectl")} {
		t.Setenv("PATH", dir)
		said := ""
		for _, t := range (&devOptions{}).tools(&localcluster.Cluster{Programs: programs}) {
			said += t.there
		}
		if said != want {
			t.Errorf("with %v in a path, what is brought is %q, want %q", dir == with, said, want)
		}
	}
}
