package command

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTheSBOMNamesEveryModule: the output of make sbom has each module of the program, and is
// the same each time.
func TestTheSBOMNamesEveryModule(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../millrace").CombinedOutput(); err != nil {
		t.Fatalf("build it: %v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil || len(info.Deps) < 50 {
		t.Fatalf("it does not say what it is built from: %v, %v", info, err)
	}
	write := func() []byte {
		out, err := exec.CommandContext(t.Context(), "make", "-C", "../../..", "sbom", "VERSION=v1", "BINARY="+binary).CombinedOutput()
		if err != nil {
			t.Fatalf("make sbom: %v\n%s", err, out)
		}
		text, err := os.ReadFile(binary + ".cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := write()
	var sbom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			Name, Version, PURL string
		}
	}
	if err := json.Unmarshal(text, &sbom); err != nil || sbom.Format != "CycloneDX" {
		t.Fatalf("it is no CycloneDX: %v, %.200s", err, text)
	}
	named := map[string]bool{}
	for _, c := range sbom.Components {
		named[c.Name+"@"+c.Version] = true
		named[c.Name] = true
	}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		want := dependency.Path + "@" + dependency.Version
		if dependency.Version == "(devel)" { // a module of this repository
			want = dependency.Path
		}
		if !named[want] {
			t.Errorf("it does not name %s", want)
		}
	}
	if again := write(); !bytes.Equal(text, again) {
		t.Error("a second one is another")
	}
}
