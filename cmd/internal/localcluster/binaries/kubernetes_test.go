package binaries

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheVersionOfKubernetes: MILLRACE_KUBERNETES selects the version of Kubernetes' programs, which are
// kept apart in the cache. Other programs stay as they are. An unknown version is refused with those
// that are known.
func TestTheVersionOfKubernetes(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("MILLRACE_CACHE", cache)
	for minor, want := range map[string]struct {
		version, file string
		minor         int
	}{"": {"v1.36.", "kube-apiserver", 36}, "1.36": {"v1.36.", "kube-apiserver", 36}, "1.35": {"v1.35.", "kubernetes-1.35/kube-apiserver", 35}, "1.34": {"v1.34.", "kubernetes-1.34/kube-apiserver", 34}} {
		t.Setenv("MILLRACE_KUBERNETES", minor)
		p, err := Find(io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		version, err := p.Kubernetes()
		if err != nil || !strings.HasPrefix(version, want.version) || p.Path("kube-apiserver") != filepath.Join(cache, want.file) {
			t.Errorf("with %q, %s is of version %s, %v", minor, p.Path("kube-apiserver"), version, err)
		}
		if n, err := p.Minor(); err != nil || n != want.minor {
			t.Errorf("with %q, the minor version is %d, %v", minor, n, err)
		}
		for _, name := range []string{"etcd", "kwok"} {
			if filepath.Base(p.Aside().Path(name)) != name {
				t.Errorf("with %q, %s is %s", minor, name, p.Path(name))
			}
		}
		for _, name := range []string{"kube-scheduler", "kube-controller-manager", "kubectl", "e2e.test"} {
			q, _ := p.find(name)
			if got, err := p.version(q); err != nil || got != version {
				t.Errorf("with %q, %s is of %s, %v", minor, name, got, err)
			}
		}
	}
	for _, wrong := range []string{"1.33", "v1.35", "1.35.4", "x"} {
		t.Setenv("MILLRACE_KUBERNETES", wrong)
		if _, err := Find(io.Discard); err == nil || !strings.Contains(err.Error(), "known are v1.36.") || !strings.Contains(err.Error(), "1.34, 1.35") {
			t.Errorf("with %q: %v", wrong, err)
		}
	}
}
