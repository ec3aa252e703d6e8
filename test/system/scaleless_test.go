package system

import (
	"context"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/cmd/clustertest"
)

// scaleless are targets without a scale, by the autoscaler's name, with the expected message. One has a kind
// that is called Secret: the writer refuses every other question about such a kind.
var scaleless = map[string]struct {
	target autoscalingv2.CrossVersionObjectReference
	says   string
}{
	"of-a-secret":    {autoscalingv2.CrossVersionObjectReference{APIVersion: "vault.example.com/v1", Kind: "Secret", Name: "word"}, `secrets.vault.example.com "word" not found`},
	"of-a-daemonset": {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "word"}, "the server could not find the requested resource"},
	"of-no-kind":     {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Nothing", Name: "word"}, `no matches for kind "Nothing" in group "apps"`},
	"of-no-object":   {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "word"}, `deployments.apps "word" not found`},
}

// TestAutoscalersOfWhatHasNoScale: for such targets Millrace writes the same message as
// kube-controller-manager.
func TestAutoscalersOfWhatHasNoScale(t *testing.T) {
	s := here(t)
	s.defineMetrics(t, schema.GroupVersionResource{Group: "vault.example.com", Version: "v1", Resource: "secrets"}, "Secret")
	within(t, patience, "the API server has the kind that is called a Secret", func() string {
		_, lists, err := s.kube.Discovery().ServerGroupsAndResources()
		for _, list := range lists {
			if list.GroupVersion == "vault.example.com/v1" {
				return ""
			}
		}
		return "it has not, " + ask(err)
	})
	const often = "--horizontal-pod-autoscaler-sync-period=500ms"
	t.Run("millrace", func(t *testing.T) {
		s.run(t, often)
		s.autoscalesNothing(t, "scaleless-here")
	})
	t.Run("kcm", func(t *testing.T) {
		kcm, err := s.StartKCM(t.Context(), 0, clustertest.KCM{Controllers: "horizontal-pod-autoscaler-controller", Args: []string{often}})
		must(t, err)
		t.Cleanup(func() { must(t, kcm.Stop()) })
		s.autoscalesNothing(t, "scaleless-there")
	})
}

func (s *site) autoscalesNothing(t *testing.T, namespace string) {
	t.Helper()
	a := &autoscaled{site: s, namespace: namespace}
	must(t, s.arenas.CreateNamespace(t.Context(), namespace))
	t.Cleanup(func() {
		must(t, s.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}))
	})
	for name, c := range scaleless {
		_, err := s.kube.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: c.target, MaxReplicas: 3},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	for name, c := range scaleless {
		a.says(t, name, "AbleToScale False FailedGetScale the HPA controller was unable to get the target's current scale: "+c.says)
		a.tells(t, name, "Warning FailedGetScale "+c.says)
	}
}
