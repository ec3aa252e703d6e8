package system

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/eventually"
)

// patience is the time-out of every step: ten times what it takes on a busy machine with two cores. Promises
// with a shorter time have a bound of their own.
const patience = time.Minute

// site is a control plane, and the program under test.
type site struct {
	*clustertest.Cluster
	binary  string
	keyless bool   // its services neither sign nor verify, and its bus has no users
	audit   string // the API server's audit log
	config  *rest.Config
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	arenas  *clustertest.Client
}

// sites are the control planes of the package. A test has one to itself while it runs, and leaves it to the
// next: Millrace acts on the whole cluster, so two tests cannot share one.
var sites struct {
	dir    string
	binary func() (string, error) // the program under test, built once

	mu    sync.Mutex
	begun int
	idle  []*site
}

func TestMain(m *testing.M) {
	sites.binary = sync.OnceValues(build)
	code := clustertest.Run(m)
	for _, s := range sites.idle {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := os.RemoveAll(sites.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// build builds the program under test.
func build() (binary string, err error) {
	if sites.dir, err = os.MkdirTemp("", "millrace-system-"); err != nil {
		return "", err
	}
	binary = filepath.Join(sites.dir, "millrace")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/millrace/millrace/cmd/millrace").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build millrace: %w\n%s", err, out)
	}
	return binary, nil
}

// here returns a control plane for a test, and lets the test run in parallel with others: most tests wait
// more than they work.
func here(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	return alone(t)
}

// alone is here for a test that measures promised times: no other test runs in parallel.
func alone(t *testing.T) *site {
	t.Helper()
	s, err := take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() { // its leftovers must not fail the next test
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			return
		}
		sites.mu.Lock()
		defer sites.mu.Unlock()
		sites.idle = append(sites.idle, s)
	})
	return s
}

// take returns a control plane that no test uses, or starts one.
func take(ctx context.Context) (*site, error) {
	sites.mu.Lock()
	if n := len(sites.idle); n > 0 {
		defer sites.mu.Unlock()
		s := sites.idle[n-1]
		sites.idle = sites.idle[:n-1]
		return s, nil
	}
	sites.begun++
	name := fmt.Sprint("site-", sites.begun)
	sites.mu.Unlock()
	if _, err := sites.binary(); err != nil {
		return nil, err
	}
	dir := filepath.Join(sites.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return begin(ctx, dir, clustertest.Tracing{})
}

// auditPolicy records every write and nothing else; a review asks a question, and stores nothing.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: authorization.k8s.io}, {group: authentication.k8s.io}]}
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
`

// begin starts a control plane; more are extra flags of its API server.
func begin(ctx context.Context, dir string, tracing clustertest.Tracing, more ...string) (*site, error) {
	binary, err := sites.binary()
	if err != nil {
		return nil, err
	}
	s := &site{binary: binary, audit: filepath.Join(dir, "audit.log")}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	if s.Cluster, err = clustertest.Launch(context.WithoutCancel(ctx), clustertest.Options{
		Dir: filepath.Join(dir, "cluster"), Nodes: 4, Lean: true, Tracing: tracing, Output: os.Stderr,
		// The audit log must stay one file, because tests remember offsets in it.
		APIServerArgs: append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + s.audit, "--audit-log-maxsize=0"}, more...),
	}); err != nil {
		return nil, err
	}
	return s, s.connect()
}

func (s *site) connect() (err error) {
	if s.config, err = s.Config(); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.config); err != nil {
		return err
	}
	s.arenas, err = clustertest.Connect(s.Kubeconfig(clustertest.Admin))
	return err
}

// service is a running process of the program.
type service struct {
	*clustertest.Process
	health string // the address of its health endpoints
	args   []string
}

// start starts the program, waits until it is ready, and stops it at the end of the test with SIGTERM; the
// exit code must be 0.
func (s *site) start(t *testing.T, name string, args ...string) *service {
	t.Helper()
	p := s.launch(t, name, args...)
	p.ready(t)
	return p
}

// launch is start without the wait.
func (s *site) launch(t *testing.T, name string, args ...string) *service {
	t.Helper()
	p := &service{health: loopback(t), args: args}
	log := strings.ReplaceAll(t.Name(), "/", "-") + "-" + name + "-" + p.health[strings.LastIndex(p.health, ":")+1:]
	var err error
	if p.Process, err = s.Run(log, s.binary, append(slices.Clip(args), "--health-address="+p.health)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, tail(p.Log))
		}
	})
	return p
}

func (p *service) ready(t *testing.T) {
	t.Helper()
	defer waited(t, p.Name+" was ready")()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Ready(ctx, "http://"+p.health+"/readyz"); err != nil {
		t.Fatal(err)
	}
}

// stop asks the process to end, and expects a clean exit, unless it has already ended.
func (p *service) stop(t *testing.T) {
	t.Helper()
	if !p.Running() {
		return
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if code, ok := p.ExitCode(); !ok || code != 0 {
		t.Errorf("%s ended with code %d after SIGTERM (known: %t), want 0", p.Name, code, ok)
	}
}

// kill ends the process like a crash.
func (p *service) kill(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// get requests a path of the health address.
func (p *service) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get("http://" + p.health + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// loopback is an address on which no process listens at the moment.
func loopback(t *testing.T) string {
	t.Helper()
	port, err := clustertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// within waits until holds returns "", and reports the last missing condition when the bound is over.
func within(t *testing.T, bound time.Duration, what string, holds func() (missing string)) {
	t.Helper()
	defer waited(t, what)()
	eventually.Complete(t, bound, what, holds)
}

// waited logs a long wait when it is over.
func waited(t *testing.T, what string) (over func()) {
	begun := time.Now()
	return func() {
		if took := time.Since(begun); took > patience/6 {
			t.Logf("%v until %s", took.Round(100*time.Millisecond), what)
		}
	}
}

// ask is the text of an error, for within; "" for nil.
func ask(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// made is ask for a create that is retried: an earlier try may have taken effect although it returned an
// error.
func made(err error) string {
	if apierrors.IsAlreadyExists(err) {
		return ""
	}
	return ask(err)
}

// gone is ask for a get of an object that must not exist any more.
func gone(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err == nil:
		return "it is still there"
	default:
		return err.Error()
	}
}

// arena opens a namespace that has its service account, and closes it at the end of the test.
func (s *site) arena(t *testing.T, name string) *clustertest.Arena {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.arenas.CreateNamespace(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := s.arenas.AwaitAccount(ctx, name); err != nil {
		t.Fatal(err)
	}
	a, err := s.arenas.Watch(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// abandon deletes a namespace at the end of a test, and waits for that while Millrace still runs: otherwise
// the next Millrace would have work with the rest.
func (s *site) abandon(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		must(t, s.arenas.Remove(ctx, name))
		must(t, s.arenas.AwaitGone(ctx, name))
	})
}

// until waits for a condition of an arena and returns when it came true.
func until(t *testing.T, a *clustertest.Arena, c clustertest.Condition) time.Time {
	t.Helper()
	defer waited(t, "what was asked of "+a.Namespace)()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at, err := a.Until(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// must ends the test on an error of a step that is not under test.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clear deletes a namespace's Deployments and waits until all their objects are deleted, so that the next
// Millrace has no work here.
func clear(t *testing.T, a *clustertest.Arena) {
	t.Helper()
	must(t, a.DeleteDeployments(t.Context()))
	until(t, a, clustertest.Empty())
}

var everything = metav1.ListOptions{}
