package redact_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/millrace/millrace/pkg/events/redact"
)

const canary = "canary-7f3a"

func pod() *corev1.Pod {
	env := []corev1.EnvVar{{Name: "TOKEN", Value: canary}, {Name: "EMPTY"}, {
		Name: "REF", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}},
	}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{
			"example.com/token": canary, "example.com/kept": "kept",
			"kubectl.kubernetes.io/last-applied-configuration": `{"env":"` + canary + `"}`,
		}},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{
				{Name: "a", Env: env, Args: []string{"--password=" + canary, ""}}, {Name: "b", Env: env},
			},
		},
	}
}

func rules(t *testing.T, texts ...string) (all redact.Rules) {
	t.Helper()
	for _, text := range texts {
		r, err := redact.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != text {
			t.Errorf("%q is written as %q", text, r)
		}
		all = append(all, r)
	}
	return all
}

func written(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHide: the selected values are removed, in typed and untyped objects, and nothing else is
// changed.
func TestHide(t *testing.T) {
	all := rules(t, "pods:.spec.containers[*].env[*].value", "pods:.spec.containers[*].args", "pods:.metadata.annotations['example.com/token']")
	custom := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(written(t, pod())), &custom.Object); err != nil {
		t.Fatal(err)
	}
	for name, object := range map[string]metav1.Object{"a type": pod(), "none": custom} {
		before := written(t, object)
		if !all.Hide("pods", object) {
			t.Fatalf("%s: no rule is about it", name)
		}
		after := written(t, object)
		if strings.Contains(after, canary) || strings.Count(after, redact.Marker) != 5 {
			t.Errorf("%s: the redacted object is %s, want 5 markers and no value", name, after)
		}
		want := strings.NewReplacer(`"--password=`+canary+`",""`, fmt.Sprintf("%q,%q", redact.Marker, redact.Marker), canary, redact.Marker).Replace(before)
		want = strings.Replace(want, `,"kubectl.kubernetes.io/last-applied-configuration":"{\"env\":\"`+redact.Marker+`\"}"`, "", 1)
		if after != want {
			t.Errorf("%s: the redacted object is\n%s, want\n%s", name, after, want)
		}
		if all.Hide("pods", object); written(t, object) != after {
			t.Errorf("%s: hidden twice it is another", name)
		}
	}
}

// TestHideWhatIsNoText: numbers, times and quantities become zero, bytes are marked.
func TestHideWhatIsNoText(t *testing.T) {
	p := pod()
	seconds, user := int64(7), int64(1000)
	p.Spec.TerminationGracePeriodSeconds = &seconds
	p.Spec.Containers = p.Spec.Containers[:1]
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("3")}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
	rules(t, "pods:.spec").Hide("pods", p)
	text := written(t, p.Spec)
	for _, gone := range []string{canary, "n1", `"3"`, "1000", ":7"} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is told in %s", gone, text)
		}
	}
	config := &corev1.ConfigMap{Data: map[string]string{"a": canary, "b": ""}, BinaryData: map[string][]byte{"c": []byte(canary)}}
	rules(t, "configmaps:.data", "configmaps:.binaryData.c").Hide("configmaps", config)
	if config.Data["a"] != redact.Marker || config.Data["b"] != redact.Marker || string(config.BinaryData["c"]) != redact.Marker {
		t.Errorf("the redacted ConfigMap is %+v, want markers alone", config)
	}
}

func TestSparedAndOtherObjects(t *testing.T) {
	all := rules(t, "configmaps!spared!kube-root-ca.crt:.data")
	for name, want := range map[string]bool{"spared": false, "kube-root-ca.crt": false, "other": true} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": canary}}
		if got := all.Hide("configmaps", config); got != want || (config.Data["a"] == canary) == want {
			t.Errorf("%s: hidden %t, %v", name, got, config.Data)
		}
	}
	if p := pod(); all.Hide("pods", p) || p.Annotations["example.com/token"] != canary || len(p.Annotations) != 3 {
		t.Error("an object that no rule is about was changed")
	}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: pod().ObjectMeta}
	if rules(t, "pods:.spec").Hide("pods", partial); partial.Name != "web" || strings.Contains(written(t, partial), "last-applied") {
		t.Errorf("metadata is told as %v", partial)
	}
}

func TestRulesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"configmaps":                     "KIND:PATH",
		":.data":                         "kind",
		"configmaps!:.data":              "name",
		"pods:.spec.contaners[*].env":    "there is no .spec.contaners in pods",
		"pods:.spec.containers.env":      ".spec.containers is a list: write .spec.containers[*]",
		"pods:.spec.nodeName.x":          "there is no",
		"pods:.spec.containers[0].env":   "is no path",
		"pods:.spec..env":                "is no path",
		"pods:.metadata.labels":          "only annotations",
		"pods:.metadata":                 "only annotations",
		"pods:.kind":                     "known by",
		"deployments.apps:.spec.replcas": "there is no .spec.replcas",
		"pods:.spec.containers['a']":     "is a list",
		"pods:.metadata.annotations['a":  "is no path",
		"configmaps:.data['a'].b":        "there is no",
	} {
		if r, err := redact.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %v: %v; want an error that says %q", text, r, err, want)
		}
	}
	if _, err := redact.Parse("widgets.example.com:.spec.token"); err != nil {
		t.Errorf("a kind that is not known: %v", err)
	}
}

