package localcluster

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/localcluster/podstages"
	"github.com/millrace/millrace/pkg/events/eventually"
)

// decode reads every object of a manifest.
func decode(t *testing.T, manifest []byte) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, manifest)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

func TestStagesAreWhole(t *testing.T) {
	stages := podstages.All()
	rendered, err := render("stages.yaml", stages)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, object := range decode(t, rendered) {
		if object.GetKind() != "Stage" {
			continue
		}
		if names[object.GetName()] {
			t.Errorf("two stages are called %s", object.GetName())
		}
		names[object.GetName()] = true
		if matches, _, _ := unstructured.NestedSlice(object.Object, "spec", "selector", "matchExpressions"); len(matches) == 0 {
			t.Errorf("stage %s applies to everything", object.GetName())
		}
		if next, _, _ := unstructured.NestedMap(object.Object, "spec", "next"); len(next) == 0 {
			t.Errorf("stage %s does nothing", object.GetName())
		}
	}
	if want := 2 + len(stages.Starts) + 1 + len(stages.Endings) + len(stages.Removals); len(names) != want {
		t.Errorf("%d stages, want %d", len(names), want)
	}
}

func TestManifestsAreWhole(t *testing.T) {
	c := &Cluster{options: Options{Nodes: 3, E2E: true, Storage: true}, ports: ports{Kubelet: 1234}}
	nodes, err := render("nodes.yaml", c.nodes())
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for _, n := range c.nodes() {
		addresses[n.Address+n.PodCIDR] = true
	}
	if got := len(decode(t, nodes)); got != 3 || len(addresses) != 3 {
		t.Errorf("%d nodes with %d addresses, want 3", got, len(addresses))
	}
	ours, err := roles(false)
	if err != nil || len(decode(t, ours)) < 8 {
		t.Errorf("the roles are %s (%v)", ours, err)
	}
	for name, data := range map[string]any{
		"storage.yaml": nil,
		"e2e.yaml":     map[string]any{"Server": "https://127.0.0.1:1", "CA": "Q0E=", "MetricsAddress": "10.245.0.1", "MetricsPort": 7},
	} {
		rendered, err := render(name, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range decode(t, rendered) {
			if object.GetKind() == "" || object.GetName() == "" {
				t.Errorf("%s has an object without kind or name: %v", name, object.Object)
			}
		}
	}
}

func TestCertificatesAreOfTheirAuthority(t *testing.T) {
	c := &Cluster{Dir: t.TempDir(), Server: "https://127.0.0.1:1"}
	if err := c.writeKeys(); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.RootCAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the root certificate is none")
	}
	pair, err := tls.LoadX509KeyPair(c.key("apiserver.crt"), c.key("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		t.Errorf("the server's certificate: %v", err)
	}
	for _, u := range users {
		config, err := clientcmd.LoadFromFile(c.Kubeconfig(u.user))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(config.AuthInfos[string(u.user)].ClientCertificateData)
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("%s: %v", u.user, err)
		}
		if certificate.Subject.CommonName != u.subject.CommonName {
			t.Errorf("%s is %s", u.user, certificate.Subject.CommonName)
		}
	}
}

