package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// checksums is the name of the file with the SHA-256 of all others.
	checksums = "SHA256SUMS"
	// work is the profile with which programs are compiled.
	work = "cmd/millrace/work.pgo"
	// versionVariable is set by the linker.
	versionVariable = "github.com/millrace/millrace/cmd/internal/program.Version"
)

// build builds everything into an empty directory.
func (r release) build(ctx context.Context) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	manual, err := describe(r.version, r.committed)
	if err != nil {
		return fmt.Errorf("write the man pages and completions: %w", err)
	}
	files := map[string][]byte{}
	var archives []archive
	for _, p := range r.platforms {
		fmt.Printf("building %s/%s ...\n", p.system, p.architecture)
		a, err := r.program(ctx, p, manual)
		if err != nil {
			return fmt.Errorf("build for %s/%s: %w", p.system, p.architecture, err)
		}
		files[a.name+".tar.gz"], files[a.name+".cdx.json"] = a.content, a.modules
		archives = append(archives, a)
	}
	if files["krew.yaml"], err = krew(r.version, archives); err != nil {
		return fmt.Errorf("write the manifest of krew: %w", err)
	}
	if err := r.chart(files); err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	files["RELEASE_NOTES.md"] = notes(r.version, string(changes))
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	files[checksums] = []byte(sums.String())
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d files are in %s\n", len(files), r.out)
	return nil
}

// archive is the archive of one platform, and its list of modules.
type archive struct {
	platform
	name             string
	content, modules []byte
}

// program builds the program of one platform.
func (r release) program(ctx context.Context, p platform, manual map[string][]byte) (a archive, err error) {
	a = archive{platform: p, name: fmt.Sprintf("millrace_%s_%s_%s", strings.TrimPrefix(r.version, "v"), p.system, p.architecture)}
	dir, err := os.MkdirTemp("", "millrace-dist-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(dir)
	binary, modules := filepath.Join(dir, "millrace"), filepath.Join(dir, "modules.json")
	env := append([]string{"CGO_ENABLED=0", "GOOS=" + p.system, "GOARCH=" + p.architecture}, r.env...)
	_, err = outputWith(ctx, r.root, env, "go", "build", "-pgo="+work, "-trimpath", "-ldflags=-s -w -X "+versionVariable+"="+r.version, "-o", binary, "./cmd/millrace")
	if err != nil {
		return a, err
	}
	licences, err := output(ctx, r.root, "go", "run", "./cmd/licenses", "./cmd/millrace", p.system)
	if err != nil {
		return a, err
	}
	_, err = outputWith(ctx, filepath.Join(r.root, "tools/sbom"), []string{"GOWORK=off"}, "go", "tool", "cyclonedx-gomod", "bin",
		"-json", "-std", "-noserial", "-notimestamp", "-version", r.version, "-output", modules, binary)
	if err != nil {
		return a, err
	}
	if a.modules, err = os.ReadFile(modules); err != nil {
		return a, err
	}
	content := maps.Clone(manual)
	content["THIRD_PARTY_LICENSES"] = []byte(licences + "\n")
	for name, file := range map[string]string{"millrace": binary, "LICENSE": filepath.Join(r.root, "LICENSE")} {
		if content[name], err = os.ReadFile(file); err != nil {
			return a, err
		}
	}
	links := map[string]string{"kubectl-millrace": "millrace", "kubectl_complete-millrace": "millrace"} // the plug-in of kubectl
	a.content, err = pack(r.committed, a.name, content, links)
	return a, err
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
	semantic     = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
)

// chart adds the archive of the Helm chart to files. The version of the chart is that of the release; one that is
// not semantic, such as a commit, becomes a pre-release of 0.0.0.
func (r release) chart(files map[string][]byte) error {
	version := strings.TrimPrefix(r.version, "v")
	if !semantic.MatchString(version) {
		version = "0.0.0-" + version
	}
	content, err := tree(filepath.Join(r.root, "deployments/helm/millrace"))
	if err != nil {
		return err
	}
	about := chartVersion.ReplaceAll(content["Chart.yaml"], []byte("version: "+version))
	content["Chart.yaml"] = appVersion.ReplaceAll(about, []byte(fmt.Sprintf("appVersion: %q", r.version)))
	files["millrace-chart-"+version+".tgz"], err = pack(r.committed, "millrace", content, nil)
	return err
}

// tree reads all files of a directory, by their paths within it.
func tree(dir string) (map[string][]byte, error) {
	content := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	return content, err
}

// notes are the release notes: the changes under the version's heading in the changelog, or those that are not
// released.
func notes(version, changes string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Millrace %s\n\nWhat an archive has, and how to check it: docs/release.md.\n", version)
	for _, heading := range []string{strings.TrimPrefix(version, "v"), "Unreleased"} {
		for _, form := range []string{"## " + heading + "\n", "## [" + heading + "]\n"} {
			_, rest, found := strings.Cut(changes, form)
			if !found {
				continue
			}
			section, _, _ := strings.Cut(rest, "\n## ")
			fmt.Fprintf(&out, "\n%s\n", strings.TrimSpace(section))
			return out.Bytes()
		}
	}
	return out.Bytes()
}
