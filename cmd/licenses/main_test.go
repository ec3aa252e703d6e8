package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEveryModuleOfTheProgramHasItsLicence: the output has each module that the program's build information
// names, with version and text, and Go itself.
func TestEveryModuleOfTheProgramHasItsLicence(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../millrace").CombinedOutput(); err != nil {
		t.Fatalf("build it: %v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil || len(info.Deps) < 50 {
		t.Fatalf("it does not say what it is built from: %v, %v", info, err)
	}
	var text bytes.Buffer
	if err := run(t.Context(), "../millrace", runtime.GOOS, &text); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, part := range strings.Split(text.String(), "\n"+strings.Repeat("=", 80)+"\n")[1:] {
		title, texts, _ := strings.Cut(part, "\n")
		parts[title] = texts
	}
	want := []string{"Go " + info.GoVersion}
	for _, d := range info.Deps {
		version := d.Version
		if d.Replace != nil {
			version = d.Replace.Path + " " + d.Replace.Version
		}
		if !strings.HasPrefix(d.Path+"/", ours) {
			want = append(want, d.Path+" "+version)
		}
	}
	for _, title := range want {
		if !strings.Contains(parts[title], "--- LICEN") && !strings.Contains(parts[title], "--- COPYING") {
			t.Errorf("%s has no licence", title)
		}
		delete(parts, title)
	}
	for title := range parts {
		t.Errorf("%s is not in the program", title)
	}
	for _, words := range []string{"Apache License", "Redistribution and use in source and binary forms", "Permission is hereby granted"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("no text says %q", words)
		}
	}
}

// TestWithoutALicence: a module without a licence is an error that names the module.
func TestWithoutALicence(t *testing.T) {
	m := module{name: "example.com/a", texts: map[string][]byte{}}
	root := t.TempDir()
	inner := filepath.Join(root, "b", "c")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"license.go": "package a", "LICENSES": "none", "b/NOTICE": "b's"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.collect(root, inner); err != nil || len(m.texts) != 1 || string(m.texts["b/NOTICE"]) != "b's" {
		t.Errorf("it collects %q: %v", m.texts, err)
	}
	if err := run(t.Context(), "./no-such-package", runtime.GOOS, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no-such-package") {
		t.Errorf("without a program: %v", err)
	}
}
