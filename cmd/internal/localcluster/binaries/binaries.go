// Package binaries builds the programs of a control plane, such as etcd and kube-apiserver, from
// their Go modules into a cache, each in the version that test/cluster pins.
package binaries

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/progress"
)

// Cache is the cache of built programs: $MILLRACE_CACHE, else millrace/bin in
// the user's cache directory. It may be deleted at any time. Build rebuilds a program if its
// pinned version has changed.
type Cache struct {
	// Dir is the cache.
	Dir string

	source     string // the module that pins the versions
	kubernetes string // the minor version of Kubernetes, such as 1.35; empty: that of source
	progress   *progress.Progress
	aside      bool // builds have a low priority
}

// program is one entry of the cache.
type program struct {
	name   string
	file   string // in the cache; empty: the name
	module string // its version in go.mod is the program's; empty: a program of this repository
	pkg    string
	under  string // the directory of its go.mod, relative to test/cluster
	hint   string // how long the first build takes
	test   bool   // a test binary
	tags   string // of the build
}

// programs are all programs, in the order in which they are needed.
var programs = []program{
	{name: "etcd", module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3", hint: "about a minute"},
	{name: "kube-apiserver", module: kubernetesModule, pkg: kubernetesModule + "/cmd/kube-apiserver", hint: "2 to 4 minutes"},
	{name: "kube-scheduler", module: kubernetesModule, pkg: kubernetesModule + "/cmd/kube-scheduler", hint: "about a minute"},
	{name: "kube-controller-manager", module: kubernetesModule, pkg: kubernetesModule + "/cmd/kube-controller-manager", hint: "about a minute"},
	{name: "kwok", module: "sigs.k8s.io/kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", under: "kwok", hint: "about a minute"},
	{name: "jaeger", module: "github.com/jaegertracing/jaeger", pkg: "github.com/jaegertracing/jaeger/cmd/jaeger", under: "../../tools/jaeger", hint: "5 to 8 minutes"},
	// Of the service discovery mechanisms DNS is enough; building the others would take ten
	// times as long.
	{name: "prometheus", module: "github.com/prometheus/prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus", under: "../../tools/prometheus", hint: "3 to 4 minutes", tags: "remove_all_sd,enable_dns_sd"},
	{name: "compose", module: "github.com/docker/compose/v2", pkg: "github.com/docker/compose/v2/cmd", under: "../../tools/compose", hint: "2 to 3 minutes"},
	{name: "fakelet", pkg: "./fakelet", hint: "some seconds"},
	{name: StorageDriver, pkg: "./internal/localcluster/fakecsi", under: "../../cmd", hint: "some seconds"},
	{name: "kubectl", module: kubernetesModule, pkg: kubernetesModule + "/cmd/kubectl", hint: "about a minute"},
	{name: "ginkgo", module: "github.com/onsi/ginkgo/v2", pkg: "github.com/onsi/ginkgo/v2/ginkgo", hint: "some seconds"},
	{name: "e2e.test", module: kubernetesModule, pkg: kubernetesModule + "/test/e2e", hint: "about two minutes", test: true},
}

// StorageDriver is the program that simulates a storage driver.
const StorageDriver = "fakecsi"

const kubernetesModule = "k8s.io/kubernetes"

// Names are the programs that Build knows.
func Names() []string {
	names := make([]string, len(programs))
	for i, p := range programs {
		names[i] = p.name
	}
	return names
}

// Find finds the cache, and the module that pins the versions: in the
// checkout that holds the working directory, or in that of $MILLRACE_SOURCE.
// $MILLRACE_KUBERNETES selects another minor version of Kubernetes' programs, such
// as 1.35. Builds are logged to output.
//
// Errors: there is no checkout; it has no such version of Kubernetes.
func Find(output io.Writer) (*Cache, error) {
	dir := os.Getenv("MILLRACE_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find cache directory (set MILLRACE_CACHE): %w", err)
		}
		dir = filepath.Join(base, "millrace", "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find cache directory: %w", err)
	}
	root, err := Checkout()
	if err != nil {
		return nil, err
	}
	p := &Cache{Dir: dir, source: filepath.Join(root, "test", "cluster"), progress: progress.New(output)}
	return p, p.selectKubernetes(os.Getenv("MILLRACE_KUBERNETES"))
}

// Aside is for builds in the background of other work: at a low priority, and with
// a line of its own for each message.
func (p *Cache) Aside() *Cache {
	return &Cache{Dir: p.Dir, source: p.source, kubernetes: p.kubernetes, progress: p.progress.Aside(), aside: true}
}

// Checkout is the root of the source tree: $MILLRACE_SOURCE, else the nearest
// directory above the working directory that has test/cluster/go.mod.
func Checkout() (string, error) {
	if root := os.Getenv("MILLRACE_SOURCE"); root != "" {
		return root, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "cluster", "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("find Millrace's source, from which the control plane is built: run inside a checkout, or set MILLRACE_SOURCE to one")
		}
		dir = above
	}
}

