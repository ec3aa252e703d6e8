package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// unpacked are the entries of an archive: mode, time and link by name, and the content of one file.
func unpacked(t *testing.T, archive []byte, file string) (entries []string, content string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, content
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf("%s %o %s %s %d:%d", h.Name, h.Mode, h.ModTime.UTC().Format(time.TimeOnly), h.Linkname, h.Uid, h.Gid))
		if h.Name == file {
			content = string(text)
		}
	}
}

// The same files give the same bytes, and the program can be run.
func TestAnArchiveIsOfItsContentAlone(t *testing.T) {
	files := map[string][]byte{"millrace": []byte("program"), "LICENSE": []byte("text"), "man/man1/millrace.1": []byte("page")}
	links := map[string]string{"kubectl-millrace": "millrace"}
	first, err := pack(noon, "millrace_1_linux_amd64", files, links)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := pack(noon, "millrace_1_linux_amd64", files, links)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("the bytes differ, %v", err)
		}
	}
	entries, content := unpacked(t, first, "millrace_1_linux_amd64/millrace")
	want := []string{
		"millrace_1_linux_amd64/LICENSE 644 12:00:00  0:0", "millrace_1_linux_amd64/kubectl-millrace 777 12:00:00 millrace 0:0",
		"millrace_1_linux_amd64/man/man1/millrace.1 644 12:00:00  0:0", "millrace_1_linux_amd64/millrace 755 12:00:00  0:0",
	}
	if !slices.Equal(entries, want) || content != "program" {
		t.Errorf("it has %q, and the program is %q", entries, content)
	}
}

// Every command has a man page with its flags, and each shell a completion; they depend on nothing but the version and
// the time.
func TestEveryCommandHasAPage(t *testing.T) {
	files, err := describe("v1.2.3", noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"man/man1/millrace.1": "Nov 2026", "man/man1/millrace-run.1": `\fB--write-limits\fP`, "man/man1/millrace-approve.1": "Millrace v1.2.3",
		"completions/millrace.bash": "__start_millrace", "completions/_millrace": "#compdef millrace", "completions/millrace.fish": "complete -c millrace", "completions/millrace.ps1": "Register-ArgumentCompleter",
	} {
		if !strings.Contains(string(files[name]), text) {
			t.Errorf("%s has no %q", name, text)
		}
	}
	again, err := describe("v1.2.3", noon)
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs the second time", name)
		}
	}
}

// The chart of a release has its version, and one of a commit a pre-release.
func TestTheChartHasTheVersion(t *testing.T) {
	for version, want := range map[string][3]string{
		"v1.2.3":      {"millrace-chart-1.2.3.tgz", "version: 1.2.3\n", `appVersion: "v1.2.3"`},
		"1.2.3-rc.1":  {"millrace-chart-1.2.3-rc.1.tgz", "version: 1.2.3-rc.1\n", `appVersion: "1.2.3-rc.1"`},
		"a1b2c3d":     {"millrace-chart-0.0.0-a1b2c3d.tgz", "version: 0.0.0-a1b2c3d\n", `appVersion: "a1b2c3d"`},
		"v1.2-3-gabc": {"millrace-chart-0.0.0-1.2-3-gabc.tgz", "version: 0.0.0-1.2-3-gabc\n", `appVersion: "v1.2-3-gabc"`},
	} {
		files := map[string][]byte{}
		r := release{root: "../..", version: version, committed: noon}
		if err := r.chart(files); err != nil {
			t.Fatal(err)
		}
		entries, about := unpacked(t, files[want[0]], "millrace/Chart.yaml")
		if len(entries) < 10 || !strings.Contains(about, want[1]) || !strings.Contains(about, want[2]) || strings.Contains(about, "appVersion: dev") {
			t.Errorf("%s: %q with %d files is\n%s", version, want[0], len(entries), about)
		}
	}
}

func TestReleaseNotes(t *testing.T) {
	const changes = "# Changelog\n\n## Unreleased\n\n### Added\n\n- later\n\n## [0.2.0]\n\n- second\n\n## 0.1.0\n\n- first\n"
	for version, want := range map[string][2]string{
		"v0.2.0": {"- second", "first"}, "v0.1.0": {"- first", "second"}, "a1b2c3d": {"### Added\n\n- later", "second"},
	} {
		if got := string(notes(version, changes)); !strings.Contains(got, want[0]) || strings.Contains(got, want[1]) || !strings.HasPrefix(got, "# Millrace "+version) {
			t.Errorf("%s: the notes are\n%s", version, got)
		}
	}
	if got := string(notes("v0.3.0", "# Changelog\n")); !strings.HasPrefix(got, "# Millrace v0.3.0") {
		t.Errorf("without changes the notes are %q", got)
	}
}

// The manifest of krew names the archives by their sums, and the program within them.
func TestKrewsManifest(t *testing.T) {
	a := archive{platform: platform{"darwin", "arm64"}, name: "millrace_1.2.3_darwin_arm64", content: []byte("x")}
	text, err := krew("v1.2.3", []archive{a})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"version: v1.2.3", "os: darwin", "arch: arm64", "download/v1.2.3/millrace_1.2.3_darwin_arm64.tar.gz", "from: millrace_1.2.3_darwin_arm64/millrace",
		fmt.Sprintf("sha256: %x", sha256.Sum256([]byte("x"))),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it has no %q:\n%s", want, text)
		}
	}
}

func TestWhatDiffers(t *testing.T) {
	for _, c := range [][3]string{
		{"1  a\n2  b\n", "1  a\n2  b\n", ""}, {"1  a\n2  b\n", "1  a\n3  b\n", "b"}, {"1  a\n", "1  a\n2  b\n", "b"}, {"1  a\n2  b\n", "2  b\n", "a"},
	} {
		if got := strings.Join(differences(c[0], c[1]), " "); got != c[2] {
			t.Errorf("%q and %q differ in %q", c[0], c[1], got)
		}
	}
}

func TestPlatforms(t *testing.T) {
	if all, err := parse("linux/amd64,darwin/arm64"); err != nil || !slices.Equal(all, []platform{{"linux", "amd64"}, {"darwin", "arm64"}}) {
		t.Errorf("%v, %v", all, err)
	}
	for _, text := range []string{"", "linux", "linux/", "/arm64", "linux/amd64,"} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), "such as linux/arm64") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
