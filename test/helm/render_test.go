package helm

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	deployments = "../../deployments"
	chartDir    = deployments + "/helm/millrace"
)

// object is an object that is applied.
type object map[string]any

func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, step := range path {
		fields, _ := value.(map[string]any)
		value = fields[step]
	}
	return value
}

func (o object) text(path ...string) string { s, _ := o.at(path...).(string); return s }

// key names an object in a cluster.
func (o object) key() string {
	return strings.Join([]string{o.text("kind"), o.text("metadata", "namespace"), o.text("metadata", "name")}, "/")
}

// values merges the values in some texts; later texts override earlier ones.
func values(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		one := map[string]any{}
		ok(t, yaml.Unmarshal([]byte(text), &one))
		all = commonutil.CoalesceTables(one, all)
	}
	return all
}

// shipped are the values in a file of the chart.
func shipped(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values", name+".yaml"))
	ok(t, err)
	return string(text)
}

// load reads the chart.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	ok(t, err)
	return c
}

// render returns the objects that the chart renders for values in a namespace, and its notes.
func render(c *chart.Chart, namespace string, vals map[string]any) (all []object, notes string, err error) {
	version, err := common.ParseKubeVersion("v1.36.3")
	if err != nil {
		return nil, "", err
	}
	with, err := commonutil.ToRenderValues(c, vals, common.ReleaseOptions{Name: "millrace", Namespace: namespace, Revision: 1, IsInstall: true},
		&common.Capabilities{KubeVersion: *version, APIVersions: common.DefaultVersionSet})
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, with)
	if err != nil {
		return nil, "", err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, "NOTES.txt") {
			notes = files[file]
			continue
		}
		some, err := objects(files[file])
		if err != nil {
			return nil, "", err
		}
		all = append(all, some...)
	}
	return all, notes, nil
}

// objects parses the objects in a text.
func objects(text string) (all []object, err error) {
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		one := object{}
		if err := yaml.UnmarshalStrict([]byte(document), (*map[string]any)(&one)); err != nil {
			return nil, err
		}
		if len(one) > 0 {
			all = append(all, one)
		}
	}
	return all, nil
}

// rendered returns the objects that the chart renders for valid values.
func rendered(t *testing.T, namespace string, texts ...string) (all []object, notes string) {
	t.Helper()
	all, notes, err := render(load(t), namespace, values(t, texts...))
	ok(t, err)
	return all, notes
}

// find returns the object with a kind and a name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	for _, o := range all {
		if o.text("kind") == kind && o.text("metadata", "name") == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