// Path is the path of a program once it is built. It panics on an unknown name.
func (p *Cache) Path(name string) string {
	q, ok := p.find(name)
	if !ok {
		panic("localcluster: no program " + name)
	}
	return p.path(q)
}

func (p *Cache) path(q program) string {
	file := cmp.Or(q.file, q.name)
	if q.module == "" {
		file += "-" + p.digest(q)
	}
	return filepath.Join(p.Dir, file)
}

// Build builds the named programs that are missing or have another version than the
// pinned one. A file lock prevents two processes from building at the same time.
func (p *Cache) Build(ctx context.Context, names ...string) error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(p.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("open lock of the cache: %w", err)
	}
	defer lock.Close()
	if err := p.lock(ctx, int(lock.Fd())); err != nil {
		return fmt.Errorf("lock the cache: %w", err)
	}
	for _, name := range names {
		q, ok := p.find(name)
		if !ok {
			return fmt.Errorf("build %s: there is no such program; known are %s", name, strings.Join(Names(), ", "))
		}
		if err := p.ensure(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// lock takes the file lock. If another process builds, it logs that it waits.
func (p *Cache) lock(ctx context.Context, file int) error {
	take := func() error { return syscall.Flock(file, syscall.LOCK_EX|syscall.LOCK_NB) }
	err := take()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	done := p.progress.Step("waiting for another build to end")
	for errors.Is(err, syscall.EWOULDBLOCK) {
		select {
		case <-time.After(100 * time.Millisecond):
			err = take()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	done(err)
	return err
}

func (p *Cache) ensure(ctx context.Context, q program) error {
	version, err := p.version(q)
	if err != nil {
		return err
	}
	path := p.path(q)
	if current(path, q, version) {
		return nil
	}
	done := p.progress.Step(fmt.Sprintf("building %s %s (%s the first time)", q.name, version, q.hint))
	err = p.compile(ctx, q, version, path)
	done(err)
	return err
}

// current is whether path was built from the pinned version, according to its embedded
// build information.
func current(path string, q program, version string) bool {
	if q.module == "" { // its file name has the digest of its source
		_, err := os.Stat(path)
		return err == nil
	}
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == q.module && info.Main.Version == version
}

func (p *Cache) compile(ctx context.Context, q program, version, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	unfinished := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(unfinished)
	args := []string{"build"}
	if q.test {
		args = []string{"test", "-c"}
	}
	if q.under != "" && q.module != "" { // it shares no build cache entries with other builds, so a reproducible build costs nothing
		args = append(args, "-trimpath")
	}
	if q.tags != "" {
		args = append(args, "-tags="+q.tags)
	}
	args = append(args, "-buildvcs=false", "-o", unfinished, "-ldflags", linkFlags(q, version), q.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	if nice, err := exec.LookPath("nice"); p.aside && err == nil {
		cmd = exec.CommandContext(ctx, nice, append([]string{"go"}, args...)...)
	}
	cmd.Dir = filepath.Join(p.source, q.under)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", q.name, err, out)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("keep %s: %w", q.name, err)
	}
	return nil
}

// linkFlags set the version of Kubernetes' programs, which they do not know by themselves.
func linkFlags(q program, version string) string {
	flags := []string{"-s", "-w"}
	if q.module != kubernetesModule {
		return strings.Join(flags, " ")
	}
	minor := strings.SplitN(version, ".", 3)[1]
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X "+pkg+".gitVersion="+version, "-X "+pkg+".gitMajor=1", "-X "+pkg+".gitMinor="+minor, "-X "+pkg+".gitTreeState=clean")
	}
	return strings.Join(flags, " ")
}

// version is the version that go.mod pins for a program.
func (p *Cache) version(q program) (string, error) {
	if q.module == "" {
		return p.digest(q), nil
	}
	file := filepath.Join(p.source, q.under, "go.mod")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read pinned versions: %w", err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(q.module) + ` (v\S+)`).FindSubmatch(data)
	if found == nil {
		return "", fmt.Errorf("read pinned versions: %s does not require %s", file, q.module)
	}
	return string(found[1]), nil
}

// digest is a hash of the source and the dependencies of a program of this repository.
func (p *Cache) digest(q program) string {
	module := filepath.Join(p.source, q.under)
	files, _ := filepath.Glob(filepath.Join(module, q.pkg, "*.go"))
	sum := sha256.New()
	for _, file := range append(files, filepath.Join(module, "go.mod")) {
		data, err := os.ReadFile(file)
		if err != nil { // the build reports it
			continue
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.Base(file), len(data))
		sum.Write(data)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12]
}