func TestKeptClusterKeepsItsKeys(t *testing.T) {
	c := &Cluster{Dir: t.TempDir(), Server: "https://127.0.0.1:1", options: Options{Keep: true}}
	read := func() string {
		if err := c.writeKeys(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(c.RootCAKeyFile())
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if before := read(); before != read() {
		t.Error("a kept cluster got other keys")
	}
	c.options.Keep = false
	before := read()
	if before == read() {
		t.Error("a fresh cluster got old keys")
	}
}

// TestKeptUserIsRenamed: in a cluster that was created when a user had other groups, the user
// gets a new certificate, and the other users keep theirs.
func TestKeptUserIsRenamed(t *testing.T) {
	c := &Cluster{Dir: t.TempDir(), Server: "https://127.0.0.1:1", options: Options{Keep: true}}
	if err := c.writeKeys(); err != nil {
		t.Fatal(err)
	}
	ca, err := tls.LoadX509KeyPair(c.RootCAFile(), c.RootCAKeyFile())
	if err != nil {
		t.Fatal(err)
	}
	from := &authority{certificate: ca.Leaf, key: ca.PrivateKey.(crypto.Signer)}
	if err := c.issue(from, string(Writer), pkix.Name{CommonName: string(Writer)}, false, nil); err != nil {
		t.Fatal(err)
	}
	load := func(user User) *x509.Certificate {
		pair, err := tls.LoadX509KeyPair(c.key(string(user)+".crt"), c.key(string(user)+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	admin := load(Admin)
	if err := c.writeKeys(); err != nil {
		t.Fatal(err)
	}
	if got := load(Writer).Subject.Organization; !slices.Equal(got, []string{monitoring}) {
		t.Errorf("the writer's groups are %v", got)
	}
	if err := load(Writer).CheckSignatureFrom(ca.Leaf); err != nil {
		t.Errorf("the writer's new certificate: %v", err)
	}
	if !admin.Equal(load(Admin)) {
		t.Error("the administrator, whose name is the same, got a new certificate")
	}
}

// TestTracingReachesEveryProgram: all programs get the address of the collector, and none
// without a collector.
func TestTracingReachesEveryProgram(t *testing.T) {
	for _, tracing := range []Tracing{{}, {Jaeger: true}, {Collector: "127.0.0.1:9"}} {
		c := &Cluster{Dir: t.TempDir(), options: Options{Tracing: tracing}, ports: ports{OTLP: 9, Jaeger: 8}}
		if err := c.writeTracing(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(c.Dir, "tracing.yaml")
		written, err := os.ReadFile(file)
		if traced := tracing != (Tracing{}); traced != (err == nil) {
			t.Fatalf("%+v: %v", tracing, err)
		} else if !traced {
			if slices.ContainsFunc(append(c.etcdArgs(), c.apiServerArgs()...), func(arg string) bool { return strings.Contains(arg, "tracing") }) {
				t.Errorf("programs are told about tracing that there is none of: %v", append(c.etcdArgs(), c.apiServerArgs()...))
			}
			continue
		}
		if !strings.Contains(string(written), "\nendpoint: 127.0.0.1:9\n") || !slices.Contains(c.apiServerArgs(), "--tracing-config-file="+file) ||
			!slices.Contains(c.etcdArgs(), "--distributed-tracing-address=127.0.0.1:9") {
			t.Errorf("%+v: not every program is told: %v\n%s", tracing, append(c.etcdArgs(), c.apiServerArgs()...), written)
		}
	}
}

// TestUsualPortsWhereFree takes the usual ports, unless other processes have them, and then
// asks for them once more.
func TestUsualPortsWhereFree(t *testing.T) {
	taken := map[int]bool{0: true}
	for _, usual := range []int{16686, 4317, 4318} {
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", usual)); err == nil {
			defer listener.Close()
			taken[usual] = true
		}
	}
	var p ports
	if err := (Tracing{Jaeger: true, UsualPorts: true}).choosePorts(&p); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{p.Jaeger, p.OTLP, p.OTLPHTTP} {
		if taken[port] { // other processes may have released their ports meanwhile
			t.Errorf("ports that are taken were chosen: %+v", p)
		}
	}
	free, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := UsualPort(free); got != free || err != nil {
		t.Errorf("port %d, which is free, was not chosen: %d (%v)", free, got, err)
	}
}

// shell is the path of a shell.
func shell(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRevive: a killed program restarts with its arguments and appends to its log.
func TestRevive(t *testing.T) {
	c := &Cluster{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(c.Dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := c.Run("sleeper", shell(t), "-c", "echo alive; while true; do sleep 0.05; done")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	lines := func() int {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "alive")
	}
	said := func(n int) {
		if !eventually.Within(eventually.Long, func() bool { return lines() == n }) {
			t.Fatalf("the log has %d lines, want %d", lines(), n)
		}
	}
	said(1)
	if _, err := c.Revive("sleeper"); err == nil {
		t.Error("a program that runs was started again")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	again, err := c.Revive("sleeper")
	if err != nil {
		t.Fatal(err)
	}
	if !again.Running() || len(c.Processes()) != 1 {
		t.Errorf("running: %t; the cluster has %d processes", again.Running(), len(c.Processes()))
	}
	said(2)
}

func TestSweepSparesWhatIsInUse(t *testing.T) {
	dir, begun := t.TempDir(), time.Now()
	database := func(name string) string {
		db := filepath.Join(dir, name, "member", "snap", "db")
		if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(db, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return db
	}
	database(dataPrefix + "left")
	database("of-another")
	used, err := os.Open(database(dataPrefix + "used"))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := syscall.Flock(int(used.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return strings.Join(all, " ")
	}
	sweep(dir, begun)
	if got := names(); got != "millrace-etcd-left millrace-etcd-used of-another" {
		t.Errorf("what is young was swept: %s are left", got)
	}
	sweep(dir, time.Now().Add(time.Hour))
	if got := names(); got != "millrace-etcd-used of-another" {
		t.Errorf("after the sweep, %s are left", got)
	}
}

func TestOpenWithoutClusterSaysWhere(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %v", err)
	}
}
