package resolve

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestResolve(t *testing.T) {
	have := []kinds.Kind{
		kinds.ConfigMaps.Kind, kinds.Deployments.Kind, kinds.Pods.Kind, kinds.ServiceAccounts.Kind,
		{Name: "pods.metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}, {Name: "widgets.a.example", Version: "v1", Kind: "Widget"},
		{Name: "widgets.b.example", Version: "v1", Kind: "Widget"},
	}
	for word, want := range map[string]kinds.Name{
		"pods": "pods", "pod": "pods", "Pod": "pods", "po": "pods", "podmetrics": "pods.metrics.k8s.io", "pods.metrics.k8s.io": "pods.metrics.k8s.io",
		"deploy": "deployments.apps", "deployments": "deployments.apps", "Deployment": "deployments.apps", "deployments.v1.apps": "deployments.apps",
		"deployment.apps": "deployments.apps", "sa": "serviceaccounts", "cm": "configmaps", "widget": "widgets.a.example", "widget.b.example": "widgets.b.example",
	} {
		if got, err := Kind(word, have); err != nil || got.Name != want {
			t.Errorf("%s is %s, %v; want %s", word, got.Name, err, want)
		}
	}
	if _, err := Kind("pods", nil); err == nil || !strings.Contains(err.Error(), "no other yet") {
		t.Errorf("no kinds: %v", err)
	}
}
