package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestNothingConfidentialIsServedUnasked: without flags nobody is served profiles, and
// everyone only health, as by kube-controller-manager.
func TestNothingConfidentialIsServedUnasked(t *testing.T) {
	o := newServiceOptions()
	o.add(pflag.NewFlagSet("", pflag.ContinueOnError))
	if o.profiling || o.access.TokenFile != "" || !slices.Equal(o.access.Always, []string{"/healthz", "/readyz", "/livez"}) {
		t.Errorf("without flags it serves profiles (%v) and %+v", o.profiling, o.access)
	}
}

var (
	openedPaths = regexp.MustCompile(`(?i)authorization[-_]always[-_]allow[-_]paths["=:\s]+([^\s"]+)`)
	monitored   = regexp.MustCompile(`(?i)nats[-_]monitoring["=:\s]+([^\s"]+)`)
)

// TestManifestsOpenHealthAlone: no file that we ship opens a page of the bus, and services
// ask a bus of ours how it syncs over TLS, where they can show their login.
func TestManifestsOpenHealthAlone(t *testing.T) {
	root := filepath.Dir(deployments)
	files := []string{filepath.Join(root, "docker-compose.yaml")}
	ok(t, filepath.WalkDir(deployments, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		for _, m := range openedPaths.FindAllStringSubmatch(string(text), -1) {
			found++
			for path := range strings.SplitSeq(m[1], ",") {
				// Prometheus of the composition has no credential, on a network of its own.
				if metrics := path == "/metrics" && filepath.Base(file) == "docker-compose.yaml"; !metrics && !slices.Contains(newAccess().Always, path) {
					t.Errorf("%s opens %s to everyone", file, path)
				}
			}
		}
		for _, m := range monitored.FindAllStringSubmatch(string(text), -1) {
			found++
			for address := range strings.SplitSeq(m[1], ",") {
				if strings.Contains(address, ":10260") && !strings.HasPrefix(address, "https://") {
					t.Errorf("%s: services ask %s how it syncs, to which they can show no login", file, address)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d settings were found", found)
	}
}
