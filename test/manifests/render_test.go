package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deployments = "../../deployments"

// installation is a kustomization, and the manifests that are applied after it.
type installation struct {
	kustomization string
	more          []string
}

// installations are all ways to install that we ship.
var installations = map[string]installation{
	"kubernetes": {"kubernetes", []string{"notary/notary.yaml"}}, "kubernetes with tokens": {"kubernetes", []string{"kubernetes/tokens.yaml"}},

	"kubernetes-ha": {"kubernetes-ha", []string{"notary/notary.yaml"}}, "kubernetes-split": {"kubernetes-split", []string{"notary/notary.yaml"}},
	"kubernetes-classic": {"kubernetes-classic", []string{"notary/notary.yaml"}}, "kubernetes-shadow": {"kubernetes-shadow", nil},
}

// rendered is the text that kubectl would apply.
func rendered(t *testing.T, name string) []byte {
	t.Helper()
	i := installations[name]
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deployments, i.kustomization))
	ok(t, err)
	text, err := all.AsYaml()
	ok(t, err)
	for _, file := range i.more {
		more, err := os.ReadFile(filepath.Join(deployments, file))
		ok(t, err)
		text = append(append(text, "\n---\n"...), more...)
	}
	return text
}

// decoded parses the objects in a text with the API's types; an unknown field is an error.
func decoded(t *testing.T, text []byte) (found []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		ok(t, add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		ok(t, err)
		object, _, err := decoder.Decode(document, nil, nil)
		ok(t, err)
		found = append(found, object)
	}
}

// of returns the objects of one type.
func of[T runtime.Object](all []runtime.Object) (some []T) {
	for _, object := range all {
		if one, is := object.(T); is {
			some = append(some, one)
		}
	}
	return some
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
