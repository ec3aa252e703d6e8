package system

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/cmd/clustertest"
)

// canaryArena is the namespace of all planted objects.
const canaryArena = "canaries"

// collector receives spans like an OpenTelemetry collector.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	text []byte
}

func collect(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			packed, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = packed
		}
		text, _ := io.ReadAll(body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.text = append(c.text, text...)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.text...)
}

// defineVaults creates a custom kind whose validation rejects every update that does not change the secret,
// with a message that quotes the secret.
func (s *site) defineVaults(t *testing.T) {
	t.Helper()
	text := map[string]any{"type": "string"}
	spec := map[string]any{"type": "object", "properties": map[string]any{"secret": text}, "x-kubernetes-validations": []any{
		map[string]any{"rule": "self.secret != oldSelf.secret", "messageExpression": "'it is still ' + self.secret"},
	}}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "vaults." + churn},
		"spec": map[string]any{
			"group": churn, "scope": "Namespaced", "names": map[string]any{"plural": "vaults", "singular": "vault", "kind": "vault", "listKind": "vaultList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": spec}},
			}}},
		},
	}}
	_, err := s.dynamic.Resource(definitionsResource).Create(t.Context(), definition, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, s.removeKind(context.WithoutCancel(t.Context()), "vault")) })
}

// refuse installs a webhook that rejects Millrace's writes into the namespace. The message, a cause and a
// field of the response quote a value for each kind.
func (s *site) refuse(t *testing.T, values canaries) {
	t.Helper()
	quotes := map[string]string{
		"configmaps": values[quotedOfConfig], "pods": values[quotedOfPod], "replicasets": values[quotedOfSets], "vaults": values[quotedOfCustom],
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if ours := strings.HasPrefix(review.Request.UserInfo.Username, "system:serviceaccount:kube-system:"); ours {
			value := quotes[review.Request.Resource.Resource]
			review.Response.Allowed = false
			review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReason(value), Message: "not with " + value, Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: metav1.CauseType(value), Message: value, Field: value}},
			}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	rule := func(does admissionregistrationv1.OperationType, group, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{does}, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource},
		}}
	}
	none := admissionregistrationv1.SideEffectClassNone
	hooks := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "canaries"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "canaries.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: canaryArena}},
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("CREATE", "", "configmaps"), rule("CREATE", "", "pods"), rule("CREATE", "apps", "replicasets"), rule("DELETE", churn, "vaults"),
			},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { s.relent(t) })
}

// relent lets Millrace write again.
func (s *site) relent(t *testing.T) {
	t.Helper()
	hooks := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := hooks.Delete(context.WithoutCancel(t.Context()), "canaries", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		must(t, err)
	}
}

// clearCanaries deletes the planted objects while Millrace still runs: the next Millrace would try to process
// leftovers, which the API server forbids.
func (s *site) clearCanaries(t *testing.T) {
	t.Helper()
	s.relent(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, s.arenas.Remove(ctx, canaryArena))
	must(t, s.arenas.AwaitGone(ctx, canaryArena))
}

// plant creates the objects that hold the values.
func (s *site) plant(t *testing.T, m *together, values canaries) {
	t.Helper()
	must(t, s.arenas.CreateNamespace(t.Context(), canaryArena))
	must(t, s.arenas.AwaitAccount(t.Context(), canaryArena))
	meta := func(name, copied string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"was":"` + copied + `"}`}}
	}
	_, err := s.kube.CoreV1().Secrets(canaryArena).Create(t.Context(), &corev1.Secret{
		ObjectMeta: meta("keys", values[copyOfSecret]), StringData: map[string]string{"password": values[ofSecret]},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = s.kube.CoreV1().ConfigMaps(canaryArena).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: meta("settings", values[copyOfConfig]), Data: map[string]string{"a": values[ofConfig]},
		BinaryData: map[string][]byte{"b": []byte("\xff" + values[packedInConfig])},
	}, metav1.CreateOptions{})
	must(t, err)
	labels := map[string]string{"app": "canary"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lone"}, Spec: *template.Spec.DeepCopy()}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: values[ofPod]}}
	_, err = s.kube.CoreV1().Pods(canaryArena).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	selector := &metav1.LabelSelector{MatchLabels: labels}
	_, err = s.kube.AppsV1().Deployments(canaryArena).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: meta("open", values[copyOfDeployment]), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = s.kube.AppsV1().ReplicaSets(canaryArena).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	s.plantVault(t, m, "kept", values, metav1.DeletePropagationOrphan)
	s.plantVault(t, m, "lost", values, metav1.DeletePropagationBackground)
}

// plantVault creates a custom object whose owner is deleted, so that the garbage collector patches or deletes
// the object.
func (s *site) plantVault(t *testing.T, m *together, name string, values canaries, propagation metav1.DeletionPropagation) {
	t.Helper()
	maps := s.kube.CoreV1().ConfigMaps(canaryArena)
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner-of-" + name}}, metav1.CreateOptions{})
	must(t, err)
	vaults := s.dynamic.Resource(kindResource("vault")).Namespace(canaryArena)
	within(t, patience, "a custom object can be created", func() string {
		vault := customObject("vault", name, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
		vault.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: `{"was":"` + values[copyOfCustom] + `"}`})
		vault.Object["spec"] = map[string]any{"secret": values[ofCustom]}
		_, err := vaults.Create(t.Context(), vault, metav1.CreateOptions{})
		return made(err)
	})
	asker{site: s, nats: m.nats, namespace: canaryArena}.awaitLook(t, "vaults."+churn+"/"+name, "garbage-collector-controller")
	must(t, maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &propagation}))
}

// page returns the responses of the web page's API about the objects.
func (s *site) page(t *testing.T, m *together) (text []byte) {
	t.Helper()
	address := loopback(t)
	p, err := s.Run(t.Name()+"-ui-"+address[strings.LastIndex(address, ":")+1:], s.binary, "ui", "--nats-url="+clustertest.BusURL(m.nats), "--listen="+address, "--no-token")
	must(t, err)
	defer func() { must(t, p.Kill()) }()
	asks := []string{"overview", "state?namespace=" + canaryArena, "chronicle?namespace=" + canaryArena, "search?q=canar"}
	for kind, names := range shown {
		for _, name := range names {
			of := url.Values{"kind": {string(kind)}, "namespace": {canaryArena}, "name": {name}}.Encode()
			asks = append(asks, "object?"+of, "history?"+of, "why?"+of, "standing?"+of)
		}
	}
	for _, ask := range asks {
		within(t, patience, "the page answers "+ask, func() string {
			response, err := http.Get("http://" + address + "/api/" + ask)
			if err != nil {
				return err.Error()
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return err.Error()
			}
			if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
				return fmt.Sprintf("%d: %s", response.StatusCode, body)
			}
			text = append(text, body...)
			return ""
		})
	}
	return text
}
