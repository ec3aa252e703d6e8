package helm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// overlay is a kustomization of deployments, and the chart values with the same result.
type overlay struct {
	kustomization string
	more          []string // files that are applied after the kustomization
	namespace     string
	values        string // in addition to those of the chart's file of the same name
	// monitoring are files without a namespace; they are applied into that of the overlay.
	monitoring []string
}

const (
	withNotary = "notary: {enabled: true}"
	system     = "millrace-system"
)

var overlays = map[string]overlay{
	"kubernetes":             {"kubernetes", []string{"notary/notary.yaml"}, system, withNotary, nil},
	"kubernetes with tokens": {"kubernetes", []string{"kubernetes/tokens.yaml"}, system, "tokens: {roles: true}", nil},
	"kubernetes-classic":     {"kubernetes-classic", []string{"notary/notary.yaml"}, system, withNotary, nil},
	"kubernetes-split":       {"kubernetes-split", []string{"notary/notary.yaml"}, system, withNotary, nil},
	"kubernetes-ha":          {"kubernetes-ha", nil, system, "", nil},
	"kubernetes-shadow":      {"kubernetes-shadow", nil, "millrace-shadow", "", nil},
	"monitored":              {"kubernetes", nil, system, "observability: {podMonitor: true, prometheusRule: true}", []string{"observability/kubernetes/podmonitor.yaml"}},
}

// applied returns the objects of an overlay.
func (o overlay) applied(t *testing.T) (all []object) {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deployments, o.kustomization))
	ok(t, err)
	text, err := made.AsYaml()
	ok(t, err)
	all, err = objects(string(text))
	ok(t, err)
	for _, file := range slices.Concat(o.more, o.monitoring) {
		text, err := os.ReadFile(filepath.Join(deployments, file))
		ok(t, err)
		some, err := objects(string(text))
		ok(t, err)
		for _, one := range some {
			if slices.Contains(o.monitoring, file) {
				one.at("metadata").(map[string]any)["namespace"] = o.namespace
			}
		}
		all = append(all, some...)
	}
	if len(o.monitoring) > 0 {
		all = append(all, ruleObject(t, o.namespace))
	}
	return all
}

// ruleObject is the PrometheusRule that deployments/observability/README.md describes.
func ruleObject(t *testing.T, namespace string) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployments, "observability", "prometheus", "rules.yaml"))
	ok(t, err)
	var spec map[string]any
	ok(t, yaml.Unmarshal(text, &spec))
	return object{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": map[string]any{
		"name": "millrace", "namespace": namespace, "labels": map[string]any{"app.kubernetes.io/name": "millrace"},
	}, "spec": spec}
}

// TestTheChartIsTheOverlays: with the values in its own files the chart renders the objects that the overlays
// apply, and no others.
func TestTheChartIsTheOverlays(t *testing.T) {
	for name, o := range overlays {
		t.Run(name, func(t *testing.T) {
			have, _ := rendered(t, o.namespace, shipped(t, o.kustomization), o.values, "namespace: {create: true}")
			for _, wrong := range differences(t, have, o.applied(t)) {
				t.Error(wrong)
			}
		})
	}
}

