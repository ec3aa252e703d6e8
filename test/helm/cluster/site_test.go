package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

const (
	checkout = "../../.."
	chartDir = checkout + "/deployments/helm/millrace"
	patience = 2 * time.Minute
	name     = "millrace"
)

// site is a namespace of an API server, with Helm.
type site struct {
	*testing.T
	config    *action.Configuration
	settings  *cli.EnvSettings
	client    dynamic.Interface
	namespace string
	chart     *chart.Chart
	mapper    meta.RESTMapper // nil: discovery makes it
}

// start starts a control plane for the tests of this package. It runs in the workspace, whose version of the
// Kubernetes API differs from Helm's.
func start(dir string) (kubeconfig string, stop func() error, err error) {
	work, err := filepath.Abs(filepath.Join(checkout, "go.work"))
	if err != nil {
		return "", nil, err
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", append([]string{"run", "./cmd/localcluster"}, args...)...)
		cmd.Dir, cmd.Env, cmd.Stderr = checkout, append(os.Environ(), "GOWORK="+work), os.Stderr
		return cmd.Output()
	}
	stop = func() error { _, err := run("down", "--dir="+dir); return err }
	out, err := run("up", "--dir="+dir, "--nodes=1")
	if err != nil {
		return "", nil, fmt.Errorf("start a control plane: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if file, is := strings.CutPrefix(strings.TrimSpace(line), "export KUBECONFIG="); is {
			return file, stop, nil
		}
	}
	return "", nil, fmt.Errorf("the control plane has no kubeconfig:\n%s", out)
}

var kubeconfig string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "millrace-helm-")
	var stop func() error
	if err == nil {
		// The discovery cache is per address, and another API server may get the same port later.
		err = os.Setenv("KUBECACHEDIR", filepath.Join(dir, "kube-cache"))
	}
	if err == nil {
		kubeconfig, stop, err = start(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		_ = os.RemoveAll(dir)
	}()
	return m.Run()
}

// to returns Helm in an existing namespace.
func to(t *testing.T, namespace string) *site {
	t.Helper()
	s := &site{T: t, namespace: namespace, settings: cli.New(), config: action.NewConfiguration()}
	s.settings.KubeConfig = kubeconfig
	s.settings.SetNamespace(namespace)
	s.ok(s.config.Init(s.settings.RESTClientGetter(), namespace, ""))
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	s.ok(err)
	s.client, err = dynamic.NewForConfig(rest)
	s.ok(err)
	s.chart, err = loader.Load(chartDir)
	s.ok(err)
	return s
}

// at creates a namespace that admits restricted pods only.
func at(t *testing.T, namespace string) *site {
	t.Helper()
	s := to(t, namespace)
	s.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", namespace))
	// kube-controller-manager would create this account, which pods without an account of their own use.
	s.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}")
	return s
}

func (s *site) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// objects parses the objects in a text.
func (s *site) objects(text string) (all []*unstructured.Unstructured) {
	s.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		fields := map[string]any{}
		s.ok(yaml.Unmarshal([]byte(document), &fields))
		if len(fields) > 0 {
			o := &unstructured.Unstructured{}
			encoded, err := yaml.YAMLToJSON([]byte(document))
			s.ok(err)
			s.ok(o.UnmarshalJSON(encoded))
			all = append(all, o)
		}
	}
	return all
}

// resource is the API of an object's kind.
func (s *site) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	s.Helper()
	if s.mapper == nil {
		mapper, err := s.settings.RESTClientGetter().ToRESTMapper()
		s.ok(err)
		s.mapper = mapper
	}
	kind := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	s.ok(err)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(mapping.Resource)
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = s.namespace
	}
	return s.client.Resource(mapping.Resource).Namespace(namespace)
}

func (s *site) apply(text string) {
	s.Helper()
	for _, o := range s.objects(text) {
		_, err := s.resource(o).Apply(s.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test"})
		s.ok(err)
	}
}

// there returns the object as it is on the API server, or nil.
func (s *site) there(o *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	found, err := s.resource(o).Get(s.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.ok(err)
	return found
}

func (s *site) values(texts ...string) map[string]any {
	s.Helper()
	all := map[string]any{}
	s.ok(yaml.Unmarshal([]byte(strings.Join(texts, "\n")), &all))
	return all
}

// install, upgrade and rollback return the objects of the release.
func (s *site) install(values map[string]any) []*unstructured.Unstructured {
	s.Helper()
	i := action.NewInstall(s.config)
	i.ReleaseName, i.Namespace, i.Timeout, i.WaitStrategy = name, s.namespace, patience, kube.HookOnlyStrategy
	made, err := i.RunWithContext(s.Context(), s.chart, values)
	s.ok(err)
	return s.objects(made.(*release.Release).Manifest)
}

func (s *site) upgrade(values map[string]any) []*unstructured.Unstructured {
	s.Helper()
	u := action.NewUpgrade(s.config)
	u.Namespace, u.Timeout, u.WaitStrategy = s.namespace, patience, kube.HookOnlyStrategy
	made, err := u.RunWithContext(s.Context(), name, s.chart, values)
	s.ok(err)
	return s.objects(made.(*release.Release).Manifest)
}

func (s *site) rollback(revision int) []*unstructured.Unstructured {
	s.Helper()
	r := action.NewRollback(s.config)
	r.Version, r.Timeout, r.WaitStrategy = revision, patience, kube.HookOnlyStrategy
	s.ok(r.Run(name))
	made, err := action.NewGet(s.config).Run(name)
	s.ok(err)
	return s.objects(made.(*release.Release).Manifest)
}

func (s *site) uninstall() {
	s.Helper()
	u := action.NewUninstall(s.config)
	u.Timeout, u.WaitStrategy = patience, kube.HookOnlyStrategy
	_, err := u.Run(name)
	s.ok(err)
}

// eventually waits until something holds.
func (s *site) eventually(what string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			s.Fatalf("it does not come about that %s", what)
		case <-tick.C:
		}
	}
}

// key names an object.
func key(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

// crds installs the kinds of other programs that the chart needs. They accept any field.
func (s *site) crds() {
	s.Helper()
	var text bytes.Buffer
	for _, kind := range [][3]string{{"monitoring.coreos.com", "PodMonitor", "podmonitors"}, {"monitoring.coreos.com", "ServiceMonitor", "servicemonitors"},
		{"monitoring.coreos.com", "PrometheusRule", "prometheusrules"}, {"cert-manager.io", "Certificate", "certificates"}} {
		fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[2]s, plural: %[3]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, kind[0], kind[1], kind[2])
	}
	s.apply(text.String())
	s.eventually("the kinds of others are served", func() bool {
		for _, o := range s.objects(text.String()) {
			found := s.there(o)
			conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
			if !strings.Contains(fmt.Sprint(conditions), "status:True type:Established") {
				return false
			}
		}
		return true
	})
	s.mapper = nil
}
