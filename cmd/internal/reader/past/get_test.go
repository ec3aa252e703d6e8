package past

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestGetIsKubectls: get takes kinds, names, selectors and outputs as kubectl does.
func TestGetIsKubectls(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	w.Record(kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "labelled", Labels: map[string]string{"app": "web"}}})
	for _, c := range []struct {
		args []string
		want string // the whole answer
	}{
		{[]string{"get", "all", "-n=shop", "-o=name"}, "pod/web-1-1\npod/web-1-2\ndeployment.apps/web\nreplicaset.apps/web-1\n"},
		{[]string{"get", "cm,deploy", "-n=shop", "-o=name"}, "configmap/flags\nconfigmap/labelled\ndeployment.apps/web\n"},
		{[]string{"get", "po,pods,pod", "-n=shop", "-o=name"}, "pod/web-1-1\npod/web-1-2\n"},
		{[]string{"get", "cm", "-A", "-l=app=web", "-o=name"}, "configmap/colours\nconfigmap/labelled\n"},
		{[]string{"get", "cm", "-A", "--selector=app!=web", "-o=name"}, "configmap/flags\n"},
		{[]string{"get", "po/web-1-1", "cm/flags", "-n=shop", "-o=name"}, "pod/web-1-1\nconfigmap/flags\n"},
		{[]string{"get", "po", "web-1-2", "web-1-1", "-n=shop", "-o=name"}, "pod/web-1-2\npod/web-1-1\n"},
		{[]string{"get", "deploy/web", "-n=shop", "-o=jsonpath={.spec.replicas}"}, "2\n"},
		{[]string{"get", "deploy/web", "-n=shop", "-o", "jsonpath=.metadata.name"}, "web\n"},
		{[]string{"get", "deploy/web", "-n=shop", "-o=jsonpath={.spec.nothing}"}, "\n"},
		{[]string{"get", "pods", "-n=shop", `-o=jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`}, "web-1-1\nweb-1-2\n"},
		{[]string{"get", "cm", "-n=shop", "-l=app=db"}, "no configmaps in namespace shop with labels app=db\n"},
	} {
		if said, err := w.Millrace(c.args...); err != nil && !strings.Contains(err.Error(), "the watcher was away") || said != c.want {
			t.Errorf("millrace %s: %v\n%s\nwant %s", strings.Join(c.args, " "), err, said, c.want)
		}
	}
	for says, args := range map[string][]string{
		"web-1-1   there": {"get", "all", "-n=shop"}, "deployment.apps/web": {"get", "all", "-n=shop"}, "replicaset/web-1": {"get", "pods", "-n=shop", "-o=wide"},
		"Running": {"get", "pods", "-n=shop", "-o=wide"}, "app=web": {"get", "cm", "-n=shop", "-o", "wide"},
	} {
		if said, _ := w.Millrace(args...); !strings.Contains(said, says) {
			t.Errorf("millrace %s lacks %q:\n%s", strings.Join(args, " "), says, said)
		}
	}
	for want, args := range map[string][]string{
		"read --selector":             {"get", "cm", "-l=a=b=c"},
		"is no JSONPath template":     {"get", "cm", "-o=jsonpath={.x"},
		"is none of table, wide":      {"get", "cm", "-o=xml"},
		"did you mean pods?":          {"get", "cm,pdos"},
		"write millrace get KIND[,KI": {"get"},
	} {
		_, err := w.Millrace(args...)
		readertest.Says(t, err, args, want)
	}
}

// TestOneObjectIsWrittenAsItself: a single object is printed without a List, so that kubectl apply
// accepts it.
func TestOneObjectIsWrittenAsItself(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	var one corev1.ConfigMap
	said, err := w.Millrace("get", "cm", "flags", "-n=shop", "-o=json")
	if readertest.Must(t, err); json.Unmarshal([]byte(said), &one) != nil || one.Kind != "ConfigMap" || one.APIVersion != "v1" || one.Name != "flags" || one.Data["dark"] != "on" {
		t.Errorf("it is\n%s", said)
	}
	var all struct {
		metav1.TypeMeta
		Items []corev1.ConfigMap
		Whole bool
	}
	said, err = w.Millrace("get", "cm", "-n=shop", "-o=json")
	if readertest.Must(t, err); json.Unmarshal([]byte(said), &all) != nil || all.Kind != "List" || len(all.Items) != 1 || all.Items[0].Kind != "ConfigMap" || !all.Whole {
		t.Errorf("they are\n%s", said)
	}
}