// differences compares the rendered objects with the wanted ones.
func differences(t *testing.T, have, want []object) (wrong []string) {
	t.Helper()
	a, b := byKey(t, have), byKey(t, want)
	for key := range a {
		if b[key] == nil {
			wrong = append(wrong, "the chart alone has "+key)
		}
	}
	for key := range b {
		if a[key] == nil {
			wrong = append(wrong, "the overlay alone has "+key)
		} else {
			for _, path := range unequal("", map[string]any(a[key]), map[string]any(b[key])) {
				wrong = append(wrong, key+": "+path)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func byKey(t *testing.T, all []object) map[string]object {
	t.Helper()
	keys := map[string]object{}
	for _, o := range all {
		o = normal(t, o)
		if keys[o.key()] != nil {
			t.Errorf("%s is there twice", o.key())
		}
		keys[o.key()] = o
	}
	return keys
}

// hashed matches the hash that kustomize appends to the name of a ConfigMap that it generates.
var hashed = regexp.MustCompile(`(millrace-bus-accounts)-[a-z0-9]{10}\b`)

// normal removes differences without meaning from an object: the hash in a name, for which the chart has an
// annotation; the order of sets; and the layout of YAML in a ConfigMap.
func normal(t *testing.T, o object) object {
	t.Helper()
	text, err := yaml.Marshal(o)
	ok(t, err)
	o = object{}
	ok(t, yaml.Unmarshal([]byte(hashed.ReplaceAllString(string(text), "$1")), (*map[string]any)(&o)))
	if notes, is := o.at("spec", "template", "metadata", "annotations").(map[string]any); is {
		maps.DeleteFunc(notes, func(key string, _ any) bool { return strings.HasPrefix(key, "checksum/") })
		if len(notes) == 0 {
			delete(o.at("spec", "template", "metadata").(map[string]any), "annotations")
		}
	}
	if data, is := o.at("data").(map[string]any); is {
		for file, text := range data {
			if strings.HasSuffix(file, ".yaml") {
				var parsed any
				ok(t, yaml.Unmarshal([]byte(text.(string)), &parsed))
				data[file] = parsed
			}
		}
	}
	if containers, is := o.at("spec", "template", "spec", "containers").([]any); is {
		for _, c := range containers {
			c := c.(map[string]any)
			c["args"] = arguments(c["args"].([]any))
			sortNamed(c["volumeMounts"])
			sortNamed(c["ports"])
			sortNamed(c["env"])
		}
		sortNamed(o.at("spec", "template", "spec", "volumes"))
	}
	return o
}

// arguments are a program's flags as a set, with sorted lists of controllers.
func arguments(args []any) (words []any) {
	var flags []string
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(fmt.Sprint(a), "=")
		list := strings.Split(value, ",")
		if name == "--controllers" {
			slices.Sort(list)
		}
		flags = append(flags, name+"="+strings.Join(list, ","))
	}
	slices.Sort(flags)
	words = append(words, args[0])
	for _, f := range flags {
		words = append(words, f)
	}
	return words
}

func sortNamed(list any) {
	all, _ := list.([]any)
	slices.SortFunc(all, func(a, b any) int {
		return strings.Compare(fmt.Sprint(a.(map[string]any)["name"]), fmt.Sprint(b.(map[string]any)["name"]))
	})
}

// unequal are the paths at which two values differ.
func unequal(at string, a, b any) (paths []string) {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if isMap && both {
		for key := range x {
			paths = append(paths, unequal(at+"."+key, x[key], y[key])...)
		}
		for key := range y {
			if _, has := x[key]; !has {
				paths = append(paths, fmt.Sprintf("%s.%s: the chart has none, the overlay %v", at, key, y[key]))
			}
		}
		return paths
	}
	l, isList := a.([]any)
	m, both := b.([]any)
	if isList && both && len(l) == len(m) {
		for i := range l {
			paths = append(paths, unequal(fmt.Sprintf("%s[%d]", at, i), l[i], m[i])...)
		}
		return paths
	}
	if !reflect.DeepEqual(a, b) {
		paths = append(paths, fmt.Sprintf("%s: the chart has %v, the overlay %v", at, a, b))
	}
	return paths
}

// TestDifferencesAreFound: a missing object, an extra one, and a changed field.
func TestDifferencesAreFound(t *testing.T) {
	o := overlays["kubernetes-ha"]
	same := func() []object {
		all, _ := rendered(t, o.namespace, shipped(t, o.kustomization), "namespace: {create: true}")
		return all
	}
	want := o.applied(t)
	for says, spoil := range map[string]func([]object) []object{
		"the overlay alone has ConfigMap": func(all []object) []object {
			return slices.DeleteFunc(all, func(o object) bool { return o.text("kind") == "ConfigMap" })
		},
		"the chart alone has Secret": func(all []object) []object {
			return append(all, object{"kind": "Secret", "metadata": map[string]any{"name": "a"}})
		},
		"--sync-interval=always": func(all []object) []object {
			c := find(t, all, "StatefulSet", "millrace-nats").at("spec", "template", "spec", "containers").([]any)[0].(map[string]any)
			c["args"] = slices.DeleteFunc(c["args"].([]any), func(a any) bool { return a == "--sync-interval=always" })
			return all
		},
		".rules[0].verbs": func(all []object) []object {
			find(t, all, "ClusterRole", "millrace-watcher").at("rules").([]any)[0].(map[string]any)["verbs"] = []any{"list", "watch", "get"}
			return all
		},
		".spec.replicas": func(all []object) []object {
			find(t, all, "Deployment", "millrace-writer").at("spec").(map[string]any)["replicas"] = 1
			return all
		},
	} {
		if found := strings.Join(differences(t, spoil(same()), want), "\n"); !strings.Contains(found, says) {
			t.Errorf("%q is not found: %s", says, found)
		}
	}
}