// A key may be no field at all, such as the directives of patches.
func TestAPathIsReadAsItIsWritten(t *testing.T) {
	for _, text := range []string{".spec.template['$patch']", ".metadata.annotations['a.b/c']", ".spec.containers[*].name"} {
		if path, err := redact.ParsePath(text); err != nil || path.String() != text {
			t.Errorf("%s is read as %s: %v", text, path, err)
		}
	}
	for _, text := range []string{"$.spec", ".$patch", ".spec['a*']"} {
		if path, err := redact.ParsePath(text); err == nil {
			t.Errorf("%s is read as %s", text, path)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		path, other string
		want        bool
	}{
		{".spec.containers[*].env", ".spec.containers[*].env[*].value", true},
		{".spec.containers[*].env[*].value", ".spec.containers[*].env", false},
		{".metadata.annotations[*]", ".metadata.annotations['a.b/c']", true},
		{".data['a']", ".data['b']", false},
		{".data", ".data", true},
	} {
		if got := redact.MustParsePath(c.path).Covers(redact.MustParsePath(c.other)); got != c.want {
			t.Errorf("%s covers %s: %t", c.path, c.other, got)
		}
	}
}

// TestWithhold: any annotation of a tool may contain the hidden value. Kubernetes' own
// annotations are those under kubernetes.io, and not those of tools with a similar prefix.
func TestWithhold(t *testing.T) {
	const told, hidden, dropped = canary, redact.Marker, ""
	for key, want := range map[string]string{
		"kapp.k14s.io/original": dropped, "kubectl.kubernetes.io/last-applied-configuration": dropped,
		"example.com/backup": hidden, "backup": hidden, "": hidden,
		"kubernetes.io/service-account.name": told, "kubernetes.io/legacy-token-last-used": told,
		"backup.kubernetes.io/data": hidden, "notkubernetes.io/data": hidden, "example.com/kubernetes.io/data": hidden,
		"kubernetes.io": hidden, "kubernetes.io.example.com/data": hidden, "Kubernetes.io/data": hidden,
	} {
		m := &metav1.ObjectMeta{Annotations: map[string]string{key: canary}}
		redact.Withhold(m)
		if got, there := m.Annotations[key]; got != want || there != (want != dropped) {
			t.Errorf("the annotation %q has become %q, want %q", key, got, want)
		}
	}
	bare := &metav1.ObjectMeta{}
	if redact.Withhold(bare); bare.Annotations != nil {
		t.Error("Withhold gives annotations to an object without any")
	}
}

// TestCopies: no copy of an object is published, however many there are, if a rule applies to
// the object or only metadata is published.
func TestCopies(t *testing.T) {
	tools := []string{
		"kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied",
	}
	for name, hide := range map[string]func(*metav1.PartialObjectMetadata){
		"a Secret":     func(m *metav1.PartialObjectMetadata) { redact.Withhold(m) },
		"under rules":  func(m *metav1.PartialObjectMetadata) { rules(t, "pods:.spec").Hide("pods", m) },
		"as metadata":  func(m *metav1.PartialObjectMetadata) { redact.Policy{}.Hide("pods", m, false) },
		"without rule": func(m *metav1.PartialObjectMetadata) { redact.Policy{}.Hide("pods", m, true) },
	} {
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"kubernetes.io/kept": "kept"}}}
		for _, tool := range tools {
			m.Annotations[tool] = canary
			if alone := written(t, &metav1.ObjectMeta{Annotations: map[string]string{tool: canary}}); !redact.Copied([]byte(alone)) {
				t.Errorf("%s is not known for a copy", tool)
			}
		}
		if hide(m); len(m.Annotations) != 1 || m.Annotations["kubernetes.io/kept"] != "kept" {
			t.Errorf("%s: the redacted annotations are %v, want the kept one alone", name, m.Annotations)
		}
	}
	if redact.Copied([]byte(written(t, &metav1.ObjectMeta{Annotations: map[string]string{"example.com/applied": canary}}))) {
		t.Error("Copied is true for an annotation that is no copy")
	}
}

// TestMarked: hidden values are recognized in the JSON of an object, as text and as bytes.
func TestMarked(t *testing.T) {
	for name, c := range map[string]struct {
		object any
		path   string
		marked bool
	}{
		"text":           {&corev1.ConfigMap{Data: map[string]string{"a": canary}}, "configmaps:.data", true},
		"bytes":          {&corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte(canary)}}, "configmaps:.binaryData", true},
		"nothing of it":  {&corev1.ConfigMap{Data: map[string]string{"a": canary}, BinaryData: map[string][]byte{"a": []byte(canary)}}, "configmaps:.data.b", false},
		"an empty field": {&corev1.ConfigMap{}, "configmaps:.data", false},
	} {
		rules(t, c.path).Hide("configmaps", c.object.(metav1.Object))
		if got := redact.Marked([]byte(written(t, c.object))); got != c.marked {
			t.Errorf("%s: marked %t, want %t", name, got, c.marked)
		}
	}
}

// A path finds in a Go object what it finds in its JSON.
func TestFindGoesByTheNamesOfJSON(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a.b/c": "d"}}, Spec: appsv1.DeploymentSpec{
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"e": "f"}}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "g"}, {Name: "h"}}, Volumes: []corev1.Volume{{Name: "i", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		}},
	}}
	for path, want := range map[string]string{
		".metadata.annotations['a.b/c']": `["d"]`, ".spec.template.metadata.labels": `[{"e":"f"}]`, ".spec.template.spec.containers[*].name": `["g","h"]`,
		".spec.template.spec.volumes[*].hostPath.path": `["/"]`, ".spec.replicas": `[null]`, ".spec.replicas.x": `[]`, ".metadata.annotations['x']": `[]`, ".Spec": `[]`, ".spec.x": `[]`,
	} {
		found := []any{}
		for _, v := range redact.MustParsePath(path).Find(d) {
			found = append(found, v.Interface())
		}
		if text, err := json.Marshal(found); err != nil || string(text) != want {
			t.Errorf("%s leads to %s, %v, want %s", path, text, err, want)
		}
	}
}
